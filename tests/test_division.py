"""Whole division in generated code: NumPy's bits for every value, by arrays and by scalars."""

from __future__ import annotations

import numpy as np
import pytest

import xtensor as xt
import xtensor.numpy as xnp
from xtensor.codegen.cpu.compile import host

pytestmark = pytest.mark.skipif(host() is None, reason="there is no compiler here")

PAIRS = ((np.floor_divide, xt.floor_divide), (np.remainder, xt.remainder))


def own(a: np.ndarray) -> xt.Tensor:
    return xt.asarray(a, copy=True)


def compare(a: np.ndarray, b: np.ndarray | int) -> None:
    """Compare quotients and remainders with NumPy's."""
    for right, mine in PAIRS:
        with np.errstate(all="ignore"):
            expected = right(a, b if isinstance(b, np.ndarray) else a.dtype.type(b))
        with xt.options(engine="llvm", lazy="always"):
            found = np.asarray(mine(own(a), own(b) if isinstance(b, np.ndarray) else b))
        np.testing.assert_array_equal(found, expected, strict=True, err_msg=f"{right.__name__} by {b}")


def every(dtype: str) -> np.ndarray:
    """Return all values of a dtype."""
    info = np.iinfo(dtype)
    return np.arange(info.min, info.max + 1).astype(dtype)


def edges(dtype: str) -> np.ndarray:
    """Return numbers beside powers of two, their multiples, and parts of the extremes."""
    info = np.iinfo(dtype)
    near = [2**k for k in range(info.bits)] + [3 * 2**k for k in range(info.bits - 1)]
    near += [info.max // k for k in range(1, 40)] + [-one for one in near] + [info.min // k for k in range(1, 40)]
    found = {one + d for one in near for d in (-2, -1, 0, 1, 2) if info.min <= one + d <= info.max}
    return np.array(sorted(found), dtype)


def at_random(rng: np.random.Generator, dtype: str, size: int) -> np.ndarray:
    """Return numbers of all magnitudes."""
    info = np.iinfo(dtype)
    full = rng.integers(info.min, info.max, size, dtype=dtype, endpoint=True)
    return (full >> rng.integers(0, info.bits, size).astype(dtype)).astype(dtype)


@pytest.mark.parametrize("dtype", ["int8", "uint8"])
def test_all_pairs(dtype: str) -> None:
    values = every(dtype)
    compare(*[one.ravel() for one in np.meshgrid(values, values)])
    for b in values[::3]:
        compare(values, int(b))


@pytest.mark.parametrize("dtype", ["int16", "uint16"])
def test_all_dividends(dtype: str) -> None:
    values = every(dtype)
    divisors = {*edges(dtype).tolist()[::4], *range(12), np.iinfo(dtype).min, np.iinfo(dtype).max}
    for b in divisors:
        compare(values, b)
        compare(values, np.full_like(values, b))


@pytest.mark.parametrize("dtype", ["int32", "uint32", "int64", "uint64"])
def test_edges(dtype: str) -> None:
    values = edges(dtype)
    compare(*[one.ravel() for one in np.meshgrid(values, values)])
    for b in {*values.tolist()[::25], 0, 1, 7, 10, np.iinfo(dtype).min, np.iinfo(dtype).max}:
        compare(values, b)


@pytest.mark.parametrize("dtype", ["int32", "uint32", "int64", "uint64"])
def test_at_random_and_beside_multiples(dtype: str) -> None:
    rng = np.random.default_rng(7)
    a, b = at_random(rng, dtype, 300_000), at_random(rng, dtype, 300_000)
    compare(a, b)
    with np.errstate(all="ignore"):
        multiples = a // np.where(b == 0, 1, b).astype(dtype) * b
    for beside in (-1, 0, 1):
        compare(multiples + np.array(beside).astype(dtype), b)
    for one in (3, 7, 1000, 12345, 2**31 - 1):
        compare(a, one)
    few = np.array(17 if np.dtype(dtype).itemsize == 8 else 1).astype(dtype)  # dividends of up to 47 bits, of 64
    for divisors in (b, b >> few, 3, 365, 2**31 - 1):
        compare(a >> few, divisors)


# ---- floating numbers


def floats(rng: np.random.Generator, dtype: str, size: int) -> np.ndarray:
    """Return numbers of all magnitudes, small whole ones, parts of them, least ones, and what is special."""
    info, bits = np.finfo(dtype), 8 * np.dtype(dtype).itemsize
    any_bits = rng.integers(0, 2**bits, size, dtype=f"u{bits // 8}").view(dtype)
    small, least = rng.integers(-50, 50, size), rng.integers(-3, 4, size) * info.smallest_subnormal
    special = rng.choice([0.0, -0.0, np.inf, -np.inf, np.nan, 1.0, -1.0, info.max, info.tiny], size)
    kinds = (any_bits, rng.normal(size=size), small, small * 0.1, rng.normal(size=size) * 1e10, least, special)
    return np.choose(rng.integers(0, len(kinds), size), [one.astype(dtype) for one in kinds])


def as_the_standard(function: np.ufunc, a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """Return NumPy's values, of quotients with an infinity those of floor(a / b)."""
    found = function(a, b)
    if function is np.floor_divide:
        found = np.where(np.isinf(a) | np.isinf(b), np.floor(a / b), found)
    return found.astype(a.dtype)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("seed", range(4))
def test_floating(dtype: str, seed: int) -> None:
    """Every bit is NumPy's, whatever the quotient: beyond 2^52 it is taken off in steps."""
    rng = np.random.default_rng(seed)
    a, b = (floats(rng, dtype, 50_001) for _ in range(2))
    for right, mine in PAIRS:
        for divisors in (b, *b[:9]):
            with np.errstate(all="ignore"):
                expected = as_the_standard(right, a, divisors)
            with xt.options(engine="llvm", lazy="always"):
                found = np.asarray(mine(own(a), own(divisors) if divisors.ndim else float(divisors)))
            np.testing.assert_array_equal(found, expected)
            signs = np.signbit(found) == np.signbit(expected)
            assert (signs | np.isnan(expected)).all()


@pytest.mark.parametrize("dtype", ["float32", "float64", "int16", "uint32", "bool"])
def test_fmod(dtype: str) -> None:
    """The sign is that of the dividend; bit for bit NumPy's."""
    rng = np.random.default_rng(3)
    a, b = (floats(rng, dtype, 5000) if dtype[0] == "f" else rng.integers(0, 99, 5000).astype(dtype) for _ in range(2))
    if dtype == "int16":
        a, b = a - 50, b - 49
    with np.errstate(all="ignore"):
        expected = np.fmod(a, b)
    for mode in ("llvm", "direct"):
        with xt.options(engine=mode):
            found = np.asarray(xnp.fmod(xnp.array(a), xnp.array(b)))
        np.testing.assert_array_equal(found, expected, strict=True)
        assert (np.isnan(expected) | (np.signbit(found) == np.signbit(expected))).all() if dtype[0] == "f" else True


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_whole_quotients_of_values_are_those_of_arrays(dtype: str) -> None:
    """Also beside Python's numbers that are infinite in the dtype."""
    numbers = [0.0, -0.0, 1.0, -1.0, 5.5, 1e308, -1e308, np.inf, -np.inf, np.nan]
    for one in numbers:
        with np.errstate(all="ignore"):
            x = xt.asarray([one], dtype=getattr(xt, dtype))
        for other in numbers:
            for own, whole in ((x[0] // other, x // other), (other // x[0], other // x)):
                np.testing.assert_array_equal(np.asarray(own), np.asarray(whole)[0])
                assert np.signbit(np.asarray(own)) == np.signbit(np.asarray(whole)[0]) or np.isnan(np.asarray(own))
