// What CUDA kernels are made of. A kernel's text takes the blocks it needs: blocks are parted by empty lines, and come
// after those that they use.

typedef signed char i8;
typedef short i16;
typedef int i32;
typedef long long i64;
typedef unsigned char u8;
typedef unsigned short u16;
typedef unsigned int u32;
typedef unsigned long long u64;

// Lengths and offsets, of 64 bits where WIDE is 1. Division by a run-time length is a product and a shift for x below
// 2^31.
#if WIDE
typedef u64 index;
typedef i64 offset;
struct divisor { u64 n; };
__device__ index over(index x, divisor d) { return x / d.n; }
#else
typedef u32 index;
typedef i32 offset;
struct divisor { u32 n, factor, shift; };
__device__ index over(index x, divisor d) { return (__umulhi(x, d.factor) + x) >> d.shift; }
#endif

// Where an operand is: at its address, or where there is a table, so many bytes after one of the table's addresses.
__device__ char* xt_place(char* const* table, char* p) {
  if (table) p = table[(u64)p & 0xffff] + ((i64)p >> 16);
  __builtin_assume(__isGlobal(p));
  return p;
}

// A scalar: as it was given, or where scalars are told in memory, at this byte of them.
template <typename T> __device__ T xt_told(const char* told, const T& given, int at) {
  return told ? *(const T*)(told + at) : given;
}

template <typename T, int N> struct alignas(sizeof(T) * N) vector { T v[N]; };

// Neighbours of a row from element i on, as many as there are: side by side, each a step apart, or all the same.
template <typename T, int N> __device__ vector<T, N> xt_packed(const char* row, index i, index length) {
  const vector<T, N>* const at = (const vector<T, N>*)(row + (offset)i * (offset)sizeof(T));
  if (N == 1 || i + N <= length) return *at;
  vector<T, N> x;
  for (int k = 0; k < N; ++k) x.v[k] = i + k < length ? at->v[k] : T();
  return x;
}

template <typename T, int N> __device__ vector<T, N> xt_apart(const char* row, index i, index length, offset step) {
  vector<T, N> x;
  for (int k = 0; k < N; ++k) x.v[k] = N == 1 || i + k < length ? *(const T*)(row + (offset)(i + k) * step) : T();
  return x;
}

template <typename T, int N> __device__ vector<T, N> xt_same(const char* row) {
  vector<T, N> x;
  for (int k = 0; k < N; ++k) x.v[k] = *(const T*)row;
  return x;
}

template <typename T, int N> __device__ void xt_pack(char* row, index i, index length, const vector<T, N>& x) {
  vector<T, N>* const at = (vector<T, N>*)(row + (offset)i * (offset)sizeof(T));
  if (N == 1 || i + N <= length) *at = x;
  else for (int k = 0; k < N; ++k) if (i + k < length) at->v[k] = x.v[k];
}

template <typename T, int N> __device__ void xt_spread(char* row, index i, index length, offset step, const vector<T, N>& x) {
  for (int k = 0; k < N; ++k) if (N == 1 || i + k < length) *(T*)(row + (offset)(i + k) * step) = x.v[k];
}

// The value of the thread so many lanes further on.
template <typename T> __device__ T xt_down(T x, int lanes) {
  const int words = (sizeof(T) + 3) / 4;
  union Words { T whole; int part[words]; __device__ Words() {} } a, b;
  a.whole = x;
  for (int w = 0; w < words; ++w) b.part[w] = __shfl_down_sync(0xffffffffu, a.part[w], lanes);
  return b.whole;
}

// The value of the thread so many lanes before; of the first ones their own.
template <typename T> __device__ T xt_up(T x, int lanes) {
  const int words = (sizeof(T) + 3) / 4;
  union Words { T whole; int part[words]; __device__ Words() {} } a, b;
  a.whole = x;
  for (int w = 0; w < words; ++w) b.part[w] = __shfl_up_sync(0xffffffffu, a.part[w], lanes);
  return b.whole;
}

// The value of the first of so many threads.
template <typename T> __device__ T xt_first(T x, int width) {
  const int words = (sizeof(T) + 3) / 4;
  union Words { T whole; int part[words]; __device__ Words() {} } a;
  a.whole = x;
  for (int w = 0; w < words; ++w) a.part[w] = __shfl_sync(0xffffffffu, a.part[w], 0, width);
  return a.whole;
}

// What a thread has in several places, as one, in a fixed tree; F::of joins two.
template <typename F, typename T, int N> __device__ T xt_tree(T (&x)[N]) {
  #pragma unroll
  for (int half = N / 2; half > 0; half /= 2) {
    #pragma unroll
    for (int k = 0; k < half; ++k) x[k] = F::of(x[k], x[k + half]);
  }
  return x[0];
}

// What the 2^shift threads of a row have; every one gets the result. Who joins what depends on the shift alone.
template <typename F, typename T> __device__ T xt_across(T x, index shift, T* warps) {
  const int thread = threadIdx.x;
  for (int d = shift > 5 ? 16 : (1 << shift) >> 1; d > 0; d >>= 1) x = F::of(x, xt_down(x, d));
  if (shift <= 5) return xt_first(x, 1 << shift);
  if (thread % 32 == 0) warps[thread / 32] = x;
  __syncthreads();
  const T* const own = warps + ((thread >> shift) << (shift - 5));
  x = own[0];
  for (int w = 1; w < 1 << (shift - 5); ++w) x = F::of(x, own[w]);
  return x;
}

// What the threads of a column have, of which so many stand side by side.
template <typename F, typename T> __device__ T xt_along(T x, int side, T* rows) {
  const int thread = threadIdx.x;
  rows[thread] = x;
  __syncthreads();
  for (int d = blockDim.x / 2; d >= side; d >>= 1) {
    if (thread < d) rows[thread] = F::of(rows[thread], rows[thread + d]);
    __syncthreads();
  }
  return rows[thread % side];
}

// An element and its place, -1 for none. Of two, one that is NaN is better, else the one that wins, else the earlier.
template <typename T> struct xt_best { T value; long long at; };
struct xt_more { template <typename T> __device__ bool operator()(T x, T y) const { return x > y; } };
struct xt_less { template <typename T> __device__ bool operator()(T x, T y) const { return x < y; } };
template <typename T, typename F> __device__ xt_best<T> xt_better(xt_best<T> a, xt_best<T> b, F wins) {
  if (a.at < 0 || b.at < 0) return a.at < 0 ? b : a;
  const bool nan = a.value != a.value, other = b.value != b.value;
  if (nan != other) return nan ? a : b;
  if (!nan && wins(a.value, b.value)) return a;
  if (!nan && wins(b.value, a.value)) return b;
  return a.at < b.at ? a : b;
}

// Floats as integers, as x86-64 converts them: what does not fit becomes the lowest.
template <typename R> __device__ int xt_to_int32(R x) {
  return x >= (R)-2147483648.0 && x < (R)2147483648.0 ? (int)x : (int)0x80000000u;
}

template <typename R> __device__ long long xt_to_int64(R x) {
  return x >= (R)-9223372036854775808.0 && x < (R)9223372036854775808.0 ? (long long)x : (long long)(1ULL << 63);
}

template <typename R> __device__ unsigned long long xt_to_uint64(R x) {
  const R half = (R)9223372036854775808.0;
  return x >= half ? (unsigned long long)xt_to_int64(x - half) ^ (1ULL << 63) : (unsigned long long)xt_to_int64(x);
}

// float16 is computed as float.
__device__ float xt_from_half(unsigned short x) {
  float wide;
  asm("cvt.f32.f16 %0, %1;" : "=f"(wide) : "h"(x));
  return wide;
}

__device__ unsigned short xt_to_half(float x) {
  unsigned short narrow;
  asm("cvt.rn.f16.f32 %0, %1;" : "=h"(narrow) : "f"(x));
  return narrow;
}

__device__ float xt_round_half(float x) { return xt_from_half(xt_to_half(x)); }

__device__ float xt_narrow_half(double x) {
  unsigned short narrow;
  asm("cvt.rn.f16.f64 %0, %1;" : "=h"(narrow) : "d"(x));
  return xt_from_half(narrow);
}

// -1, 0 or 1 as a is less than, equal to or greater than b, both with their full values.
__device__ int xt_order_mixed(long long a, unsigned long long b) {
  return a < 0 || (unsigned long long)a < b ? -1 : (unsigned long long)a > b;
}
__device__ int xt_order_mixed(unsigned long long a, long long b) { return -xt_order_mixed(b, a); }

// Whole numbers: by 0 it is 0, and the lowest by -1 wraps.
template <typename T, typename U> __device__ T xt_floor_divide(T a, T b) {
  if (b == 0) return 0;
  if ((T)-1 < 0 && b == (T)-1) return (T)((U)0 - (U)a);
  const T whole = a / b;
  return (a < 0) != (b < 0) && a % b != 0 ? whole - 1 : whole;
}

template <typename T> __device__ T xt_remainder(T a, T b) {
  if (b == 0 || ((T)-1 < 0 && b == (T)-1)) return 0;
  const T rest = a % b;
  return rest != 0 && (rest < 0) != (b < 0) ? rest + b : rest;
}

// The quotient rounded down and its rest, as NumPy's divmod has them.
__device__ float xt_fmod(float a, float b) { return fmodf(a, b); }
__device__ double xt_fmod(double a, double b) { return fmod(a, b); }
template <typename R> __device__ __noinline__ R xt_division(R a, R b, R& rest) {
  rest = xt_fmod(a, b);
  if (b == 0) return a / b;
  R whole = (a - rest) / b;
  if (rest != 0) {
    if ((b < 0) != (rest < 0)) { rest += b; whole -= 1; }
  } else {
    rest = copysign((R)0, b);
  }
  if (whole == 0) return copysign((R)0, a / b);
  const R low = floor(whole);
  return whole - low > (R)0.5 ? low + 1 : low;
}

// With infinities, the standard's values.
template <typename R> __device__ R xt_floor_divide_real(R a, R b) {
  if (isinf(a) || isinf(b)) return floor(a / b);
  R rest;
  return xt_division(a, b, rest);
}

template <typename R> __device__ R xt_remainder_real(R a, R b) {
  R rest;
  xt_division(a, b, rest);
  return rest;
}

// NumPy's arithmetic on processors with a fused multiply-add.
template <typename R> struct xt_complex { R re, im; };
template <typename R> __device__ xt_complex<R> operator+(xt_complex<R> a, xt_complex<R> b) {
  return {a.re + b.re, a.im + b.im};
}
template <typename R> __device__ xt_complex<R> operator-(xt_complex<R> a, xt_complex<R> b) {
  return {a.re - b.re, a.im - b.im};
}
template <typename R> __device__ xt_complex<R> operator*(xt_complex<R> a, xt_complex<R> b) {
  return {fma(a.re, b.re, -(a.im * b.im)), fma(a.re, b.im, a.im * b.re)};
}
template <typename R> __device__ xt_complex<R> operator/(xt_complex<R> a, xt_complex<R> b) {
  const R re = fabs(b.re), im = fabs(b.im);
  if (re >= im) {
    if (re == 0 && im == 0) return {a.re / re, a.im / re};
    const R ratio = b.im / b.re, scale = (R)1 / (b.re + b.im * ratio);
    return {(a.re + a.im * ratio) * scale, (a.im - a.re * ratio) * scale};
  }
  const R ratio = b.re / b.im, scale = (R)1 / (b.im + b.re * ratio);
  return {(a.re * ratio + a.im) * scale, (a.im * ratio - a.re) * scale};
}

// CUDA's functions as calls: code takes each once, however often it is asked for.
__device__ __noinline__ double xt_exp(double x) { return exp(x); }

__device__ __noinline__ double xt_log(double x) { return log(x); }

__device__ __noinline__ double xt_sin(double x) { return sin(x); }

__device__ __noinline__ double xt_cos(double x) { return cos(x); }

__device__ __noinline__ double xt_sinh(double x) { return sinh(x); }

__device__ __noinline__ double xt_cosh(double x) { return cosh(x); }

__device__ __noinline__ double xt_tanh(double x) { return tanh(x); }

__device__ __noinline__ double xt_tan(double x) { return tan(x); }

__device__ __noinline__ double xt_atan(double x) { return atan(x); }

__device__ __noinline__ double xt_asinh(double x) { return asinh(x); }

__device__ __noinline__ double xt_atanh(double x) { return atanh(x); }

__device__ __noinline__ double xt_log1p(double x) { return log1p(x); }

__device__ __noinline__ double xt_expm1(double x) { return expm1(x); }

__device__ __noinline__ double xt_asin(double x) { return asin(x); }

__device__ __noinline__ double xt_acos(double x) { return acos(x); }

__device__ __noinline__ double xt_acosh(double x) { return acosh(x); }

__device__ __noinline__ double xt_pow(double x, double y) { return pow(x, y); }

__device__ __noinline__ double xt_atan2(double x, double y) { return atan2(x, y); }

__device__ __noinline__ double xt_hypot(double x, double y) { return hypot(x, y); }

#define xt_infinity __longlong_as_double(0x7ff0000000000000LL)

// Functions are computed in double, and rounded for complex64. Inverse ones follow Kahan's branch cuts.
#define xt_rounded(name) __device__ xt_complex<float> name(xt_complex<float> z) { \
  const xt_complex<double> w = name(xt_complex<double>{z.re, z.im}); \
  return {(float)w.re, (float)w.im}; \
}

template <typename R> __device__ xt_complex<R> xt_creciprocal(xt_complex<R> z) {
  if (fabs(z.im) <= fabs(z.re)) {
    const R ratio = z.im / z.re, size = z.re + z.im * ratio;
    return {1 / size, -ratio / size};
  }
  const R ratio = z.re / z.im, size = z.re * ratio + z.im;
  return {ratio / size, -1 / size};
}

template <typename R> __device__ xt_complex<R> xt_csign(xt_complex<R> z) {
  const double x = fabs((double)z.re), y = fabs((double)z.im), most = fmax(x, y);
  const R size = (R)(fmin(x, y) < 0x1p-28 * most ? most : xt_hypot(x, y));  // CUDA's overflows early
  if (isnan(size)) return {size, size};
  if (isinf(size)) {
    if (isinf(z.re) && isinf(z.im)) return {z.re - z.re, z.re - z.re};
    if (isinf(z.re)) return {z.re > 0 ? (R)1 : (R)-1, 0};
    return {0, z.im > 0 ? (R)1 : (R)-1};
  }
  if (size == 0) return {0, 0};
  return {z.re / size, z.im / size};
}

// more + x^2 + y^2 in nearly twice the digits.
__device__ double xt_sum_of_squares(double x, double y, double more) {
  const double a = x * x, b = y * y, rest = fma(x, x, -a) + fma(y, y, -b);
  const double s = more + a, v = s - more, t = s + b, w = t - s;
  return t + (((more - (s - v)) + (a - v)) + ((s - (t - w)) + (b - w)) + rest);
}

// log |x + iy|.
__device__ __noinline__ double xt_log_size(double x, double y) {
  const double ax = fabs(x), ay = fabs(y), large = fmax(ax, ay);
  if (isinf(x) || isinf(y)) return xt_infinity;
  if (isnan(x) || isnan(y)) return x + y;
  if (large == 0) return -xt_infinity;
  if (large > 0x1p1021) return xt_log(xt_hypot(x * 0.25, y * 0.25)) + 1.3862943611198906;
  if (large < 0x1p-960) return xt_log(xt_hypot(x * 0x1p60, y * 0x1p60)) - 41.58883083359672;
  if (large < 0.5 || large > 1.5) return xt_log(xt_hypot(x, y));
  return 0.5 * xt_log1p(xt_sum_of_squares(x, y, -1));
}

__device__ __noinline__ xt_complex<double> xt_csqrt(xt_complex<double> z) {
  double x = z.re, y = z.im, scale = 1;
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
  const double t = sqrt((fabs(x) + xt_hypot(x, y)) * 0.5);
  if (x >= 0) return {scale * t, scale * (y / (2 * t))};
  return {scale * (fabs(y) / (2 * t)), scale * copysign(t, y)};
}
xt_rounded(xt_csqrt)

__device__ __noinline__ xt_complex<double> xt_cexp(xt_complex<double> z) {
  const double x = z.re, y = z.im;
  if (y == 0) return {xt_exp(x), y};
  if (x == 0) return {xt_cos(y), xt_sin(y)};
  if (!isfinite(y)) {
    if (x == -xt_infinity) return {0, 0};
    return {isinf(x) ? x : y - y, y - y};
  }
  if (isfinite(x) && x > 700) {
    const double half = xt_exp(0.5 * x);
    return {half * xt_cos(y) * half, half * xt_sin(y) * half};
  }
  const double size = xt_exp(x);
  return {size * xt_cos(y), size * xt_sin(y)};
}
xt_rounded(xt_cexp)

__device__ __noinline__ xt_complex<double> xt_clog(xt_complex<double> z) {
  return {xt_log_size(z.re, z.im), xt_atan2(z.im, z.re)};
}
xt_rounded(xt_clog)

__device__ __noinline__ xt_complex<double> xt_clog2(xt_complex<double> z) {
  return {xt_log_size(z.re, z.im) * 1.4426950408889634, xt_atan2(z.im, z.re) * 1.4426950408889634};
}
xt_rounded(xt_clog2)

__device__ __noinline__ xt_complex<double> xt_clog10(xt_complex<double> z) {
  return {xt_log_size(z.re, z.im) * 0.4342944819032518, xt_atan2(z.im, z.re) * 0.4342944819032518};
}
xt_rounded(xt_clog10)

__device__ __noinline__ xt_complex<double> xt_clog1p(xt_complex<double> z) {
  const double x = z.re, y = z.im;
  if (!(fabs(x) < 0.5 && fabs(y) < 0.5)) return {xt_log_size(1 + x, y), xt_atan2(y, 1 + x)};
  return {0.5 * xt_log1p(xt_sum_of_squares(x, y, 2 * x)), xt_atan2(y, 1 + x)};
}
xt_rounded(xt_clog1p)

__device__ __noinline__ xt_complex<double> xt_cexpm1(xt_complex<double> z) {
  const double x = z.re, y = z.im;
  if (!isfinite(x) || (x == 0 && y == 0)) {
    const xt_complex<double> e = xt_cexp(z);
    return {e.re - 1, e.im};
  }
  const double half = xt_sin(y / 2);
  return {xt_expm1(x) * xt_cos(y) - 2 * half * half, xt_exp(x) * xt_sin(y)};
}
xt_rounded(xt_cexpm1)

__device__ __noinline__ xt_complex<double> xt_csinh(xt_complex<double> z) {
  const double x = z.re, y = z.im;
  if (y == 0) return {xt_sinh(x), y};
  if (!isfinite(y)) {
    if (x == 0 || isinf(x)) return {x, y - y};
    return {y - y, y - y};
  }
  if (isinf(x)) return {x * xt_cos(y), fabs(x) * xt_sin(y)};
  if (fabs(x) < 700) return {xt_sinh(x) * xt_cos(y), xt_cosh(x) * xt_sin(y)};
  const double half = xt_exp(0.5 * fabs(x));
  return {copysign(half, x) * 0.5 * xt_cos(y) * half, half * 0.5 * xt_sin(y) * half};
}
xt_rounded(xt_csinh)

__device__ __noinline__ xt_complex<double> xt_ccosh(xt_complex<double> z) {
  const double x = z.re, y = z.im;
  if (y == 0) return {xt_cosh(x), copysign(0.0, x) * copysign(1.0, y)};
  if (!isfinite(y)) {
    if (isinf(x)) return {fabs(x), y - y};
    return {y - y, x == 0 ? x : y - y};
  }
  if (isinf(x)) return {fabs(x) * xt_cos(y), x * xt_sin(y)};
  if (x == 0) return {xt_cos(y), x * xt_sin(y)};
  if (fabs(x) < 700) return {xt_cosh(x) * xt_cos(y), xt_sinh(x) * xt_sin(y)};
  const double half = xt_exp(0.5 * fabs(x));
  return {half * 0.5 * xt_cos(y) * half, copysign(half, x) * 0.5 * xt_sin(y) * half};
}
xt_rounded(xt_ccosh)

__device__ __noinline__ xt_complex<double> xt_ctanh(xt_complex<double> z) {
  const double x = z.re, y = z.im;
  if (isinf(x)) return {copysign(1.0, x), copysign(0.0, y)};
  if (y == 0) return {xt_tanh(x), y};
  if (!isfinite(y)) return {x == 0 ? x : y - y, y - y};
  if (fabs(x) > 22) return {copysign(1.0, x), 4 * xt_sin(y) * xt_cos(y) * xt_exp(-2 * fabs(x))};
  const double t = xt_tan(y), beta = 1 + t * t, s = xt_sinh(x), rho = sqrt(1 + s * s);
  if (isinf(t)) return {rho / s, 1 / t};
  const double whole = 1 + beta * s * s;
  return {beta * rho * s / whole, t / whole};
}
xt_rounded(xt_ctanh)

__device__ __noinline__ xt_complex<double> xt_csin(xt_complex<double> z) {
  const xt_complex<double> w = xt_csinh(xt_complex<double>{-z.im, z.re});
  return {w.im, -w.re};
}
xt_rounded(xt_csin)

__device__ __noinline__ xt_complex<double> xt_ccos(xt_complex<double> z) {
  return xt_ccosh(xt_complex<double>{-z.im, z.re});
}
xt_rounded(xt_ccos)

__device__ __noinline__ xt_complex<double> xt_ctan(xt_complex<double> z) {
  if (isinf(z.im)) return {copysign(0.0, isfinite(z.re) ? xt_sin(z.re) * xt_cos(z.re) : z.re), copysign(1.0, z.im)};
  const xt_complex<double> w = xt_ctanh(xt_complex<double>{-z.im, z.re});
  return {w.im, -w.re};
}
xt_rounded(xt_ctan)

__device__ __noinline__ xt_complex<double> xt_casinh(xt_complex<double> z) {
  const double x = z.re, y = z.im, ax = fabs(x), ay = fabs(y);
  if (isnan(x)) return {isinf(y) ? ay : x, y == 0 ? y : x};
  if (isnan(y)) return {isinf(x) ? x : y, y};
  if (ax > 0x1p28 || ay > 0x1p28) {
    return {copysign(xt_log_size(x, y) + 0.6931471805599453, x), xt_atan2(y, ax)};
  }
  const xt_complex<double> a = xt_csqrt(xt_complex<double>{1 - y, x}), b = xt_csqrt(xt_complex<double>{1 + y, -x});
  return {xt_asinh(a.im * b.re - b.im * a.re), xt_atan2(y, a.re * b.re - a.im * b.im)};
}
xt_rounded(xt_casinh)

__device__ __noinline__ xt_complex<double> xt_casin(xt_complex<double> z) {
  const xt_complex<double> w = xt_casinh(xt_complex<double>{-z.im, z.re});
  return {w.im, -w.re};
}
xt_rounded(xt_casin)

__device__ __noinline__ xt_complex<double> xt_cacos(xt_complex<double> z) {
  const double x = z.re, y = z.im;
  if (isnan(x)) return {x, isinf(y) ? -y : x};
  if (isnan(y)) return {x == 0 ? 1.5707963267948966 : y, isinf(x) ? x : y};
  if (fabs(x) > 0x1p28 || fabs(y) > 0x1p28) {
    return {xt_atan2(fabs(y), x), copysign(xt_log_size(x, y) + 0.6931471805599453, -y)};
  }
  const xt_complex<double> a = xt_csqrt(xt_complex<double>{1 - x, -y}), b = xt_csqrt(xt_complex<double>{1 + x, y});
  return {2 * xt_atan2(a.re, b.re), xt_asinh(b.re * a.im - b.im * a.re)};
}
xt_rounded(xt_cacos)

__device__ __noinline__ xt_complex<double> xt_cacosh(xt_complex<double> z) {
  const xt_complex<double> w = xt_cacos(z);
  return {fabs(w.im), copysign(w.re, z.im)};
}
xt_rounded(xt_cacosh)

__device__ __noinline__ xt_complex<double> xt_catanh(xt_complex<double> z) {
  const double x = z.re, y = z.im, ax = fabs(x), ay = fabs(y), quarter = 1.5707963267948966;
  if (y == 0 && ax <= 1) return {xt_atanh(x), y};
  if (x == 0) return {x, xt_atan(y)};
  if (isinf(x) || isinf(y)) return {copysign(0.0, x), isnan(y) ? y : copysign(quarter, y)};
  if (isnan(x) || isnan(y)) return {x + y, x + y};
  if (ax > 0x1p28 || ay > 0x1p28) {
    const double half = xt_hypot(0.5 * x, 0.5 * y);
    return {0.25 * x / half / half, copysign(quarter, y)};
  }
  if (ax == 1 && ay < 0x1p-27) return {copysign(0.5 * (0.6931471805599453 - xt_log(ay)), x), 0.5 * xt_atan2(2 * y, -ay * ay)};
  const double re = 0.25 * xt_log1p(4 * ax / ((1 - ax) * (1 - ax) + y * y));
  return {copysign(re, x), 0.5 * xt_atan2(2 * y, (1 - ax) * (1 + ax) - y * y)};
}
xt_rounded(xt_catanh)

__device__ __noinline__ xt_complex<double> xt_catan(xt_complex<double> z) {
  const xt_complex<double> w = xt_catanh(xt_complex<double>{-z.im, z.re});
  return {w.im, -w.re};
}
xt_rounded(xt_catan)

__device__ __noinline__ xt_complex<double> xt_cpow(xt_complex<double> a, xt_complex<double> b) {
  if (b.re == 0 && b.im == 0) return {1, 0};
  if (a.re == 0 && a.im == 0) {
    if (b.re > 0) return {0, 0};
    return {xt_infinity - xt_infinity, xt_infinity - xt_infinity};
  }
  if (b.im == 0 && b.re == rint(b.re) && fabs(b.re) < 100) {
    xt_complex<double> power = {1, 0}, square = a;
    for (int n = (int)fabs(b.re); n; n >>= 1, square = square * square) power = n & 1 ? power * square : power;
    return b.re < 0 ? xt_complex<double>{1, 0} / power : power;
  }
  return xt_cexp(b * xt_clog(a));
}
__device__ xt_complex<float> xt_cpow(xt_complex<float> a, xt_complex<float> b) {
  const xt_complex<double> w = xt_cpow(xt_complex<double>{a.re, a.im}, xt_complex<double>{b.re, b.im});
  return {(float)w.re, (float)w.im};
}
