"""exp, log, sin and the rest as straight vector code, for float32 and float64.

Every function takes Vectors of one floating dtype and returns that dtype; all lanes do the same work, so a
special value is put right by a select at the end. Polynomials in comments like `|x| < 0.35: 2^-60` are minimax
fits made for this file (Remez exchange in mpmath, lowest coefficients rounded first and the rest fitted again);
the number is the relative error they leave in the result before any rounding.

Names: n is an integer kept in a floating vector; (h, t) is the unevaluated sum of two, |t| <= ulp(h) / 2.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import cache

from .vector import F32, F64, INTEGERS, Vector, absolute, bits, convert, copysign, fma, from_bits, gather, rint, select

INF = math.inf
NAN = math.nan

# Adding 1.5 * 2**(digits of the fraction) rounds to an integer and leaves it in the low bits.
DIGITS = {F32: 23, F64: 52}
BIAS = {F32: 127, F64: 1023}


def magic(x: Vector) -> float:
    """The number that rounds to an integer by being added."""
    return 1.5 * 2.0 ** DIGITS[x.dtype]


def polynomial(x: Vector, coefficients: Sequence[float]) -> Vector:
    """c0 + c1 x + c2 x^2 + ... by Horner's rule."""
    value: Vector = x.writer.splat(coefficients[-1], x.dtype)
    for coefficient in reversed(coefficients[:-1]):
        value = fma(value, x, coefficient)
    return value


def clamp(x: Vector, low: float, high: float) -> Vector:
    """x within bounds; NaN stays."""
    x = select(x < low, low, x)
    return select(x > high, high, x)


def nearest(x: Vector, factor: float, offset: int = 0) -> tuple[Vector, Vector]:
    """Return n = x * factor rounded to an integer, and bits whose low half is n + offset."""
    shift = magic(x) + offset
    t = fma(x, factor, shift)
    return t - shift, bits(t)


# exp ------------------------------------------------------------------------------------------------------------

LOG2_E = 1 / math.log(2)
# ln 2 = hi + lo: hi has so few bits that n * hi is exact, lo is the rest rounded.
LN2 = {F32: (0.693145751953125, 1.428606765330187e-06), F64: (0.6931471803691238, 1.9082149292705877e-10)}
# exp(r) = 1 + r + r^2 P(r), |r| < 0.3467: 2^-28 and 2^-60
EXP = {
    F32: (0.4999999403953552, 0.16666516661643982, 0.04166810214519501, 0.008369200862944126, 0.001383906346745789),
    F64: (
        *(0.5, 0.16666666666666688, 0.041666666666666824, 0.00833333333331392, 0.0013888888888778253),
        *(0.0001984126990318895, 2.4801587556130047e-05, 2.7557229068082677e-06, 2.7557075989824967e-07),
        *(2.511367561959072e-08, 2.0971498370900477e-09),
    ),
}
# Beyond these exp is 0 or infinite.
EXP_RANGE = {F32: (-104.0, 89.0), F64: (-746.0, 710.0)}


def exp(x: Vector) -> Vector:
    """e^x = 2^n e^r with |r| <= ln(2) / 2."""
    x = clamp(x, *EXP_RANGE[x.dtype])
    n, integer = nearest(x, LOG2_E, 2 * BIAS[x.dtype])
    high, low = LN2[x.dtype]
    r = fma(n, -low, fma(n, -high, x))
    return power_of_two(polynomial(r, (1.0, 1.0, *EXP[x.dtype])), integer)


def power_of_two(x: Vector, integer: Vector) -> Vector:
    """x * 2^n, rounded once; integer holds n + 2 * BIAS in its low half."""
    half = integer >> 1
    digits = DIGITS[x.dtype]
    return x * from_bits(half << digits, x.dtype) * from_bits((integer - half) << digits, x.dtype)


# log ------------------------------------------------------------------------------------------------------------

ROOT_HALF = {F32: 0x3F3504F3, F64: 0x3FE6A09E667F3BCD}  # the bits of sqrt(1/2)
TINY = {F32: 2.0**-126, F64: 2.0**-1022}
# log(1 + f) = f - f^2/2 + f^3 P(f), sqrt(1/2) <= 1 + f <= sqrt(2): 2^-27
LOG_F32 = (
    *(0.3333333134651184, -0.250008225440979, 0.20001260936260223, -0.16623325645923615),
    *(0.14200922846794128, -0.13159622251987457, 0.1276741772890091, -0.0764351636171341),
)
# log((1 + s) / (1 - s)) = 2 s + s z P(z), z = s^2, the same range: 2^-60
LOG_F64 = (
    *(0.6666666666666735, 0.3999999999940873, 0.28571428743916294, 0.2222219839819239),
    *(0.18183574265975105, 0.15313776326041809, 0.1479888013966504),
)


def split(x: Vector) -> tuple[Vector, Vector]:
    """Return (m, n) with x = m 2^n and sqrt(1/2) <= m < sqrt(2), for positive x, subnormal ones too."""
    digits, half = DIGITS[x.dtype], ROOT_HALF[x.dtype]
    tiny = x < TINY[x.dtype]
    integer = bits(select(tiny, x * 2.0**digits, x)) - half
    m = from_bits((integer & ((1 << digits) - 1)) + half, x.dtype)
    # n without a conversion: its bits on top of those of the magic number.
    shift = select(tiny, x.writer.splat(magic(x) + digits, x.dtype), magic(x))
    n = from_bits((integer >> digits) + bits_of_magic(x), x.dtype) - shift
    return m, n


def bits_of_magic(x: Vector) -> int:
    """The bits of magic(x) as an integer."""
    return (BIAS[x.dtype] + DIGITS[x.dtype]) << DIGITS[x.dtype] | 1 << (DIGITS[x.dtype] - 1)


def log_ends(x: Vector, value: Vector) -> Vector:
    """The value of a logarithm where 0 < x < infinity, what it has to be elsewhere."""
    value = select(x > 0, value, select(x == 0, x.writer.splat(-INF, x.dtype), NAN))
    return select(x == INF, x, value)


def log(x: Vector) -> Vector:
    """The natural logarithm."""
    m, n = split(x)
    f = m - 1.0
    high, low = LN2[x.dtype]
    if x.dtype == F32:
        z = f * f
        tail = fma(z, -0.5, fma(n, low, (z * f) * polynomial(f, LOG_F32)))
    else:
        s = f / (f + 2.0)
        z = s * s
        half = f * f * 0.5  # log(1 + f) = f - half + s (half + z P(z))
        tail = fma(s, fma(z, polynomial(z, LOG_F64), half), n * low) - half
    return log_ends(x, fma(n, high, f + tail))


# sin, cos, tan --------------------------------------------------------------------------------------------------

HALF_PI = {
    F32: (1.5707963705062866, -4.371138828673793e-08, -1.7151245100058819e-15),
    F64: (1.5707963267948966, 6.123233995736766e-17, -1.4973849048591698e-33),
}
FAR = {F32: 2e5, F64: 1e9}
# sin r = r + r z P(z) and cos r = 1 - z/2 + z^2 Q(z), z = r^2, |r| < 0.787: 2^-28 and 2^-33; 2^-58 and 2^-64
SIN = {
    F32: (-0.16666655242443085, 0.008332190103828907, -0.00019518405315466225),
    F64: (
        *(-0.16666666666666632, 0.008333333333322457, -0.0001984126982981572),
        *(2.7557313688600082e-06, -2.505075690244389e-08, 1.5896694005795174e-10),
    ),
}
COS = {
    F32: (0.04166664555668831, -0.00138873013202101, 2.4430661142105237e-05),
    F64: (
        *(0.0416666666666666, -0.0013888888888874444, 2.480158728963823e-05),
        *(-2.7557314388089774e-07, 2.087572714606436e-09, -1.1359806973053669e-11),
    ),
}


def two_sum(a: Vector, b: Vector) -> tuple[Vector, Vector]:
    """a + b as (h, t), exactly."""
    h = a + b
    c = h - a
    return h, (a - (h - c)) + (b - c)


def fast_two_sum(a: Vector, b: Vector | float) -> tuple[Vector, Vector]:
    """a + b as (h, t), exactly if |a| >= |b| or a = 0."""
    h = a + b
    return h, b - (h - a)


def two_product(a: Vector, b: Vector) -> tuple[Vector, Vector]:
    """a * b as (h, t), exactly."""
    h = a * b
    return h, fma(a, b, -h)


@cache
def two_over_pi() -> tuple[float, ...]:
    """2 / pi = c0 + c1 2^-53 + c2 2^-106 + ..., each c of 53 bits and below 1."""
    one = 1 << 1300

    def arctangent(n: int) -> int:
        """atan(1 / n) in units of 2^-1300."""
        terms = ((-1) ** k * one // (n ** (2 * k + 1) * (2 * k + 1)) for k in range(600))
        return sum(terms)

    pi = 16 * arctangent(5) - 4 * arctangent(239)
    quotient = 2 * one * one // pi
    return tuple((quotient >> (1300 - 53 * k) & (2**53 - 1)) * 2.0**-53 for k in range(1, 24))


def reduced(x: Vector, offset: int = 0) -> tuple[Vector, Vector, Vector]:
    """Return (r, t, q): x = r + t + n pi/2 with |r| <= pi/4, and q has n + offset in its low bits. x >= 0."""
    c1, c2, c3 = HALF_PI[x.dtype]

    def near() -> tuple[Vector, Vector, Vector]:
        n, q = nearest(x, 2 / math.pi, offset)
        first = fma(n, -c1, x)  # exact: a multiple of c1's last place, below 1
        h = n * c2
        r = first - h
        return r, fma(n, -c3, ((first - r) - h) - fma(n, c2, -h)), q

    def far() -> tuple[Vector, ...]:
        pairs = zip(far_reduced(x, offset), near(), strict=True)
        return tuple(select(distant, a, b) for a, b in pairs)

    distant = x > FAR[x.dtype]
    r, t, q = x.writer.branch_any(distant, far, near)
    return r, t, q


def far_reduced(x: Vector, offset: int) -> tuple[Vector, Vector, Vector]:
    """What reduced() returns, for x above 2^(digits + 1) up to infinity: the method of Payne and Hanek.

    With x = y 2^(53 j) the products of y and c0 ... c(j - 1) are multiples of 4 and need not be formed.
    """
    digits, terms = (24, 3) if x.dtype == F32 else (53, 5)
    y = convert(x, F64)
    exponent = (bits(y) >> 52) - (1023 + digits + 1)
    j = (select(exponent > 0, exponent, 0) * 1237) >> 16  # exponent // 53
    y = from_bits(bits(y) - (j * 53 << 52), F64)
    table = x.writer.table("two_over_pi", two_over_pi(), F64)
    products = [two_product(y * 2.0 ** (-53 * k), gather(table, j + k)) for k in range(terms)]
    parts = [fma(rint(part * 0.25), -4.0, part) for pair in products for part in pair][:-1]
    total = parts[0]
    for part in parts[1:5]:
        total = total + part
    n, q = nearest(total, 1.0, offset)
    high, low = condensed([parts[0] - n, *parts[1:]], 1 if x.dtype == F32 else 2)
    r, t = two_product(high, x.writer.splat(HALF_PI[F64][0], F64))
    t = t + fma(high, HALF_PI[F64][1], low * HALF_PI[F64][0])
    r = r + (x - x if x.dtype == F64 else convert(x - x, F64))  # NaN for infinity
    if x.dtype == F32:
        whole = r + t
        r = convert(whole, F32)
        return r, convert(whole - convert(r, F64), F32), convert(q, INTEGERS[4])
    return r, t, q


def condensed(parts: list[Vector], passes: int) -> tuple[Vector, Vector]:
    """The sum of numbers as (h, t), nearly exactly."""
    for _ in range(passes):
        for k in range(len(parts) - 1, 0, -1):
            parts[k - 1], parts[k] = two_sum(parts[k - 1], parts[k])
    low = parts[-1]
    for part in reversed(parts[1:-1]):
        low = low + part
    return fast_two_sum(parts[0], low)


def sine(r: Vector, t: Vector) -> Vector:
    """sin(r + t) for |r| <= pi/4."""
    z = r * r
    return r + fma(z * r, polynomial(z, SIN[r.dtype]), t)


def cosine(r: Vector, t: Vector) -> Vector:
    """cos(r + t) for |r| <= pi/4."""
    z = r * r
    return fma(z, fma(z, polynomial(z, COS[r.dtype]), -0.5), 1.0)


def sin(x: Vector) -> Vector:
    """The sine: that of |x|, and the sign put back."""
    r, t, q = reduced(absolute(x))
    return quadrant(r, t, q, bits(x))


def cos(x: Vector) -> Vector:
    """The cosine: the sine a quarter of a turn later."""
    return quadrant(*reduced(absolute(x), 1), None)


def quadrant(r: Vector, t: Vector, q: Vector, sign: Vector | None) -> Vector:
    """sin(r + t + q pi/2), with its sign changed where that of another is set."""
    value = select((q & 1) != 0, cosine(r, t), sine(r, t))
    width = 8 * r.dtype.itemsize
    turned = q << (width - 2)
    if sign is not None:
        turned = turned ^ sign
    return from_bits(bits(value) ^ (turned & -(1 << (width - 1))), r.dtype)


# hyperbolic functions -------------------------------------------------------------------------------------------

# tanh x = x + x z P(z) / Q(z), z = x^2, |x| < 0.63: 2^-27.7 and 2^-60.5
TANH = {
    F32: ((-0.3333330750465393, -0.0015411889180541039), (1.0, 0.4046109616756439)),
    F64: (
        (-0.3333333333333332, -0.020496600269619476, -0.0001990806807009889),
        (1.0, 0.46148980080884267, 0.023288400461147624, 0.000206429469358677),
    ),
}


def tanh(x: Vector) -> Vector:
    """1 - 2 / (e^2x + 1) for |x| not small; x and a rational function else: one division for both."""
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
    bottom = select(small, polynomial(z, q), fma(polynomial(r, (1.0, 1.0, *EXP[x.dtype])), power, 1.0))
    return copysign(select(small, a, 1.0) + top / bottom, x)


FUNCTIONS: dict[str, Callable[..., Vector]] = {"exp": exp, "log": log, "sin": sin, "cos": cos, "tanh": tanh}
