"""exp, log, sin and the rest as straight vector code, for float32 and float64.

Every function takes Vectors of one floating dtype and returns that dtype; all lanes do the same work, so a
special value is put right by a select at the end. Polynomials in comments like `|x| < 0.35: 2^-60` are minimax
fits made for this file (Remez exchange in mpmath, lowest coefficients rounded first and the rest fitted again);
the number is the relative error they leave in the result before any rounding.

Names: n is an integer kept in a floating vector; (h, t) is the unevaluated sum of two, |t| <= ulp(h) / 2.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from fractions import Fraction
from functools import wraps
from math import inf, nan

from ...plan import costs
from .explog import (
    EXP,
    EXP_RANGE,
    LN2,
    LOG2_E,
    exp,
    exp2,
    exp_parts,
    expm1,
    log,
    log1p,
    log1p_pair,
    log2,
    log10,
    log_ends,
)
from .logaddexp import logaddexp
from .vector import (
    BIAS,
    DIGITS,
    F32,
    F64,
    INTEGERS,
    Pair,
    Vector,
    absolute,
    bits,
    choose,
    clamp,
    condensed,
    convert,
    copysign,
    fast_two_sum,
    fma,
    from_bits,
    gather,
    nearest,
    polynomial,
    power_of_two,
    quotient,
    rint,
    select,
    split,
    sqrt,
    square_root,
    two_product,
    two_sum,
    unless_nan,
)

# sin, cos, tan --------------------------------------------------------------------------------------------------
HALF_PI = {
    F32: (1.5707964, -4.371139e-08, -1.7151245e-15),
    F64: (1.5707963267948966, 6.123233995736766e-17, -1.4973849048591698e-33),
}
FAR = {F32: 2e5, F64: 1e9}
# sin r = r + r z P(z) and cos r = 1 - z/2 + z^2 Q(z), z = r^2, |r| < 0.787: 2^-28 and 2^-33; 2^-58 and 2^-64
SIN = {
    F32: (-0.16666655, 0.00833219, -0.00019518405),
    F64: (
        *(-0.16666666666666632, 0.008333333333322457, -0.0001984126982981572, 2.7557313688600082e-06),
        *(-2.505075690244389e-08, 1.5896694005795174e-10),
    ),
}
COS = {
    F32: (0.041666646, -0.0013887301, 2.4430661e-05),
    F64: (
        *(0.0416666666666666, -0.0013888888888874444, 2.480158728963823e-05, -2.7557314388089774e-07),
        *(2.087572714606436e-09, -1.1359806973053669e-11),
    ),
}
# The first 1220 bits of 2 / pi = c0 + c1 2^-53 + c2 2^-106 + ..., and the c, each of 53 bits and below 1.
TWO_OVER_PI_BITS = int(
    "A2F9836E4E441529FC2757D1F534DDC0DB6295993C439041FE5163ABDEBBC561B7246E3A424DD2E006492EEA09D1921CFE1DEB"
    "1CB129A73EE88235F52EBB4484E99C7026B45F7E413991D639835339F49C845F8BBDF9283B1FF897FFDE05980FEF2F118B5A0A"
    "6D1F6D367ECF27CB09B74F463F669E5FEA2D7527BAC7EBE5F17B3D0739F78A5292EA6BFB5FB11F8D5D0856033046FC7B6BABF",
    16,
)
TWO_OVER_PI = [(TWO_OVER_PI_BITS >> (1220 - 53 * k) & (2**53 - 1)) * 2.0**-53 for k in range(1, 24)]


def reduced(x: Vector, offset: int = 0) -> tuple[Vector, Vector, Vector]:
    """Return (r, t, q): x = r + t + n pi/2 with |r| <= pi/4, and q has n + offset in its low bits. x >= 0."""
    c1, c2, c3 = HALF_PI[x.dtype]

    def near() -> tuple[Vector, Vector, Vector]:
        n, q = nearest(x, 2 / math.pi, offset)
        first = fma(n, -c1, x)  # exact: a multiple of c1's last place, below 1
        h = n * c2
        r = first - h
        return r, fma(n, -c3, ((first - r) - h) - fma(n, c2, -h)), q

    def mixed() -> tuple[Vector, ...]:
        return tuple(select(far, a, b) for a, b in zip(far_reduced(x, offset), near(), strict=True))

    far = x > FAR[x.dtype]
    r, t, q = x.writer.branch_any(far, mixed, near)
    return r, t, q


def far_reduced(x: Vector, offset: int) -> tuple[Vector, Vector, Vector]:
    """Return the same as reduced(), for x above 2^(digits + 1) up to infinity: the method of Payne and Hanek.

    With x = y 2^(53 j) the products of y and c0 ... c(j - 1) are multiples of 4 and need not be formed.
    """
    digits, terms = (24, 3) if x.dtype == F32 else (53, 5)
    y = convert(x, F64)
    exponent = (bits(y) >> 52) - (1023 + digits + 1)
    j = (select(exponent > 0, exponent, 0) * 1237) >> 16  # exponent // 53
    y = from_bits(bits(y) - (j * 53 << 52), F64)
    table = x.writer.table("two_over_pi", TWO_OVER_PI, F64)
    products = [two_product(y * 2.0 ** (-53 * k), gather(table, j + k)) for k in range(terms)]
    parts = [fma(rint(part * 0.25), -4.0, part) for pair in products for part in pair][:-1]
    total = parts[0]
    for part in parts[1:5]:
        total = total + part
    n, q = nearest(total, 1.0, offset)
    high, low = condensed([parts[0] - n, *parts[1:]], 1 if x.dtype == F32 else 2)
    r, t = two_product(high, y.like(HALF_PI[F64][0]))
    r, t = fast_two_sum(r, t + fma(high, HALF_PI[F64][1], low * HALF_PI[F64][0]))
    r = r + (x - x if x.dtype == F64 else convert(x - x, F64))  # NaN for infinity
    if x.dtype == F32:
        whole = r + t
        r = convert(whole, F32)
        return r, convert(whole - convert(r, F64), F32), convert(q, INTEGERS[4])
    return r, t, q


def sine(r: Vector, t: Vector) -> Pair:
    """sin(r + t) for |r| <= pi/4, as two parts to be added."""
    z = r * r
    return r, fma(z * r, polynomial(z, SIN[r.dtype]), t)


def sin(x: Vector) -> Vector:
    """The sine: that of |x|, with the sign of x put back."""
    r, t, q = reduced(absolute(x))
    return quadrant(r, t, q, bits(x))


def cos(x: Vector) -> Vector:
    """The cosine: the sine a quarter of a turn later."""
    return quadrant(*reduced(absolute(x), 1), None)


def quadrant(r: Vector, t: Vector, q: Vector, sign: Vector | None) -> Vector:
    """sin(r + t + q pi/2), with its sign changed where the sign bit of `sign` is set."""
    h, t, low = *sine(r, t), t
    z = r * r
    near = fma(z, -0.5, 1.0)
    rest = fma(z, -0.5, 1.0 - near)
    cosine = near + fma(z * z, polynomial(z, COS[r.dtype]), fma(-r, low, rest))
    value = select((q & 1) != 0, cosine, h + t)
    width = 8 * r.dtype.itemsize
    turned = q << (width - 2)
    if sign is not None:
        turned = turned ^ sign
    return from_bits(bits(value) ^ (turned & -(1 << (width - 1))), r.dtype)


def tan(x: Vector) -> Vector:
    """The tangent: sine over cosine, or the other way round."""
    r, t, q = reduced(absolute(x))
    z, z_low = two_product(r, r)
    top = fast_two_sum(*sine(r, fma(t * z, -0.5, t)))
    bottom, low = fast_two_sum(x.like(1.0), z * -0.5)
    tail = fma(z * z, polynomial(z, COS[x.dtype]), fma(-r, t, z_low * -0.5))
    base = fast_two_sum(bottom, low + tail)
    odd = (q & 1) != 0
    h, t = quotient(choose(odd, base, top), choose(odd, top, base))
    width = 8 * x.dtype.itemsize
    return from_bits(bits(h + t) ^ (((q << (width - 1)) ^ bits(x)) & -(1 << (width - 1))), x.dtype)


# inverse trigonometric functions --------------------------------------------------------------------------------
# asin s = s + s z P(z), z = s^2 < 1/4: 2^-27.6 and 2^-55.9
ASIN = {
    F32: (0.16666754, 0.07495249, 0.04547666, 0.024148107, 0.042219866),
    F64: (
        *(0.16666666666665375, 0.0750000000034494, 0.04464285682186645, 0.030381959399655236, 0.022371751847618953),
        *(0.01735979683873213, 0.013884340200584346, 0.012175000326840548, 0.006503304798464574),
        *(0.019594846028513167, -0.016327369787165275, 0.03198208569292473),
    ),
}
# atan s = s + s z P(z), z = s^2, |s| <= sqrt(2) - 1: 2^-30.4 and 2^-59.4
ATAN = {
    F32: (-0.33333316, 0.19998531, -0.14244464, 0.10599715, -0.060913566),
    F64: (
        *(-0.333333333333332, 0.19999999999953766, -0.14285714280212075, 0.1111111078414502, -0.09090897775183351),
        *(0.07692060487971718, -0.06663106735539216, 0.058479058229653734, -0.05039365608700757),
        *(0.038065771202455884, -0.01790817556596682),
    ),
}


def arcsine(x: Vector) -> tuple[Vector, Vector, Vector]:
    """Return (s, t, far): asin |x| is s + t, or where far holds pi/2 - 2 (s + t) with s = sqrt((1 - |x|) / 2)."""
    a = absolute(x)
    far = a > 0.5
    root_of = fma(a, -0.5, 0.5)
    root, low = square_root((root_of, x.like(0.0)))
    z = select(far, root_of, a * a)
    s = select(far, root, a)
    return s, fma(s * z, polynomial(z, ASIN[x.dtype]), select(far, low, 0.0)), far


def asin(x: Vector) -> Vector:
    """The arc sine."""
    s, t, far = arcsine(x)
    h, low = fast_two_sum(x.like(HALF_PI[x.dtype][0]), s * -2.0)
    turned = h + (low + fma(t, -2.0, HALF_PI[x.dtype][1]))
    return copysign(select(far, turned, s + t), x)


def acos(x: Vector) -> Vector:
    """The arc cosine: pi/2 - asin x, or twice the arc sine of the root, from pi for negative x."""
    s, t, far = arcsine(x)
    negative = x < 0
    # base + factor (s + t), with the base 0, pi/2 or pi.
    half_pi, half_pi_low, _ = HALF_PI[x.dtype]
    signed = select(negative, x.like(1.0), -1.0)
    factor = select(far, signed * -2.0, signed)
    halves = select(far, select(negative, x.like(2.0), 0.0), 1.0)
    h, low = fast_two_sum(halves * half_pi, s * factor)
    return h + (low + fma(t, factor, halves * half_pi_low))


def atan(x: Vector) -> Vector:
    """The arc tangent."""
    return copysign(angle(absolute(x), x.like(1.0), None), x)


def atan2(x: Vector, y: Vector) -> Vector:
    """The angle of the point (y, x): the first argument is the height, as in C."""
    a, b = absolute(x), absolute(y)
    larger = a > b
    large, small = select(larger, a, b), select(larger, b, a)
    # Scaled so that no rest of a quotient is subnormal; a small number beside a large one is as good as 0.
    down, up = large > 2.0 ** (BIAS[x.dtype] - 61), small < 2.0 ** (30 - BIAS[x.dtype])
    factor = select(down, 2.0**-60, select(up, x.like(2.0**60), 1.0))
    return unless_nan(copysign(angle(a * factor, b * factor, bits(y) < 0), x), x, y)


def angle(a: Vector, b: Vector, left: Vector | None) -> Vector:
    """The angle of (b, a), neither negative, or of (-b, a) where left: k pi/4 +- atan s with s <= sqrt(2) - 1."""
    zero, one = (a.like(value) for value in (0.0, 1.0))
    swap = a > b
    top, bottom = select(swap, b, a), select(swap, a, b)
    middle = (top >= bottom * (math.sqrt(2) - 1)) & (top > 0)
    k = select(middle, one, zero)
    s, t = quotient(
        choose(middle, two_sum(top, -bottom), (top, zero)), choose(middle, two_sum(top, bottom), (bottom, zero))
    )
    # 0/0, x/inf and inf/inf are 0 here, with the k that has been found.
    plain = (top == 0) | (bottom == inf)
    s, t = select(plain, zero, s), select(plain, zero, t)
    k, sign = select(swap, 2.0 - k, k), select(swap, -one, one)
    if left is not None:
        k, sign = select(left, 4.0 - k, k), select(left, -sign, sign)
    z = s * s
    t = fma(s * z, polynomial(z, ATAN[a.dtype]), t)
    base, low = two_product(k, one.like(HALF_PI[a.dtype][0] / 2))
    h, e = fast_two_sum(base, s * sign)
    return h + (e + fma(t, sign, fma(k, HALF_PI[a.dtype][1] / 2, low)))


# hyperbolic functions -------------------------------------------------------------------------------------------
# tanh x = x + x z P(z) / Q(z), z = x^2, |x| < 0.63: 2^-27.7 and 2^-60.5
TANH = {
    F32: ((-0.3333330750465393, -0.0015411889180541039), (1.0, 0.4046109616756439)),
    F64: (
        (-0.3333333333333332, -0.020496600269619476, -0.0001990806807009889),
        (1.0, 0.46148980080884267, 0.023288400461147624, 0.000206429469358677),
    ),
}
# sinh x = x + x z P(z), z = x^2 < 0.26: 2^-32 and 2^-64
SINH = {
    F32: (0.16666667, 0.008333168, 0.00019968451),
    F64: (
        *(0.16666666666666666, 0.008333333333333892, 0.00019841269840155506, 2.7557320233443476e-06),
        *(2.505165540008648e-08, 1.615581684620163e-10),
    ),
}


def tanh(x: Vector) -> Vector:
    """1 - 2 / (e^2x + 1) unless |x| is small, else x plus a rational function: one division for both."""
    a = absolute(x)
    z = x * x
    small = a < 0.6
    p, q = TANH[x.dtype]
    top = select(small, (z * a) * polynomial(z, p), -2.0)
    capped = select(a > 20.0, 20.0, a)
    n, integer = nearest(capped, 2 * LOG2_E, BIAS[x.dtype])
    high, low = LN2[x.dtype]
    r = fma(n, -low, fma(n, -high, capped + capped))
    power = from_bits(integer << DIGITS[x.dtype], x.dtype)
    # The rounding errors of bottom = base + more and of the division: rest / bottom = -rest ratio / 2; none if small.
    base = select(small, polynomial(z, q), power + 1.0)
    more = select(small, 0.0, power * (r * polynomial(r, (1.0, *EXP[x.dtype]))))
    bottom = base + more
    ratio = top / bottom
    rest = fma(-ratio, more, fma(-ratio, base, top))
    return copysign(select(small, a, 1.0) + fma(rest * ratio, -0.5, ratio), x)


def half_exponentials(a: Vector) -> tuple[Pair, Pair, Vector]:
    """Return (p, q, integer): e^a / 2 = 2^(n - 1) p and e^-a / 2 = 2^(n - 1) q, with integer for power_of_two()."""
    bias, digits = BIAS[a.dtype], DIGITS[a.dtype]
    offset = 2 * bias - 1
    r, tail, n, integer = exp_parts(clamp(a, 0.0, EXP_RANGE[a.dtype][1] + 2), offset)
    h, t = fast_two_sum(a.like(1.0), r)
    h, t = fast_two_sum(h, t + tail)
    i, low = quotient((a.like(1.0), a.like(0.0)), (h, t))
    shrink = from_bits((bias + 2 * offset - (integer << 1)) << digits, a.dtype)  # 2^(-2 n)
    shrink = select(n < 40.0, shrink, 0.0)
    return (h, t), (i * shrink, low * shrink), integer


def sinh(x: Vector) -> Vector:
    """The hyperbolic sine."""
    a = absolute(x)
    z = x * x
    (p, p_low), (q, q_low), integer = half_exponentials(a)
    h, e = fast_two_sum(p, -q)
    large = power_of_two(h + (e + (p_low - q_low)), integer)
    return copysign(select(a < 0.5, fma(z * a, polynomial(z, SINH[x.dtype]), a), large), x)


def cosh(x: Vector) -> Vector:
    """The hyperbolic cosine."""
    (p, p_low), (q, q_low), integer = half_exponentials(absolute(x))
    h, e = fast_two_sum(p, q)
    return power_of_two(h + (e + (p_low + q_low)), integer)


def log_of_sum(f: Pair, a: Vector) -> Vector:
    """log(1 + f), or log(2 a) where a is so large that f may have overflowed."""
    large = a > 2.0 ** (DIGITS[a.dtype] + 4)
    h, t, u = log1p_pair(select(large, a, f[0]), select(large, 0.0, f[1]))
    return log_ends(u, h + select(large, t + math.log(2), t))


def asinh(x: Vector) -> Vector:
    """log(1 + f) with f = a + a^2 / (1 + sqrt(1 + a^2)) and a = |x|."""
    a = absolute(x)
    square, low = two_product(a, a)
    h, t = two_sum(x.like(1.0), square)
    root, root_low = square_root((h, t + low))
    d, e = fast_two_sum(root, x.like(1.0))
    q, q_low = quotient((square, low), (d, e + root_low))
    h, t = two_sum(a, q)
    return copysign(log_of_sum((h, t + q_low), a), x)


def acosh(x: Vector) -> Vector:
    """log(1 + f) with f = u + sqrt(u (x + 1)) and u = x - 1."""
    u, u_low = two_sum(x, x.like(-1.0))
    v, v_low = two_sum(x, x.like(1.0))
    square, low = two_product(u, v)
    root, root_low = square_root((square, low + fma(u, v_low, u_low * v)))
    h, t = two_sum(u, root)
    return select(x >= 1, log_of_sum((h, t + (root_low + u_low)), x), nan)


def atanh(x: Vector) -> Vector:
    """log(1 + f) / 2 with f = 2 a / (1 - a) and a = |x|."""
    a = absolute(x)
    f, low = quotient((a + a, x.like(0.0)), fast_two_sum(x.like(1.0), -a))
    h, t, u = log1p_pair(f, low)
    return copysign(log_ends(u, h + t) * 0.5, x)


# powers ---------------------------------------------------------------------------------------------------------
# log((1 + s) / (1 - s)) = 2 s + s z P(z), z = s^2, s <= 0.1716: 2^-45
LOG_SHORT = (0.666666666758842, 0.3999999559111558, 0.28572113048194103, 0.22176009994032206, 0.19586938147786098)
# The same with P(z) = 2/3 + z Q(z): 2^-73
LOG_LONG = (
    *(0.39999999999999974, 0.28571428571447044, 0.2222222221707012, 0.18181818927109256, 0.1538455302528117),
    *(0.13336464260154032, 0.11671860392254768, 0.12013459605963278),
)
# exp(r) = 1 + r + r^2 P(r), |r| < 0.3467: 2^-34
EXP_SHORT = (0.500000006775, 0.166666658608, 0.0416662944942, 0.00833349846085, 0.00139446992853, 0.000197897985465)
# A larger exponent is as good as infinite; bounded so that its product with the logarithm of 1 is not 0 * inf.
HUGE = 2.0**500


def pow_float(x: Vector, y: Vector) -> Vector:
    """x^y for float32 in float64, x > 0."""
    m, n = split(convert(x, F64), subnormal=False)
    s = (m - 1.0) / (m + 1.0)
    z = s * s
    logarithm = fma(n, math.log(2), s * fma(z, polynomial(z, LOG_SHORT), 2.0))
    product = clamp(clamp(convert(y, F64), -HUGE, HUGE) * logarithm, -200.0, 200.0)
    n, integer = nearest(product, LOG2_E, BIAS[F64])
    r = fma(n, -math.log(2), product)
    power = from_bits(integer << DIGITS[F64], F64)
    return convert(polynomial(r, (1.0, 1.0, *EXP_SHORT)) * power, F32)


def log_long(x: Vector) -> Pair:
    """log x in float64 with a relative error below 2^-64, x > 0."""
    m, n = split(x)
    one = x.like(1.0)
    s, s_low = fast_two_sum(*quotient((m - 1.0, one.like(0.0)), fast_two_sum(one, m)))
    z, z_low = two_product(s, s)
    z_low = fma(s + s, s_low, z_low)
    p, p_low = fast_two_sum(one.like(2 / 3), z * polynomial(z, LOG_LONG))
    p_low = p_low + float(Fraction(2, 3) - Fraction(2 / 3))
    c, c_low = two_product(z, p)
    c_low = c_low + fma(z, p_low, z_low * p)
    w, w_low = two_product(s, c)
    w_low = w_low + fma(s, c_low, s_low * c)
    h, e = fast_two_sum(s + s, w)
    t = e + fma(s_low, 2.0, w_low)
    high, low = LN2[F64]
    h, e = fast_two_sum(n * high, h)
    return fast_two_sum(h, e + fma(n, low, t))


def pow_double(x: Vector, y: Vector) -> Vector:
    """x^y for float64, x > 0."""
    h, t = log_long(x)
    y = clamp(y, -HUGE, HUGE)
    product, low = two_product(y, h)
    capped = clamp(product, *EXP_RANGE[F64])
    low = select(product == capped, fma(y, t, low), 0.0)
    r, tail, _, integer = exp_parts(capped, 2 * BIAS[F64], low)
    h, t = fast_two_sum(x.like(1.0), r)
    return power_of_two(h + (t + tail), integer)


def pow(x: Vector, y: Vector) -> Vector:
    """x to the power y, with the special values of C."""
    a = absolute(x)
    value = pow_float(a, y) if x.dtype == F32 else pow_double(a, y)
    zero = a == 0
    value = select(zero | (a == inf), select(zero ^ (y > 0), x.like(inf), 0.0), value)
    half = y * 0.5
    whole = rint(y) == y
    odd = whole & (rint(half) != half)
    value = select((x < 0) & (x > -inf) & ~whole, nan, value)
    sign = select(odd, bits(x) & -(1 << (8 * x.dtype.itemsize - 1)), 0)
    value = from_bits(bits(value) | sign, x.dtype)
    value = select(y == 2, x * x, unless_nan(value, x, y))
    return select((y == 0) | (x == 1), 1.0, value)


def hypot(x: Vector, y: Vector) -> Vector:
    """sqrt(x^2 + y^2), infinite if either is."""
    a, b = absolute(x), absolute(y)
    if x.dtype == F32:
        u, v = convert(a, F64), convert(b, F64)
        value = convert(sqrt(fma(u, u, v * v)), F32)
    else:
        large, small = select(a > b, a, b), select(a > b, b, a)
        factor = select(large > 2.0**500, 2.0**-600, select(large < 2.0**-500, large.like(2.0**600), 1.0))
        h, t = two_product(large * factor, large * factor)
        square, low = two_product(small * factor, small * factor)
        h, e = fast_two_sum(h, square)
        root, rest = square_root((h, e + (t + low)))
        value = (root + rest) / factor
    return select((a == inf) | (b == inf), inf, value)


# erf ------------------------------------------------------------------------------------------------------------
# erf x = x + x P(x^2), |x| < 0.9 and 1: 2^-26 and 2^-55.9
ERF_NEAR = {
    F32: (0.12837915, -0.37612504, 0.11281922, -0.026770493, 0.004998958, -0.0006020793),
    F64: (
        *(0.12837916709551256, -0.37612638903183343, 0.1128379167093695, -0.026866170641959036, 0.005223977596732122),
        *(-0.0008548325484509495, 0.00012055280465522668, -1.4924464554341382e-05, 1.6444128656154546e-06),
        *(-1.6183737295178492e-07, 1.3615136460570693e-08, -7.603858987489061e-10),
    ),
}
# log(1 - erf x) = P(x - c); its first coefficient is a sum of two, of which the larger has few bits, as that of ln 2:
# 2^-28 for c = 1 and 0.74 < x < 3.95; 2^-56 for c = 2 and 0.98 < x < 5.95
ERF_FAR = {
    F32: (-1.849609375, 3.8650669e-06, -2.6389673, -0.8431066, -0.04156669, 0.010026016, -0.0019378498, 0.00021703281),
    F64: (
        *(-5.3649412646191195, 2.48334686148155e-12, -4.418160805994421, -0.9237508418239881, -0.01646511813721868),
        *(0.003570756348865923, -0.0007323993785345457, 0.00013530932386328608, -2.070647216721454e-05),
        *(1.9522061451547316e-06, 2.0373567425037833e-07, -1.7319912575131107e-07, 5.76845508642671e-08),
        *(-1.3967861003140353e-08, 2.6154572053301078e-09, -2.6698637915075675e-10, -7.183112596902122e-11),
        *(3.869094529900436e-11, -5.293765468398053e-12),
    ),
}


def erf(x: Vector) -> Vector:
    """The error function."""
    a = absolute(x)
    bound, centre, end = (0.78, 1.0, 3.94) if x.dtype == F32 else (1.0, 2.0, 5.94)
    first, more, *others = ERF_FAR[x.dtype]
    u = select(a > end, end, a) - centre
    v = polynomial(u, others)
    # 1 - e^(u v + first + more) = 1 - 2^n (1 + r P(r)): the exponential itself is never rounded.
    n, integer = nearest(fma(u, v, first), LOG2_E, BIAS[x.dtype])
    high, low = LN2[x.dtype]
    r = fma(u, v, fma(n, -high, first)) + fma(n, -low, more)
    power = from_bits(integer << DIGITS[x.dtype], x.dtype)
    far = fma(-power, r * polynomial(r, (1.0, *EXP[x.dtype])), 1.0 - power)
    near = fma(a, polynomial(x * x, ERF_NEAR[x.dtype]), a)
    return copysign(select(a < bound, near, far), x)


def uncontracted(function: Callable[..., Vector]) -> Callable[..., Vector]:
    """Make a function write without fast-math flags: pairs depend on exact rounding errors."""

    @wraps(function)
    def write(*arguments: Vector) -> Vector:
        writer = arguments[0].writer
        flags, writer.flags = writer.flags, ""
        result = function(*arguments)
        writer.flags = flags
        return result

    return write


_CIRCULAR = (sin, cos, tan, asin, acos, atan, atan2, sinh, cosh, tanh, asinh, acosh, atanh)
_OTHERS = (exp, exp2, expm1, log, log1p, log2, log10, pow, hypot, logaddexp, erf)
FUNCTIONS = {function.__name__: uncontracted(function) for function in (*_OTHERS, *_CIRCULAR)}
costs.FUNCTIONS.update(FUNCTIONS)
