"""The interpreter of PTX (tests/ptx) on small kernels compiled by NVRTC, against NumPy, mpmath and Python's integers.

Everything here is emulated: no GPU takes part.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Callable
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import ptx
import pytest
from ptx import build, exact

mpmath = pytest.importorskip("mpmath")
if build.missing():
    pytest.skip(build.missing(), allow_module_level=True)

SOURCE = (Path(__file__).parent / "ptx" / "kernels.cu").read_text(encoding="utf-8")
GRID, BLOCK = 3, 96  # fewer threads than elements, and no whole number of them
Array = np.ndarray[Any, Any]


@pytest.fixture(scope="module", params=build.ARCHITECTURES)
def module(request: Any) -> ptx.Module:
    """The kernels of kernels.cu for one architecture."""
    return ptx.Module(build.compiled(SOURCE, request.param, ("--fmad=false", "--device-int128")), most_steps=20_000)


def run(module: ptx.Module, name: str, *arrays: Array, count: int | None = None) -> None:
    """Launch a kernel that takes arrays and their length."""
    module.run(name, GRID, BLOCK, [*arrays, np.int32(arrays[0].size if count is None else count)], memory=arrays)


def same(found: Array, expected: Array) -> Array:
    """Where two arrays agree: every bit, but any NaN for any other."""
    assert found.dtype == expected.dtype
    bits = f"u{found.dtype.itemsize}"
    alike = np.ascontiguousarray(found).view(bits) == np.ascontiguousarray(expected).view(bits)
    return alike | (found != found) & (expected != expected)


def check(found: Array, expected: Array, *operands: Array) -> None:
    """Compare rows of results."""
    wrong = ~same(found, expected)
    if wrong.any():
        row, column = (int(number) for number in np.argwhere(wrong)[0])
        given = [operand[column] for operand in operands]
        pytest.fail(f"row {row}, of {given}: {found[row, column]!r}, not {expected[row, column]!r}")


def integers(dtype: Any, count: int, seed: int) -> Array:
    """Return integers of all magnitudes, with those where something happens first."""
    limits = np.iinfo(dtype)
    rng = np.random.default_rng(seed)
    drawn = rng.integers(limits.min, limits.max, count, dtype, endpoint=True)
    drawn >>= rng.integers(0, 8 * limits.dtype.itemsize, count).astype(dtype)
    edges = [limits.min, limits.max, 0, 1, limits.max - 1, limits.min + 1, 2, 3]
    drawn[: 2 * len(edges)] = rng.permutation(np.array(edges * 2, dtype))
    return drawn


SPECIAL = [0.0, -0.0, 1.0, -1.0, math.inf, -math.inf, math.nan, 0.5, 2.5, -3.5, 1e-310, 5e-324, 1.7e308, 1e-40, 3e38]


def floats(dtype: Any, count: int, seed: int) -> Array:
    """Return floats of all magnitudes, close ones, and special values."""
    rng = np.random.default_rng(seed)
    limits = np.finfo(dtype)
    wide = rng.standard_normal(count) * 2.0 ** rng.integers(limits.minexp - limits.nmant, limits.maxexp, count)
    near = rng.standard_normal(count) * 2.0 ** rng.integers(-3, 4, count)
    drawn = np.where(rng.random(count) < 0.4, wide, near)
    drawn[: 2 * len(SPECIAL)] = rng.permutation(SPECIAL * 2)
    with np.errstate(all="ignore"):
        return drawn.astype(dtype)


# Rounding, against rational numbers


def rounded(value: Fraction, dtype: Any, mode: str) -> float:
    """Return a number that is not 0, rounded to a dtype, by bisection on its floats."""
    limits = np.finfo(dtype)
    size = abs(value)
    exponent = size.numerator.bit_length() - size.denominator.bit_length()
    exponent += size >= Fraction(2) ** exponent
    unit = Fraction(2) ** (max(exponent, limits.minexp + 1) - 1 - limits.nmant)
    whole, rest = divmod(size, unit)
    up = {"rz": False, "rm": value < 0, "rp": value > 0, "rn": rest * 2 > unit or (rest * 2 == unit and whole % 2 == 1)}
    whole += rest > 0 and up[mode]
    largest = Fraction(float(limits.max))
    found = float(whole * unit) if whole * unit <= largest else math.inf
    if found == math.inf and mode != "rn" and not up[mode]:
        found = float(limits.max)
    return found if value > 0 else -found


def combination(a: Any, b: Any, c: Any, dtype: Any, mode: str) -> float:
    """Return a * b + c rounded once; what is not finite, or 0, NumPy knows."""
    if all(map(math.isfinite, (a, b, c))):
        value = Fraction(float(a)) * Fraction(float(b)) + Fraction(float(c))
        if value != 0:
            return rounded(value, dtype, mode)
        zero = float(a) * float(b) + float(c)
        minus = mode == "rm" and not (c == 0 and math.copysign(1, c) == math.copysign(1, a) * math.copysign(1, b))
        return -0.0 if minus else zero
    if math.isfinite(a) and math.isfinite(b):
        return float(c)
    return float(a * b + c)


@pytest.mark.parametrize("mode", ["rn", "rz", "rm", "rp"])
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_rounding(dtype: str, mode: str) -> None:
    """fma, + and * are rounded once in every direction."""
    a, b, c = (floats(dtype, 1200, seed) for seed in (1, 2, 3))
    with np.errstate(all="ignore"):
        c[300:600] = -(a * b)[300:600]  # what cancels
        c[600:700] = (a * b)[600:700] * np.array(2.0**-60, dtype)
        one, zero = np.ones_like(a), np.copysign(np.zeros_like(a), np.sign(a) * np.sign(b))
        fma, add, mul = {
            "float32": (exact.fma32, exact.add32, exact.mul32),
            "float64": (exact.fma64, exact.add64, exact.mul64),
        }[dtype]
        pairs = [(fma(a, b, c, mode), (a, b, c)), (add(a, c, mode), (a, one, c)), (mul(a, b, mode), (a, b, zero))]
        for number, (found, operands) in enumerate(pairs):
            expected = [combination(*each, dtype, mode) for each in zip(*operands, strict=True)]
            if number == 2:
                expected = [math.copysign(e, x * y) if e == 0 else e for e, x, y in zip(expected, a, b, strict=True)]
            check(found[None], np.array([expected]).astype(dtype), *operands)


# Arithmetic


def integer_rows(a: Array, b: Array, by: Array) -> list[Array]:
    """What the kernel integers_* computes, by NumPy."""
    dtype = a.dtype
    s = (by & (8 * dtype.itemsize - 1)).astype(dtype)
    d = np.where(
        (b == 0)
        | (b == dtype.type(-1 % 2**64) if dtype.kind == "u" and dtype.itemsize == 8 else b == _minus_one(dtype)),
        1,
        b,
    ).astype(dtype)
    quotient, rest = _divided(a, d)
    rows = [
        a + b,
        a - b,
        a * b,
        quotient,
        rest,
        a & b,
        a | b,
        a ^ b,
        ~a,
        -a,
        a << s,
        a >> s,
        np.minimum(a, b),
        np.maximum(a, b),
    ]
    return [*rows, *(x.astype(dtype) for x in (a == b, a != b, a < b, a <= b, a > b, a >= b))]


def _minus_one(dtype: Any) -> Any:
    return np.array(-1).astype(dtype)


def _divided(a: Array, d: Array) -> tuple[Array, Array]:
    """Return quotient and remainder as C has them, by Python's integers."""
    quotients = [abs(int(x)) // abs(int(y)) * (-1 if (x < 0) != (y < 0) else 1) for x, y in zip(a, d, strict=True)]
    found = np.array(quotients, object)
    rest = np.array([int(x) - q * int(y) for x, q, y in zip(a, quotients, d, strict=True)], object)
    return found.astype(a.dtype), rest.astype(a.dtype)


@pytest.mark.parametrize("dtype", ["int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64"])
def test_integers(module: ptx.Module, dtype: str) -> None:
    """All operators of C on all types."""
    a, b = integers(dtype, 500, 1), integers(dtype, 500, 2)
    by = integers("uint8", 500, 3)
    found = np.zeros((20, 500), dtype)
    run(module, f"integers_{dtype}", a, b, by, found, count=500)
    with np.errstate(all="ignore"):
        check(found, np.array(integer_rows(a, b, by)), a, b, by)


def signed(value: int, width: int = 64) -> int:
    """Return the lowest bits of a number as a signed one."""
    return (value + (1 << width - 1)) % (1 << width) - (1 << width - 1)


def field(c: int, start: int, length: int, is_signed: bool) -> int:
    """What bfe does."""
    taken = (c if is_signed else c % 2**32) >> start & ((1 << length) - 1)
    top = min(start + length - 1, 31)
    if is_signed and length and c >> top & 1:
        taken |= -1 << (top - start + 1)
    return signed(taken, 32) if is_signed else taken


def permuted(c: int, d: int, choice: int) -> int:
    """What prmt does."""
    found = 0
    for place in range(4):
        pick = choice >> 4 * place & 7
        found |= (((d % 2**32) << 32 | c % 2**32) >> 8 * pick & 255) << 8 * place
    return found


def bit_row(a: int, b: int) -> list[int]:
    """What the kernel `bits` computes, by Python's integers."""
    c, d, top = signed(a, 32), signed(b, 32), signed(a >> 32, 32)
    ua, ub, uc, ud, ut = a % 2**64, b % 2**64, c % 2**32, d % 2**32, top % 2**32
    wide = (ua * ub + a) % 2**128
    less = (wide - b) % 2**128
    start, length, by = d & 31, d >> 8 & 31, d & 63
    mask = ((1 << length) - 1) << start & 0xFFFFFFFF
    bits = [(x >> k & 1, y >> k & 1, z >> k & 1) for k in range(32) for x, y, z in [(uc, ud, ut)]]
    lop = sum((0xB1 >> (x << 2 | y << 1 | z) & 1) << k for k, (x, y, z) in enumerate(bits))
    both, clamped = ud << 32 | uc, min(by, 32)
    first = (~c if c < 0 else c).bit_length() - 1
    return [
        *(wide >> 64, less, less >> 64, a * b >> 64, ua * ub >> 64, c * d >> 32, uc * ud >> 32),
        *(ua.bit_count(), uc.bit_count(), 64 - ua.bit_length(), 32 - uc.bit_length()),
        *(int(f"{ua:064b}"[::-1], 2), int(f"{uc:032b}"[::-1], 2)),
        *((ua & -ua).bit_length(), (both << (c & 31)) >> 32 & 0xFFFFFFFF, both >> (c & 31) & 0xFFFFFFFF),
        *((both << clamped) >> 32 & 0xFFFFFFFF, both >> clamped & 0xFFFFFFFF),
        permuted(c, d, a >> 20),
        field(c, start, length, False),
        field(c, start, length, True),
        (ud & ~mask) | (uc << start & mask),
        lop,
        first % 2**32,
        (abs(c - d) + 7) % 2**32,
        a << (b & 127) if b & 127 < 64 else 0,
        a >> (b & 63),
    ]


def test_bits(module: ptx.Module) -> None:
    """Wide products, chains of carries, fields, counts and funnel shifts."""
    a, b = integers("int64", 400, 4), integers("int64", 400, 5)
    b[50:200] = np.random.default_rng(6).integers(0, 2**13, 150)
    found = np.zeros((27, 400), np.int64)
    run(module, "bits", a, b, found, count=400)
    expected = np.array([[signed(value) for value in bit_row(int(x), int(y))] for x, y in zip(a, b, strict=True)]).T
    check(found, expected, a, b)


def extremum(pick: Any, a: Array, b: Array) -> Array:
    """fmin or fmax, with -0 less than 0."""
    found = pick(a, b)
    zeros = (a == 0) & (b == 0)
    negative = np.signbit(a) | np.signbit(b) if pick is np.fmin else np.signbit(a) & np.signbit(b)
    return np.where(zeros, np.where(negative, -0.0, 0.0).astype(a.dtype), found)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_floats(module: ptx.Module, dtype: str) -> None:
    """Arithmetic in all directions, and rounding to integers."""
    a, b, c = (floats(dtype, 600, seed) for seed in (7, 8, 9))
    found = np.zeros((24, 600), dtype)
    run(module, f"floats_{dtype}", a, b, c, found, count=600)
    one = np.ones_like(a)
    with np.errstate(all="ignore"):
        rows = [a + b, a - b, a * b, a / b, np.sqrt(a), -a, np.abs(a), np.floor(a), np.ceil(a), np.trunc(a), np.rint(a)]
        rows += [extremum(np.fmin, a, b), extremum(np.fmax, a, b), np.copysign(a, b)]
        zero = np.copysign(0, a * b).astype(dtype)
        triples = [(a, one, b), (a, b, zero), (a, b, c)]
        for number, operands in enumerate(triples):
            for mode in ("rn", "rz", "rm", "rp")[number < 2 :]:
                rows.append(
                    np.array([combination(*each, dtype, mode) for each in zip(*operands, strict=True)]).astype(dtype)
                )
        for row in rows[17:20]:  # of an exact product that is 0, in every direction
            row[:] = np.where(row == 0, np.copysign(row, a * b), row)
    check(found, np.array(rows), a, b, c)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_comparisons(module: ptx.Module, dtype: str) -> None:
    """Ordered and unordered comparisons, and kinds of numbers."""
    a, b = floats(dtype, 400, 10), floats(dtype, 400, 11)
    b[100:150] = a[100:150]
    found = np.zeros((14, 400), np.uint8)
    run(module, f"compare_{dtype}", a, b, found, count=400)
    rows = [a == b, a != b, a < b, a <= b, a > b, a >= b, ~(a < b), ~(a <= b), ~(a > b), ~(a >= b)]
    rows += [np.isnan(a), np.isinf(a), np.isfinite(a), np.signbit(a)]
    check(found, np.array(rows).astype(np.uint8), a, b)


# Conversions


def saturated(value: float, width: int, is_signed: bool, rounding: Callable[[Any], Any], nan: int) -> int:
    """Convert as cvt does."""
    least, most = (-(1 << width - 1), (1 << width - 1) - 1) if is_signed else (0, (1 << width) - 1)
    if math.isnan(value):
        return nan
    if math.isinf(value):
        return most if value > 0 else least
    return min(max(int(rounding(value)), least), most)


def test_floats_to_integers(module: ptx.Module) -> None:
    """cvt rounds in four ways and saturates."""
    x = floats("float64", 500, 12)
    x[40:300] = np.random.default_rng(13).uniform(-300, 300, 260)
    x[300:310] = [2.0**31 - 1, 2.0**31, -(2.0**31), 2.0**63, -(2.0**63), 2.0**64, 2.0**32, 127.5, -128.5, 255.5]
    narrow, wide = np.zeros((8, 500), np.int32), np.zeros((4, 500), np.int64)
    run(module, "to_integers", x, narrow, wide, count=500)
    with np.errstate(all="ignore"):
        f = x.astype(np.float32).astype(np.float64)
        halves = x.astype(np.float32).astype(np.float16).view(np.uint16)
    least = 1 << 63
    rules = [(x, 32, True, math.trunc, 1 << 31), (x, 32, False, round, 1 << 31), (f, 32, True, math.floor, 0)]
    rules += [(f, 32, False, math.ceil, 0), (f, 16, True, math.trunc, 0)]
    rows: list[Any] = [[signed(saturated(v, *rule), 32) for v in of] for of, *rule in rules]
    for least_, most in ((-128, 127), (0, 255)):
        rows.append([min(max(saturated(v, 32, True, round, 0), least_), most) for v in f])
    check(narrow[:7], np.array(rows, np.int32), x)
    is_nan = np.isnan(f)
    assert (narrow[7] == halves)[~is_nan].all()
    rules = [
        (x, 64, True, math.trunc, least),
        (x, 64, False, round, least),
        (f, 64, True, math.floor, least),
        (f, 64, False, math.ceil, least),
    ]
    check(wide, np.array([[signed(saturated(v, *rule)) for v in of] for of, *rule in rules]), x)


def test_to_floats(module: ptx.Module) -> None:
    """Integers and doubles to floats, in all directions."""
    a, d = integers("int64", 500, 14), floats("float64", 500, 15)
    single, full = np.zeros((13, 500), np.float32), np.zeros((6, 500), np.float64)
    run(module, "to_floats", a, d, single, full, count=500)
    u, i = a.view(np.uint64), a.astype(np.int32)

    def all_rounded(values: Any, dtype: Any, mode: str) -> Array:
        return np.array([combination_of(v, dtype, mode) for v in values]).astype(dtype)

    def combination_of(value: Any, dtype: Any, mode: str) -> float:
        if isinstance(value, np.floating) and (not np.isfinite(value) or value == 0):
            return float(value)
        exactly = Fraction(float(value)) if isinstance(value, np.floating) else Fraction(int(value))
        return rounded(exactly, dtype, mode) if exactly else 0.0

    f4, f8 = np.float32, np.float64
    with np.errstate(all="ignore"):
        clamped = np.where(d.astype(f4) > 0, np.minimum(d.astype(f4), f4(1)), f4(0))
    pairs = [(a, "rn"), (u, "rn"), (a, "rz"), (a, "rm"), (u, "rp"), (i, "rn"), (i, "rz"), (a.astype(np.int16), "rn")]
    pairs += [(d, mode) for mode in ("rn", "rz", "rm", "rp")]
    check(single, np.array([*(all_rounded(values, f4, mode) for values, mode in pairs), clamped]), a, d)
    with np.errstate(all="ignore"):
        rows = [
            *(all_rounded(values, f8, mode) for values, mode in [(a, "rn"), (u, "rn"), (a, "rz"), (u, "rp")]),
            i.astype(f8),
            d.astype(f4).astype(f8),
        ]
    check(full, np.array(rows), a, d)


def test_halves(module: ptx.Module) -> None:
    """Every float16 becomes the float32 that it is."""
    x = np.arange(65536, dtype=np.uint16)
    found = np.zeros(x.size, np.float32)
    run(module, "halves", x, found)
    assert same(found, x.view(np.float16).astype(np.float32)).all()


# Functions


UNARY = ["sin", "cos", "tan", "asin", "acos", "atan", "sinh", "cosh", "tanh", "asinh", "acosh", "atanh", "exp", "exp2"]
UNARY += ["expm1", "log", "log2", "log10", "log1p", "cbrt", "erf", "erfc", "tgamma", "lgamma", "rsqrt"]
BINARY = ["pow", "atan2", "hypot"]
TRUTH = {
    **{name: getattr(mpmath, name) for name in UNARY if hasattr(mpmath, name)},
    "exp2": lambda x: mpmath.mpf(2) ** x,
    "log2": lambda x: mpmath.log(x, 2),
    "cbrt": lambda x: mpmath.sign(x) * mpmath.cbrt(abs(x)),
    "tgamma": mpmath.gamma,
    "lgamma": lambda x: mpmath.log(abs(mpmath.gamma(x))),
    "rsqrt": lambda x: 1 / mpmath.sqrt(x),
    "pow": mpmath.power,
    "atan2": mpmath.atan2,
    "hypot": mpmath.hypot,
}
# Units in the last place that NVIDIA states for its functions (CUDA C++ Programming Guide, mathematical functions),
# where they are more than 2.
STATED = {("float32", name): 4.0 for name in ("tan", "erfc", "pow", "acosh", "asinh", "hypot")}
STATED |= {("float32", "sinh"): 3, ("float32", "tgamma"): 5, ("float32", "atan2"): 3, ("float32", "atanh"): 3}
STATED |= {
    ("float32", "lgamma"): 6,
    ("float64", "lgamma"): 4,
    ("float64", "tgamma"): 10,
    ("float64", "asinh"): 3,
    ("float64", "acosh"): 3,
    ("float64", "erfc"): 5,
}


def true_value(name: str, point: tuple[Any, ...]) -> Any:
    """Return a function's value, None where it has none or where mpmath would need too many digits."""
    numbers = [mpmath.mpf(float(x)) for x in point]
    try:
        value = TRUTH[name](*numbers)
    except (ValueError, ZeroDivisionError):
        return None
    return None if isinstance(value, mpmath.mpc) or not mpmath.isfinite(value) else value


def distance(found: Any, true: Any, dtype: Any) -> float:
    """Return how far a float is from the truth in units in the last place."""
    limits = np.finfo(dtype)
    if abs(true) > float(limits.max):
        return 0.0 if abs(found) in (math.inf, limits.max) else math.inf
    unit = mpmath.ldexp(1, max(mpmath.frexp(true)[1] if true else -9999, limits.minexp + 1) - 1 - limits.nmant)
    return float(abs(mpmath.mpf(float(found)) - true) / unit) if np.isfinite(found) else math.inf


def points(name: str, dtype: str, seed: int) -> list[Array]:
    """Return arguments where a function has values: usual ones, large ones, tiny ones."""
    rng = np.random.default_rng(seed)
    large = (
        1e4 if name in ("tgamma", "lgamma") else 80 if name in ("exp", "exp2", "expm1", "sinh", "cosh", "pow") else 1e30
    )
    small = 1e-30 if name not in ("tgamma", "lgamma") else 0.1
    usual = rng.uniform(-3, 3, 40)
    parts = [usual, rng.uniform(-1, 1, 30), rng.uniform(-large, large, 20), large ** rng.uniform(0, 1, 20)]
    parts += [-(large ** rng.uniform(0, 1, 20)), small * rng.standard_normal(20)]
    drawn = np.concatenate(parts)
    if name in ("log", "log2", "log10", "rsqrt", "pow", "lgamma"):  # lgamma loses digits at its zeros below 0
        drawn = np.abs(drawn)
    others = [rng.permutation(np.concatenate([rng.uniform(-8, 8, 100), rng.uniform(-1, 1, 50)]))]
    return [x.astype(dtype) for x in ([drawn] if name in UNARY else [drawn, *others])]


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("name", UNARY + BINARY)
def test_functions(module: ptx.Module, name: str, dtype: str) -> None:
    """What NVIDIA's functions compute here is as near to the truth as NVIDIA says."""
    given = points(name, dtype, 16)
    found = np.zeros_like(given[0])
    run(module, f"{name}_{dtype}", *given, found)
    with mpmath.workprec(200):
        for value, *point in zip(found, *given, strict=True):
            true = true_value(name, tuple(point))
            off = 0.0 if true is None else distance(value, true, dtype)
            assert off <= STATED.get((dtype, name), 2.0), f"{name}{tuple(point)} is {value}, {off:.2f} units off"


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_exact_functions(module: ptx.Module, dtype: str) -> None:
    """fmod, remainder and nextafter have no error."""
    a, b = floats(dtype, 300, 17), floats(dtype, 300, 18)
    near = np.abs(b) > np.abs(a) * 1e-6  # fmod is a loop over the difference of exponents
    a, b = a[near], b[near]
    with np.errstate(all="ignore"):
        remainders = np.array(
            [math.remainder(x, y) if math.isfinite(x) and y else math.nan for x, y in zip(a, b, strict=True)]
        )
        for name, expected in [
            ("fmod", np.fmod(a, b)),
            ("remainder", remainders.astype(dtype)),
            ("nextafter", np.nextafter(a, b)),
        ]:
            found = np.zeros_like(a)
            run(module, f"{name}_{dtype}", a, b, found)
            check(found[None], expected[None], a, b)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_functions_of_special_values(module: ptx.Module, dtype: str) -> None:
    """Infinities, NaN and signed zeros, as NumPy has them."""
    x = np.array([0.0, -0.0, math.inf, -math.inf, math.nan, 1.0, -1.0], dtype)
    names = {**{name: name for name in UNARY[:19]}, "asin": "arcsin", "acos": "arccos", "atan": "arctan"}
    names |= {"asinh": "arcsinh", "acosh": "arccosh", "atanh": "arctanh"}
    for name, theirs in names.items():
        found = np.zeros_like(x)
        run(module, f"{name}_{dtype}", x, found)
        with np.errstate(all="ignore"):
            expected = getattr(np, theirs)(x)
        off = ~same(found, expected) & ~(
            np.isfinite(expected) & (expected != 0) & np.isclose(found, expected, rtol=1e-6)
        )
        assert not off.any(), (name, x[off], found[off], expected[off])


# Control


def collatz_steps(a: int) -> int:
    """How often until 1."""
    count = 0
    while a != 1:
        a = 3 * a + 1 if a & 1 else a // 2
        count += 1
    return count


def test_loops_of_many_lengths(module: ptx.Module) -> None:
    """Lanes leave a loop one after the other, and some the kernel."""
    x = np.arange(1, 700, dtype=np.int32)
    steps = np.zeros_like(x)
    run(module, "collatz", x, steps)
    assert steps.tolist() == [collatz_steps(int(a)) for a in x]


def choice(x: list[int], i: int) -> int:
    """What the kernel `choices` computes."""
    total = 0
    for k in range(x[i]):
        if k % 5 == 3:
            continue
        if k % 8 == 0:
            total += 7
        elif k % 8 == 1:
            total ^= k
        elif k % 8 in (2, 3):
            total = total * 3 + 1 if k % 8 == 2 else total
            total -= x[(i + 1) % len(x)]
        elif k % 8 == 4:
            total += total >> 2
        elif k % 8 == 5:
            for j in range(k):
                total += j ^ total
        elif k % 8 == 6:
            total = -total if total > 100 else total
        total = signed(total, 32)
        if total > 100000:
            break
    return total


def test_nested_choices(module: ptx.Module) -> None:
    """switch with a case that falls through, continue, break, and a loop inside."""
    x = np.random.default_rng(19).integers(0, 40, 500).astype(np.int32)
    y = np.zeros_like(x)
    run(module, "choices", x, y)
    assert y.tolist() == [choice(x.tolist(), i) for i in range(x.size)]


@pytest.mark.parametrize("view", ["plain", "transposed", "backwards", "broadcast"])
def test_strides(module: ptx.Module, view: str) -> None:
    """A strided operand, in a loop over the grid."""
    base = np.random.default_rng(20).standard_normal((37, 41)).astype(np.float32)
    x = {
        "plain": base,
        "transposed": base.T,
        "backwards": base[::-1, ::-2],
        "broadcast": np.broadcast_to(base[3], (5, 41)),
    }[view]
    rows, columns = x.shape
    w, y = np.random.default_rng(21).standard_normal(columns), np.zeros(x.size)
    steps = [np.int64(stride // 4) for stride in x.strides]
    sizes = [np.int32(rows), np.int32(columns)]
    module.run("strided", 2, (64, 1, 1), [x, *steps, w, y, *sizes], memory=[x, w, y])
    assert (y.reshape(x.shape) == x * w).all()


# Memory


def test_structs_by_value_and_tables(module: ptx.Module) -> None:
    """Structs and characters as parameters, constant and initialised global memory."""
    point = np.zeros((), np.dtype([("where", "f4", 3), ("kind", "i2"), ("weight", "f8", 2)], align=True))
    point["where"], point["kind"], point["weight"] = [1.5, -2, 3], -7, [0.25, 8]
    y = np.zeros(200)
    module.run("by_value", 1, 64, [point.tobytes(), np.int8(-3), y, np.int32(y.size)], memory=[y])
    i = np.arange(200)
    constants, table = np.array([0.5, -1.5, 2.25, 1e300, -0.0]), np.array([1.0, 2, 4, 8])
    expected = (
        (point["where"][i % 3] + 21).astype(np.float64) + point["weight"][i & 1] * constants[i % 5] + table[i & 3]
    )
    assert (y == expected).all()


def test_local_memory_and_calls(module: ptx.Module) -> None:
    """Arrays of each thread, results through pointers, and recursion."""
    x, order = np.random.default_rng(22).uniform(-9, 9, 150), np.array([4, 0, 8, 2, 6, 1, 3, 7, 5], np.int32)
    y, z = np.zeros(150), np.zeros(150, np.int64)
    module.run("local_memory", 2, 64, [x, order, y, z, np.int32(150)], memory=[x, order, y, z])
    for i in range(150):
        parts, rest = [0.0] * 9, [np.float32(0)] * 9
        for k in range(9):
            parts[order[(i + k) % 9]] = math.floor(x[i] * k)
            rest[order[(i + 2 * k) % 9]] = np.float32(x[i] * k - math.floor(x[i] * k))
        total, depth, number = 0.0, int(order[i % 9]), i
        for k in range(9):
            total = total * 2 + parts[k] - float(rest[(k + i) % 9])
        while depth:
            number, depth = number * 3 + depth, depth - 1
        assert (y[i], z[i]) == (total, number)


def test_vectors(module: ptx.Module) -> None:
    """Loads and stores of 4 and 16 bytes at once."""
    x, y = np.random.default_rng(23).random((64, 4), np.float32), np.random.default_rng(24).random((64, 2))
    c = np.arange(256, dtype=np.uint8).reshape(64, 4)
    out = [np.zeros_like(array) for array in (x, y, c)]
    module.run("vectors", 2, 32, [x, y, c, *out], memory=[x, y, c, *out])
    assert (out[0] == x[:, ::-1]).all() and (out[1] == y[:, ::-1]).all() and (out[2] == np.roll(c, -1, 1)).all()


# Blocks and warps


@pytest.mark.parametrize("block", [32, 128, 320, 1024])
def test_block_reduction(module: ptx.Module, block: int) -> None:
    """Shuffles within warps, shared memory between them."""
    x, y = np.random.default_rng(25).integers(-100, 100, 5000).astype(np.float64), np.zeros(3)
    module.run("sums", 3, block, [x, y, np.int32(x.size)], memory=[x, y])
    each = np.arange(x.size) // block % 3
    assert y.tolist() == [x[each == number].sum() for number in range(3)]


def test_dynamic_shared_memory(module: ptx.Module) -> None:
    """A tree in memory whose size the launch gives, in more blocks than are run at once."""
    x, y = integers("int32", 20_000, 26), np.zeros(157, np.int32)
    module.run("tree", 157, 128, [x, y, np.int32(x.size)], shared_bytes=512, memory=[x, y])
    padded = np.concatenate([x, np.zeros(157 * 128 - x.size, np.int32)])
    assert (y == padded.reshape(157, 128).sum(axis=1, dtype=np.int32)).all()


def test_transposition(module: ptx.Module) -> None:
    """Two-dimensional grids and blocks."""
    x = np.random.default_rng(27).random((21, 35), np.float32)
    y = np.zeros((35, 21), np.float32)
    module.run("transposed", (5, 3), (8, 8), [x, y, np.int32(21), np.int32(35)], memory=[x, y])
    assert (y == x.T).all()


def warp_rows(a: Array) -> list[Array]:
    """What the kernel `warps` computes first, by NumPy."""
    lane, warp = np.arange(a.size) % 32, np.arange(a.size) // 32 * 32
    inner, group = lane % 8, warp + lane // 8 * 8
    i = np.arange(a.size)
    sources = [warp + 5, group + i * 3 % 8, np.where(lane >= 3, i - 3, i), np.where(inner >= 3, i - 3, i)]
    sources += [np.where(lane < 29, i + 3, i), np.where(inner < 5, i + 3, i), i ^ 5, i ^ 5]
    each = a.reshape(-1, 32)
    bits = (each > 0).astype(np.int64) @ (1 << np.arange(32))
    votes = [bits.astype(np.uint32).view(np.int32), (each > 90).any(axis=1), (each > -90).all(axis=1)]
    return [*(a[source] for source in sources), *(np.repeat(vote, 32).astype(np.int32) for vote in votes)]


def test_warps(module: ptx.Module) -> None:
    """Shuffles of all kinds and widths, votes, and those who are here."""
    a = np.random.default_rng(28).integers(-100, 100, 128).astype(np.int32)
    a[32:64] = -95
    y = np.zeros((15, 128), np.int32)
    module.run("warps", 2, 64, [a, y, np.int32(128)], memory=[a, y])
    check(y[:11], np.array(warp_rows(a)), a)
    i = np.arange(128)
    here = [
        sum(1 << lane for lane in range(32) if (warp * 32 % 64 + warp * 32 // 64 * 64 + lane) % 3) for warp in range(4)
    ]
    assert (y[11].view(np.uint32) == np.where(i % 3, np.repeat(here, 32), 0)).all()
    odd = a.reshape(4, 32) & 1 == 1
    assert odd.any(axis=1).all()
    first = np.repeat([row[pick][0] for row, pick in zip(a.reshape(4, 32), odd, strict=True)], 32)
    assert (y[12] == np.where(a & 1, first, 0)).all()
    if y[13].any():  # compiled for 8.0 and later
        assert (y[13] == np.repeat(a.reshape(4, 32).sum(axis=1), 32)).all()
        assert (y[14] == np.repeat(a.reshape(4, 32).max(axis=1), 32)).all()


def test_atomics(module: ptx.Module) -> None:
    """Atomic operations on shared and global memory."""
    x = integers("int32", 500, 29) & 0xFFFF
    counts, most, total = np.zeros(4, np.int32), np.zeros(1, np.uint64), np.zeros(1, np.float32)
    run(module, "atomics", x, counts, most, total)
    assert counts.tolist() == np.bincount(x & 3).tolist() and most[0] == x.max() and total[0] == 250


if sys.version_info >= (3, 13):

    def test_fma_against_python() -> None:
        """Python 3.13 has fma."""
        a, b, c = (floats("float64", 2000, seed) for seed in (30, 31, 32))
        finite = np.isfinite(a * b) & np.isfinite(c)
        found = exact.fma64(a, b, c, "rn")[finite]
        assert (found == [math.fma(*each) for each in zip(a[finite], b[finite], c[finite], strict=True)]).all()
