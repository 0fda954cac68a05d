"""exp, sin, pow and the others in generated vector code: near the truth everywhere, exact where it is expected."""

from __future__ import annotations

import math
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("llvmlite")
pytest.importorskip("mpmath")

ROOT = Path(__file__).resolve().parent.parent

sys.path.insert(0, str(ROOT))  # the benchmarks are not installed with the package
from benchmarks.accuracy import BINARY, DTYPES, compiled, largest_of_all, partner, points, reference, true_value, ulps  # noqa: E402
from xtensor.codegen.cpu.math import FUNCTIONS  # noqa: E402 - after the skips

INF, NAN = math.inf, math.nan
BOUND = {"float32": 1.0, "float64": 1.5}  # ulp

every_function = pytest.mark.parametrize("name", FUNCTIONS)
every_dtype = pytest.mark.parametrize("dtype", DTYPES)

ODD = ("sin", "tan", "asin", "atan", "sinh", "tanh", "asinh", "atanh", "erf", "expm1", "log1p")
STRICTLY_ODD = ODD[:-2]  # the others only keep the sign of 0
EVEN = ("cos", "cosh")


def same(found: Any, expected: Any) -> bool:
    """Whether two values are the same, the sign of zero included and all NaN alike."""
    return bool(
        (np.isnan(found) & np.isnan(expected)) | ((found == expected) & (np.signbit(found) == np.signbit(expected)))
    )


def check_accuracy(name: str, dtype: str, count: int, seed: int = 1) -> None:
    check_points(name, dtype, points(name, dtype, count, seed))


def check_points(name: str, dtype: str, arguments: tuple[Any, ...]) -> None:
    found = compiled(name, dtype)(*arguments)
    for value, *given in zip(found, *arguments, strict=True):
        true = true_value(name, *map(float, given))
        error = ulps(np.dtype(dtype), float(value), true)
        if error > BOUND[dtype]:
            pytest.fail(f"{name}({', '.join(map(repr, given))}) = {value!r}, off by {error:.3g} ulp")


@every_dtype
@every_function
def test_accuracy(name: str, dtype: str) -> None:
    """Within 1 ulp of mpmath in float32 and 1.5 in float64, over the whole range."""
    check_accuracy(name, dtype, 1500)


@pytest.mark.long
@every_dtype
@every_function
def test_accuracy_at_length(name: str, dtype: str) -> None:
    """Likewise, at other and more points."""
    check_accuracy(name, dtype, 100_000, seed=2)


@pytest.mark.long
@pytest.mark.parametrize("name", [name for name in FUNCTIONS if name not in BINARY])
def test_every_float32(name: str) -> None:
    """Within 1 ulp, at every float32 there is."""
    largest, place = largest_of_all(name)
    assert largest <= BOUND["float32"], f"{name}({place!r}) is off by {largest:.3g} ulp"


@every_dtype
@pytest.mark.parametrize("name", [name for name in FUNCTIONS if name != "erf"])
def test_near_numpy(name: str, dtype: str) -> None:
    """A million points against NumPy in a wider type, which has its own errors."""
    if dtype == "float64" and np.finfo(np.longdouble).nmant < 63:
        pytest.skip("long double is no wider here")
    wider = np.float64 if dtype == "float32" else np.longdouble
    arguments = points(name, dtype, 1_000_000 if dtype == "float32" else 100_000)
    found = compiled(name, dtype)(*arguments).astype(wider)
    with np.errstate(all="ignore"):
        expected = reference(name)(*(x.astype(wider) for x in arguments))
        unit = np.spacing(np.abs(expected).astype(dtype)).astype(wider)
        error = np.abs(found - expected) / unit
    error[np.isinf(found) & (np.abs(expected) > np.finfo(dtype).max)] = 0
    if name == "logaddexp":  # near 0 the wider one has lost its digits
        digits = np.finfo(wider).eps * (4 + np.abs(arguments[0] - arguments[1].astype(wider)))
        error[np.abs(found - expected) < digits * np.abs(arguments[0])] = 0
    worst = int(np.argmax(error))
    wider_one = 0.1 if dtype == "float64" else 0.0  # its own error
    assert error[worst] <= BOUND[dtype] + wider_one, (
        f"{name} at {[x[worst] for x in arguments]}: {error[worst]:.3g} ulp"
    )


@every_dtype
def test_logaddexp_where_its_terms_cancel(dtype: str) -> None:
    """Next to the curve where it is 0: of two million pairs, the ones whose result is least beside their terms."""
    random = np.random.default_rng(4)
    for first in (random.uniform(-0.7, 0, 1_000_000), -np.exp(random.uniform(-80, -0.4, 1_000_000))):
        first = first.astype(dtype)
        second = partner(first).astype(dtype)
        least = np.argsort(np.abs(compiled("logaddexp", dtype)(first, second) / first))[:300]
        for change in (0, 1, -1):
            close = second[least] + change * np.spacing(second[least])
            check_points("logaddexp", dtype, (first[least], close))
            check_points("logaddexp", dtype, (close, first[least]))


# Special values, from Annex F of C99 and NumPy

SPECIAL = {
    "exp": [(-0.0, 1), (0.0, 1), (INF, INF), (-INF, 0), (1e30, INF), (-1e30, 0)],
    "exp2": [(0.0, 1), (-0.0, 1), (INF, INF), (-INF, 0), (10, 1024), (-3, 0.125), (1e30, INF), (-1e30, 0)],
    "expm1": [(0.0, 0.0), (-0.0, -0.0), (INF, INF), (-INF, -1), (-1e30, -1), (1e30, INF)],
    "log": [(0.0, -INF), (-0.0, -INF), (1, 0.0), (-1, NAN), (INF, INF), (-INF, NAN)],
    "log1p": [(0.0, 0.0), (-0.0, -0.0), (-1, -INF), (-2, NAN), (INF, INF), (-INF, NAN)],
    "log2": [(0.0, -INF), (-0.0, -INF), (1, 0.0), (8, 3), (0.25, -2), (-1, NAN), (INF, INF), (-INF, NAN)],
    "log10": [(0.0, -INF), (-0.0, -INF), (1, 0.0), (1000, 3), (-1, NAN), (INF, INF), (-INF, NAN)],
    "sin": [(0.0, 0.0), (-0.0, -0.0), (INF, NAN), (-INF, NAN)],
    "cos": [(0.0, 1), (-0.0, 1), (INF, NAN), (-INF, NAN)],
    "tan": [(0.0, 0.0), (-0.0, -0.0), (INF, NAN), (-INF, NAN)],
    "asin": [(0.0, 0.0), (-0.0, -0.0), (2, NAN), (-1.5, NAN), (INF, NAN), (-INF, NAN)],
    "acos": [(1, 0.0), (2, NAN), (-1.5, NAN), (INF, NAN), (-INF, NAN)],
    "atan": [(0.0, 0.0), (-0.0, -0.0), (INF, math.pi / 2), (-INF, -math.pi / 2), (1, math.pi / 4)],
    "sinh": [(0.0, 0.0), (-0.0, -0.0), (INF, INF), (-INF, -INF), (1e30, INF), (-1e30, -INF)],
    "cosh": [(0.0, 1), (-0.0, 1), (INF, INF), (-INF, INF), (1e30, INF)],
    "tanh": [(0.0, 0.0), (-0.0, -0.0), (INF, 1), (-INF, -1), (1e30, 1)],
    "asinh": [(0.0, 0.0), (-0.0, -0.0), (INF, INF), (-INF, -INF)],
    "acosh": [(1, 0.0), (0.5, NAN), (-1, NAN), (-5, NAN), (-1e30, NAN), (0.0, NAN), (INF, INF), (-INF, NAN)],
    "atanh": [(0.0, 0.0), (-0.0, -0.0), (1, INF), (-1, -INF), (1.5, NAN), (-2, NAN), (INF, NAN), (-INF, NAN)],
    "erf": [(0.0, 0.0), (-0.0, -0.0), (INF, 1), (-INF, -1), (1e30, 1)],
    "atan2": [
        *((0.0, -0.0, math.pi), (-0.0, -0.0, -math.pi), (0.0, 0.0, 0.0), (-0.0, 0.0, -0.0)),
        *((0.0, -1, math.pi), (-0.0, -1, -math.pi), (0.0, 1, 0.0), (-0.0, 1, -0.0), (0.0, -INF, math.pi)),
        *((-1, 0.0, -math.pi / 2), (-1, -0.0, -math.pi / 2), (1, 0.0, math.pi / 2), (1, -0.0, math.pi / 2)),
        *((1, -INF, math.pi), (-1, -INF, -math.pi), (1, INF, 0.0), (-1, INF, -0.0)),
        *((INF, 1, math.pi / 2), (-INF, 1, -math.pi / 2), (INF, -INF, 3 * math.pi / 4)),
        *((-INF, -INF, -3 * math.pi / 4), (INF, INF, math.pi / 4), (-INF, INF, -math.pi / 4)),
        *((NAN, 1, NAN), (1, NAN, NAN), (NAN, INF, NAN), (INF, NAN, NAN), (0.0, NAN, NAN), (NAN, 0.0, NAN)),
    ],
    "hypot": [
        *((INF, NAN, INF), (NAN, -INF, INF), (-INF, 1, INF), (1, INF, INF), (NAN, 1, NAN), (0.0, NAN, NAN)),
        *((3, 4, 5), (-5, 12, 13), (0.0, 0.0, 0.0), (-0.0, 0.0, 0.0), (-0.0, -0.0, 0.0), (0.0, -7, 7)),
    ],
    "logaddexp": [
        *((INF, INF, INF), (-INF, -INF, -INF), (INF, -INF, INF), (-INF, INF, INF), (-INF, 3, 3), (2, -INF, 2)),
        *((NAN, INF, NAN), (INF, NAN, NAN), (NAN, 1, NAN), (1, NAN, NAN), (0.0, 0.0, math.log(2)), (1e30, 0, 1e30)),
    ],
    "pow": [
        *((0.0, -3, INF), (-0.0, -3, -INF), (0.0, -2, INF), (-0.0, -2, INF), (0.0, -2.5, INF), (-0.0, -2.5, INF)),
        *((0.0, -INF, INF), (-0.0, -INF, INF), (0.0, 3, 0.0), (-0.0, 3, -0.0), (-0.0, 2, 0.0), (-0.0, 0.5, 0.0)),
        *((-1, INF, 1), (-1, -INF, 1), (1, NAN, 1), (1, INF, 1), (1, -INF, 1), (NAN, 0.0, 1), (NAN, -0.0, 1)),
        *((INF, 0.0, 1), (0.0, 0.0, 1), (-0.0, -0.0, 1), (-8, 1 / 3, NAN), (-2, 0.5, NAN), (-1e30, 1.5, NAN)),
        *((0.5, -INF, INF), (-0.5, -INF, INF), (2, -INF, 0.0), (-2, -INF, 0.0), (0.5, INF, 0.0), (-0.5, INF, 0.0)),
        *((2, INF, INF), (-2, INF, INF), (-INF, -3, -0.0), (-INF, -2, 0.0), (-INF, -2.5, 0.0), (-INF, 3, -INF)),
        *((-INF, 2, INF), (-INF, 0.5, INF), (INF, -1, 0.0), (INF, 0.5, INF), (NAN, 1, NAN), (2, NAN, NAN)),
        *((-2, 3, -8), (-2, -3, -0.125), (-2, 4, 16), (1e30, 9, INF), (-1e30, 11, -INF), (1e-30, 11, 0.0)),
        *((-1e-30, 11, -0.0), (0.0, INF, 0.0), (-0.0, INF, 0.0), (INF, INF, INF), (INF, -INF, 0.0), (NAN, NAN, NAN)),
    ],
}
OVERFLOWING = {"float64": {(1e30, 9), (-1e30, 11), (1e-30, 11), (-1e-30, 11)}}  # not in float64


@every_dtype
@every_function
def test_special_values(name: str, dtype: str) -> None:
    """Zeros with their signs, infinities, NaN, and the numbers that have to come out exact."""
    rows = [row for row in SPECIAL[name] if row[:-1] not in OVERFLOWING.get(dtype, ())]
    if name not in BINARY:
        rows.append((NAN, NAN))
    *arguments, expected = (np.array(column, dtype) for column in zip(*rows, strict=True))
    found = compiled(name, dtype)(*arguments)
    wrong = [
        f"{name}{row[:-1]} = {value!r}, not {row[-1]}"
        for row, value, right in zip(rows, found, expected, strict=True)
        if not same(value, right)
    ]
    assert not wrong, "\n".join(wrong)


@every_dtype
@pytest.mark.parametrize("name", [name for name in FUNCTIONS if name != "erf"])
def test_nan_where_numpy_has_it(name: str, dtype: str) -> None:
    """Arguments outside the domain, from random bits: NaN there, nowhere else, and likewise the infinities."""
    random = np.random.default_rng(3)
    patterns = [np.frombuffer(random.bytes(50_000 * np.dtype(dtype).itemsize), dtype) for _ in range(2)]
    moderate = [random.uniform(-20, 20, 50_000).astype(dtype) for _ in range(2)]
    arguments = [np.concatenate(pair) for pair in zip(patterns, moderate, strict=True)][: 2 if name in BINARY else 1]
    with np.errstate(all="ignore"):
        expected = reference(name)(*(x.astype(np.longdouble) for x in arguments)).astype(dtype)
    found = compiled(name, dtype)(*arguments)
    for test in (np.isnan, np.isposinf, np.isneginf):
        np.testing.assert_array_equal(test(found), test(expected))


@every_dtype
def test_exact_results(dtype: str) -> None:
    """Powers come back from their logarithms, and whole numbers from small powers."""
    info = np.finfo(dtype)
    exponents = np.arange(info.minexp - info.nmant, info.maxexp).astype(dtype)
    with np.errstate(under="ignore"):
        powers = np.ldexp(np.ones_like(exponents), exponents.astype(np.int32))
    np.testing.assert_array_equal(compiled("exp2", dtype)(exponents), powers)
    np.testing.assert_array_equal(compiled("log2", dtype)(powers), exponents)
    tens = np.arange(0, 11 if dtype == "float32" else 23).astype(dtype)
    np.testing.assert_array_equal(compiled("log10", dtype)(np.array([10.0 ** int(k) for k in tens], dtype)), tens)
    x = points("exp", dtype, 3000)[0]
    power = compiled("pow", dtype)
    np.testing.assert_array_equal(power(x, np.ones_like(x)), x)
    with np.errstate(all="ignore"):
        np.testing.assert_array_equal(power(x, np.full_like(x, 2)), x * x)
    np.testing.assert_array_equal(compiled("tanh", dtype)(np.array([30, -30], dtype)), [1, -1])


@every_dtype
@pytest.mark.parametrize("name", STRICTLY_ODD + EVEN)
def test_symmetry(name: str, dtype: str) -> None:
    """Odd and even functions are so to the last bit, for all arguments."""
    x = np.concatenate([points(name, dtype, 20000)[0], np.array([0.0, INF, 5e-324, 1e-40], dtype)])
    left, right = compiled(name, dtype)(-x), compiled(name, dtype)(x)
    np.testing.assert_array_equal(left, right if name in EVEN else -right)
    if name in ODD:
        bits = np.dtype(f"u{x.itemsize}")
        number = ~np.isnan(right)
        np.testing.assert_array_equal(left[number].view(bits), (-right[number]).view(bits))


@every_dtype
@pytest.mark.parametrize("name", ODD)
def test_the_sign_of_zero_and_the_smallest_numbers_stay(name: str, dtype: str) -> None:
    """f(x) = x where x is tiny; erf is 2 / sqrt(pi) times as large."""
    smallest = np.finfo(dtype).smallest_subnormal
    x = np.array([0.0, -0.0, smallest, -smallest, 5 * smallest], dtype)
    expected = np.array([0.0, -0.0, smallest, -smallest, (6 if name == "erf" else 5) * smallest], dtype)
    found = compiled(name, dtype)(x)
    assert all(map(same, found, expected)), found


@every_dtype
@every_function
def test_lanes_and_code_generation_do_not_matter(name: str, dtype: str) -> None:
    """The same bits from every vector length, both levels of code generation, and in fast-math programs."""
    arguments = points(name, dtype, 2000)
    expected = compiled(name, dtype)(*arguments).tobytes()
    for lanes in (1, 4, 8, 16):
        assert compiled(name, dtype, lanes)(*arguments).tobytes() == expected, f"{lanes} lanes"
    assert compiled(name, dtype, 0, 0)(*arguments).tobytes() == expected, "level 0"
    assert compiled(name, dtype, flags="contract ")(*arguments).tobytes() == expected, "fast math around it"
