"""Complex numbers in CUDA C++: NumPy's arithmetic, and the functions with the standard's values at infinities and NaN.

Functions are computed in float64 and rounded for complex64. Inverse ones follow Kahan's "Branch cuts for complex
elementary functions", which has no cancellation; the logarithm of a magnitude near 1 is taken in doubled digits.
"""

from __future__ import annotations

_ARITHMETIC = """template <typename R> struct xt_complex { R re, im; };
template <typename R> __device__ xt_complex<R> operator+(xt_complex<R> a, xt_complex<R> b) {
  return {a.re + b.re, a.im + b.im};
}
template <typename R> __device__ xt_complex<R> operator-(xt_complex<R> a, xt_complex<R> b) {
  return {a.re - b.re, a.im - b.im};
}
template <typename R> __device__ xt_complex<R> operator*(xt_complex<R> a, xt_complex<R> b) {
  return {a.re * b.re - a.im * b.im, a.re * b.im + a.im * b.re};
}
template <typename R> __device__ xt_complex<R> operator/(xt_complex<R> a, xt_complex<R> b) {
  const R re = b.re < 0 ? -b.re : b.re, im = b.im < 0 ? -b.im : b.im;
  if (re >= im) {
    if (re == 0 && im == 0) return {a.re / re, a.im / re};
    const R ratio = b.im / b.re, scale = (R)1 / (b.re + b.im * ratio);
    return {(a.re + a.im * ratio) * scale, (a.im - a.re * ratio) * scale};
  }
  const R ratio = b.re / b.im, scale = (R)1 / (b.im + b.re * ratio);
  return {(a.re * ratio + a.im) * scale, (a.im * ratio - a.re) * scale};
}"""

_SIGN = """template <typename R> __device__ xt_complex<R> xt_csign(xt_complex<R> z) {
  const R size = (R)hypot((double)z.re, (double)z.im);
  if (isnan(size)) return {size, size};
  if (isinf(size)) {
    if (isinf(z.re) && isinf(z.im)) return {z.re - z.re, z.re - z.re};
    if (isinf(z.re)) return {z.re > 0 ? (R)1 : (R)-1, 0};
    return {0, z.im > 0 ? (R)1 : (R)-1};
  }
  if (size == 0) return {0, 0};
  return {z.re / size, z.im / size};
}"""

_D = "xt_complex<double>"

_BODIES = {
    "sqrt": """  double x = z.re, y = z.im, scale = 1;
  if (x == 0 && y == 0) return {0, y};
  if (isinf(y)) return {fabs(y), y};
  if (isnan(x)) return {x, x};
  if (isinf(x)) {
    if (x < 0) return {isnan(y) ? y : 0.0, copysign(x, y)};
    return {x, isnan(y) ? y : copysign(0.0, y)};
  }
  const double size = fmax(fabs(x), fabs(y));
  if (size >= 0x1p1021) { x *= 0.25; y *= 0.25; scale = 2; }
  if (size < 0x1p-960) { x *= 0x1p54; y *= 0x1p54; scale = 0x1p-27; }
  const double t = sqrt((fabs(x) + hypot(x, y)) * 0.5);
  if (x >= 0) return {scale * t, scale * (y / (2 * t))};
  return {scale * (fabs(y) / (2 * t)), scale * copysign(t, y)};""",
    "exp": """  const double x = z.re, y = z.im;
  if (y == 0) return {exp(x), y};
  if (x == 0) return {cos(y), sin(y)};
  if (!isfinite(y)) {
    if (x == -xt_infinity) return {0, 0};
    return {isinf(x) ? x : y - y, y - y};
  }
  if (isfinite(x) && x > 700) {
    const double half = exp(0.5 * x);
    return {half * cos(y) * half, half * sin(y) * half};
  }
  const double size = exp(x);
  return {size * cos(y), size * sin(y)};""",
    "log": "  return {xt_log_size(z.re, z.im), atan2(z.im, z.re)};",
    "log2": "  return {xt_log_size(z.re, z.im) * 1.4426950408889634, atan2(z.im, z.re) * 1.4426950408889634};",
    "log10": "  return {xt_log_size(z.re, z.im) * 0.4342944819032518, atan2(z.im, z.re) * 0.4342944819032518};",
    "log1p": """  const double x = z.re, y = z.im;
  if (!(fabs(x) < 0.5 && fabs(y) < 0.5)) return {xt_log_size(1 + x, y), atan2(y, 1 + x)};
  return {0.5 * log1p(xt_sum_of_squares(x, y, 2 * x)), atan2(y, 1 + x)};""",
    "expm1": """  const double x = z.re, y = z.im;
  if (!isfinite(x) || (x == 0 && y == 0)) {
    const xt_complex<double> e = xt_cexp(z);
    return {e.re - 1, e.im};
  }
  const double half = sin(y / 2);
  return {expm1(x) * cos(y) - 2 * half * half, exp(x) * sin(y)};""",
    "sinh": """  const double x = z.re, y = z.im;
  if (y == 0) return {sinh(x), y};
  if (!isfinite(y)) {
    if (x == 0 || isinf(x)) return {x, y - y};
    return {y - y, y - y};
  }
  if (isinf(x)) return {x * cos(y), fabs(x) * sin(y)};
  if (fabs(x) < 700) return {sinh(x) * cos(y), cosh(x) * sin(y)};
  const double half = exp(0.5 * fabs(x));
  return {copysign(half, x) * 0.5 * cos(y) * half, half * 0.5 * sin(y) * half};""",
    "cosh": """  const double x = z.re, y = z.im;
  if (y == 0) return {cosh(x), copysign(0.0, x) * copysign(1.0, y)};
  if (!isfinite(y)) {
    if (isinf(x)) return {fabs(x), y - y};
    return {y - y, x == 0 ? x : y - y};
  }
  if (isinf(x)) return {fabs(x) * cos(y), x * sin(y)};
  if (x == 0) return {cos(y), x * sin(y)};
  if (fabs(x) < 700) return {cosh(x) * cos(y), sinh(x) * sin(y)};
  const double half = exp(0.5 * fabs(x));
  return {half * 0.5 * cos(y) * half, copysign(half, x) * 0.5 * sin(y) * half};""",
    "tanh": """  const double x = z.re, y = z.im;
  if (isinf(x)) return {copysign(1.0, x), copysign(0.0, y)};
  if (y == 0) return {tanh(x), y};
  if (!isfinite(y)) return {x == 0 ? x : y - y, y - y};
  if (fabs(x) > 22) return {copysign(1.0, x), 4 * sin(y) * cos(y) * exp(-2 * fabs(x))};
  const double t = tan(y), beta = 1 + t * t, s = sinh(x), rho = sqrt(1 + s * s);
  if (isinf(t)) return {rho / s, 1 / t};
  const double whole = 1 + beta * s * s;
  return {beta * rho * s / whole, t / whole};""",
    "sin": "  const xt_complex<double> w = xt_csinh(xt_complex<double>{-z.im, z.re});\n  return {w.im, -w.re};",
    "cos": "  return xt_ccosh(xt_complex<double>{-z.im, z.re});",
    "tan": "  const xt_complex<double> w = xt_ctanh(xt_complex<double>{-z.im, z.re});\n  return {w.im, -w.re};",
    "asinh": """  const double x = z.re, y = z.im, ax = fabs(x), ay = fabs(y);
  if (isnan(x)) return {isinf(y) ? ay : x, y == 0 ? y : x};
  if (isnan(y)) return {isinf(x) ? x : y, y};
  if (ax > 0x1p28 || ay > 0x1p28) {
    return {copysign(xt_log_size(x, y) + 0.6931471805599453, x), atan2(y, ax)};
  }
  const xt_complex<double> a = xt_csqrt(xt_complex<double>{1 - y, x}), b = xt_csqrt(xt_complex<double>{1 + y, -x});
  return {asinh(a.im * b.re - b.im * a.re), atan2(y, a.re * b.re - a.im * b.im)};""",
    "asin": "  const xt_complex<double> w = xt_casinh(xt_complex<double>{-z.im, z.re});\n  return {w.im, -w.re};",
    "acos": """  const double x = z.re, y = z.im;
  if (isnan(x)) return {x, isinf(y) ? -y : x};
  if (isnan(y)) return {x == 0 ? 1.5707963267948966 : y, isinf(x) ? x : y};
  if (fabs(x) > 0x1p28 || fabs(y) > 0x1p28) {
    return {atan2(fabs(y), x), copysign(xt_log_size(x, y) + 0.6931471805599453, -y)};
  }
  const xt_complex<double> a = xt_csqrt(xt_complex<double>{1 - x, -y}), b = xt_csqrt(xt_complex<double>{1 + x, y});
  return {2 * atan2(a.re, b.re), asinh(b.re * a.im - b.im * a.re)};""",
    "acosh": """  const xt_complex<double> w = xt_cacos(z);
  return {fabs(w.im), copysign(w.re, z.im)};""",
    "atanh": """  const double x = z.re, y = z.im, ax = fabs(x), ay = fabs(y), quarter = 1.5707963267948966;
  if (y == 0 && ax <= 1) return {atanh(x), y};
  if (x == 0) return {x, atan(y)};
  if (isinf(x) || isinf(y)) return {copysign(0.0, x), isnan(y) ? y : copysign(quarter, y)};
  if (isnan(x) || isnan(y)) return {x + y, x + y};
  if (ax > 0x1p28 || ay > 0x1p28) {
    const double size = hypot(x, y);
    return {x / size / size, copysign(quarter, y)};
  }
  if (ax == 1 && ay < 0x1p-27) return {copysign(0.5 * (0.6931471805599453 - log(ay)), x), 0.5 * atan2(2 * y, -ay * ay)};
  const double re = 0.25 * log1p(4 * ax / ((1 - ax) * (1 - ax) + y * y));
  return {copysign(re, x), 0.5 * atan2(2 * y, (1 - ax) * (1 + ax) - y * y)};""",
    "atan": "  const xt_complex<double> w = xt_catanh(xt_complex<double>{-z.im, z.re});\n  return {w.im, -w.re};",
}

_POWER = f"""__device__ {_D} xt_cpow({_D} a, {_D} b) {{
  if (b.re == 0 && b.im == 0) return {{1, 0}};
  if (a.re == 0 && a.im == 0) {{
    if (b.re > 0 && b.im == 0) return {{0, 0}};
    return {{xt_infinity - xt_infinity, xt_infinity - xt_infinity}};
  }}
  if (b.im == 0 && b.re == rint(b.re) && fabs(b.re) < 100) {{
    {_D} power = {{1, 0}}, square = a;
    for (int n = (int)fabs(b.re); n; n >>= 1, square = square * square) power = n & 1 ? power * square : power;
    return b.re < 0 ? {_D}{{1, 0}} / power : power;
  }}
  return xt_cexp(b * xt_clog(a));
}}
__device__ xt_complex<float> xt_cpow(xt_complex<float> a, xt_complex<float> b) {{
  const {_D} w = xt_cpow({_D}{{a.re, a.im}}, {_D}{{b.re, b.im}});
  return {{(float)w.re, (float)w.im}};
}}"""

_SIZE = """__device__ double xt_log_size(double x, double y) {
  const double ax = fabs(x), ay = fabs(y), large = fmax(ax, ay);
  if (isinf(x) || isinf(y)) return xt_infinity;
  if (isnan(x) || isnan(y)) return x + y;
  if (large == 0) return -xt_infinity;
  if (large > 0x1p1021) return log(hypot(x * 0.25, y * 0.25)) + 1.3862943611198906;
  if (large < 0x1p-960) return log(hypot(x * 0x1p60, y * 0x1p60)) - 41.58883083359672;
  if (large < 0.5 || large > 1.5) return log(hypot(x, y));
  return 0.5 * log1p(xt_sum_of_squares(x, y, -1));
}"""

_SQUARES = """__device__ double xt_sum_of_squares(double x, double y, double more) {
  const double a = x * x, b = y * y, rest = fma(x, x, -a) + fma(y, y, -b);
  const double s = more + a, v = s - more, t = s + b, w = t - s;
  return t + (((more - (s - v)) + (a - v)) + ((s - (t - w)) + (b - w)) + rest);
}"""


def _both(name: str, body: str) -> str:
    """Return a function of complex128, and the same of complex64."""
    return f"""__device__ {_D} xt_c{name}({_D} z) {{
{body}
}}
__device__ xt_complex<float> xt_c{name}(xt_complex<float> z) {{
  const {_D} w = xt_c{name}({_D}{{z.re, z.im}});
  return {{(float)w.re, (float)w.im}};
}}"""


# Every helper by its name, after those that it uses.
COMPLEX = {
    "xt_complex": _ARITHMETIC,
    "xt_infinity": "#define xt_infinity __longlong_as_double(0x7ff0000000000000LL)",
    "xt_csign": _SIGN,
    "xt_sum_of_squares": _SQUARES,
    "xt_log_size": _SIZE,
    **{f"xt_c{name}": _both(name, body) for name, body in _BODIES.items()},
    "xt_cpow": _POWER,
}
