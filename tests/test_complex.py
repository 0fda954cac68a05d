"""Complex numbers in generated code: products rounded as stated, special values as NumPy's, magnitudes and quotients
within the stated error, whatever lies where; sums, scalars, rows and columns, gradients, captured functions.

What every engine has to do for every dtype is in test_engines.py.
"""

from __future__ import annotations

import cmath
import math
from collections.abc import Callable, Iterator
from fractions import Fraction
from typing import Any

import mpmath
import numpy as np
import pytest
from ir import Checked, check_launches, collected

import xtensor as xt
from xtensor.autograd.checking import check_grads
from xtensor.codegen.cpu.compile import host

pytestmark = pytest.mark.skipif(host() is None, reason="no generated code here")

Array = np.ndarray[Any, np.dtype[Any]]
DTYPES = ["complex64", "complex128"]
every_dtype = pytest.mark.parametrize("dtype", DTYPES)

SIZES = [*range(20), 31, 33, 63, 64, 65, 127, 200]


@pytest.fixture(autouse=True)
def generated() -> Iterator[None]:
    """Record every call and run what is recorded by generated code."""
    with xt.options(lazy="always", engine="llvm", cache_dir=""):
        yield


def numbers(size: int, dtype: str, seed: int = 0) -> Array:
    rng = np.random.default_rng(seed)
    return (rng.standard_normal(size) + 1j * rng.standard_normal(size)).astype(dtype)


def own(a: Any) -> xt.Tensor:
    """Return a copy that nobody outside can write to, so that what reads it waits."""
    return xt.asarray(a, copy=True)


def compiled(x: xt.Tensor) -> xt.Tensor:
    """Return a tensor that is pending and will come from generated code alone."""
    text = xt.explain(x)
    assert ", llvm: " in text and "interpret" not in text, text
    return x


def texts(a: Array) -> list[str]:
    """Return elements as text: all NaNs alike, zeros with their sign."""
    return [repr(one) for one in a.reshape(-1).tolist()]


SPECIAL = [0.0, -0.0, 1.0, -2.5, math.inf, -math.inf, math.nan, 1e-40, 5e-324, 1e38, 1e308]


def specials(dtype: str) -> Array:
    with np.errstate(all="ignore"):
        return np.array([complex(a, b) for a in SPECIAL for b in SPECIAL]).astype(dtype)


# ---- the last bit


def fused(a: Any, b: Any, c: Any, dtype: Any) -> Any:
    """a * b + c, rounded once."""
    exact = Fraction(float(a)) * Fraction(float(b)) + Fraction(float(c))
    if dtype == np.float64:
        return np.float64(float(exact))
    near = np.float32(float(exact))  # rounded twice: the neighbours tell which one is nearest
    every = [np.nextafter(near, np.float32(-np.inf)), near, np.nextafter(near, np.float32(np.inf))]
    return min(every, key=lambda one: abs(Fraction(float(one)) - exact))


@every_dtype
@pytest.mark.parametrize("name", ["multiply", "square", "by a number", "of a real"])
def test_products_are_rounded_twice_in_each_part(name: str, dtype: str) -> None:
    """Once as the product of two parts, once as what the other product and that are together."""
    a, b = numbers(67, dtype), numbers(67, dtype, 1)
    x, y = own(a), own(b)
    if name == "square":
        b, z = a, xt.square(x)
    elif name == "by a number":
        b, z = np.full_like(a, 1.7 - 0.3j), x * (1.7 - 0.3j)
    elif name == "of a real":
        a, z = a.real.astype(dtype), xt.real(x) * y
    else:
        z = x * y
    found, kind = compiled(z).numpy(), a.real.dtype
    for p, q, r in zip(a, b, found, strict=True):
        assert r.real == fused(p.real, q.real, -(p.imag * q.imag), kind)
        assert r.imag == fused(p.real, q.imag, p.imag * q.real, kind)


BINARY: dict[str, Callable[[Any, Any], Any]] = {
    "add": lambda a, b: a + b,
    "subtract": lambda a, b: a - b,
    "multiply": lambda a, b: a * b,
    "divide": lambda a, b: a / b,
    "equal": lambda a, b: a == b,
    "not_equal": lambda a, b: a != b,
}
UNARY = ["abs", "conj", "imag", "isfinite", "isinf", "isnan", "logical_not", "negative", "positive", "real"]
UNARY += ["reciprocal", "sign", "square"]


@every_dtype
@pytest.mark.parametrize("name", BINARY)
def test_special_values_of_two(name: str, dtype: str) -> None:
    """Every pair of them, as NumPy has it."""
    values = specials(dtype)
    a, b = np.repeat(values, len(values)), np.tile(values, len(values))
    with np.errstate(all="ignore"):
        right = BINARY[name](a, b)
    assert texts(compiled(BINARY[name](own(a), own(b))).numpy()) == texts(right)


@every_dtype
@pytest.mark.parametrize("name", UNARY)
def test_special_values_of_one(name: str, dtype: str) -> None:
    """Every one of them, as NumPy has it; what depends on its magnitude within an ulp."""
    values = specials(dtype)
    with np.errstate(all="ignore"):
        right = getattr(np, name)(values)
    found = compiled(getattr(xt, name)(own(values))).numpy()
    assert found.dtype == right.dtype
    if name == "abs":
        np.testing.assert_array_max_ulp(found, right, 1)
    elif name == "sign":
        for a, b in ((found.real, right.real), (found.imag, right.imag)):
            np.testing.assert_array_max_ulp(a, b, 1)
            assert np.array_equal(np.signbit(a)[a == a], np.signbit(b)[a == a])
    else:
        assert texts(found) == texts(right)


@every_dtype
@pytest.mark.parametrize("number", [2, 0.0, -1.5, math.inf, math.nan, 3j, complex(math.inf, -0.0), 1e308 + 1j, -0.0])
def test_numbers_beside_them(number: complex, dtype: str) -> None:
    """Python's numbers, on either side, are told the code when it runs, both of their parts."""
    a = specials(dtype)
    for name, function in BINARY.items():
        with np.errstate(all="ignore"):
            right, left = function(a, number), function(number, a)
        assert texts(compiled(function(own(a), number)).numpy()) == texts(right), name
        assert texts(compiled(function(number, own(a))).numpy()) == texts(left), name


# ---- magnitudes and quotients


def spread(size: int, dtype: str, seed: int) -> Array:
    """Return numbers of all magnitudes, their parts of different ones."""
    rng, info = np.random.default_rng(seed), np.finfo(dtype)
    places = rng.integers(info.minexp - info.nmant, info.maxexp, (2, size))
    parts = rng.uniform(1, 2, (2, size)) * rng.choice([-1, 1], (2, size))
    near = np.where(rng.random(size) < 0.5, places[0] + rng.integers(-3, 4, size), places[1])
    with np.errstate(all="ignore"):
        real, imag = np.ldexp(parts, np.stack([places[0], np.minimum(near, info.maxexp - 1)]))
        return (real + 1j * imag).astype(dtype)


@every_dtype
def test_magnitudes_of_all_sizes(dtype: str) -> None:
    """Within 1.5 units in the last place of the true one, where that is not too large for the dtype."""
    a = spread(3000, dtype, 3)
    found, info = compiled(xt.abs(own(a))).numpy(), np.finfo(dtype)
    with mpmath.workprec(200):
        for z, size in zip(a.tolist(), found.tolist(), strict=True):
            true = mpmath.hypot(mpmath.mpf(z.real), mpmath.mpf(z.imag))
            if true <= float(info.max):
                unit = max(mpmath.ldexp(info.eps, int(mpmath.floor(mpmath.log(true, 2)))), info.smallest_subnormal)
                assert abs(size - true) <= 1.5 * unit, (z, size)
            else:
                assert size == math.inf or size == float(info.max)


@every_dtype
def test_quotients(dtype: str) -> None:
    """Within 4 eps of the true one, in the plane."""
    a, b = numbers(2000, dtype, 5), numbers(2000, dtype, 6) * 10.0 ** np.random.default_rng(7).integers(-9, 9, 2000)
    b = b.astype(dtype)
    found, inverse = compiled(own(a) / own(b)).numpy(), compiled(xt.reciprocal(own(b))).numpy()
    eps = float(np.finfo(dtype).eps)
    for p, q, r, one in zip(a.tolist(), b.tolist(), found.tolist(), inverse.tolist(), strict=True):
        true = mpmath.mpc(p) / mpmath.mpc(q)
        assert abs(mpmath.mpc(r) - true) <= 4 * eps * abs(true)
        assert abs(mpmath.mpc(one) * mpmath.mpc(q) - 1) <= 4 * eps


# ---- where they lie


@every_dtype
@pytest.mark.parametrize("size", SIZES)
def test_every_length_and_stride(size: int, dtype: str) -> None:
    """Packed, with gaps, backwards and the same throughout, read and written."""
    a, b, c = numbers(3 * size + 1, dtype), numbers(2 * size + 1, dtype, 1), numbers(1, dtype, 2)
    x, y, z = own(a), own(b), own(c)
    right = a[: 3 * size : 3][::-1] - b[1 : 2 * size : 2] + c
    found = x[: 3 * size : 3][::-1] - y[1 : 2 * size : 2] + z
    assert np.array_equal(compiled(found).numpy() if size else found.numpy(), right)
    out, mine = np.zeros(2 * size + 3, dtype), own(np.zeros(2 * size + 3, dtype))
    out[1 : 2 * size + 1 : 2] = right * 2 - 1j
    mine[1 : 2 * size + 1 : 2] = found * 2 - 1j
    assert np.array_equal(mine.numpy(), out)


@every_dtype
def test_axes_in_every_order(dtype: str) -> None:
    """Transposed beside packed, broadcast along either axis."""
    a = numbers(35 * 70, dtype).reshape(35, 70)
    x, row, column = own(a), own(a[:1]), own(a[:, :1])
    for mine, right in (
        (x.T + own(a.T.copy()), a.T + a.T),
        (x - row + column, a - a[:1] + a[:, :1]),
        (xt.conj(x[::2, ::-3]).T - 1j, np.conj(a[::2, ::-3]).T - 1j),
    ):
        assert np.array_equal(compiled(mine).numpy(), right)


@every_dtype
def test_code_stays_within_its_operands(dtype: str) -> None:
    """Whole and partial rounds, packed and strided, read and written."""
    modules: dict[str, Any] = {}
    with collected() as found:
        for n in (5, 8, 37):
            x = own(numbers(4 * n * n, dtype).reshape(2 * n, 2 * n))
            for value in (
                x * 2j + xt.conj(x),
                x[::2, ::3] * x[1::2, ::3],
                xt.sum(x * x, axis=0),
                xt.sum(x + 1, axis=1),
            ):
                value.evaluate()
            for value in (x.T / x, *[x - xt.mean(x, axis=axis, keepdims=True) for axis in (0, 1)]):
                value.evaluate()
            x[::2, 1::2] *= 1.5
            x[1::2] += x[::2] * 1j
    total = sum([check_launches(one, 1 + at % 3, modules) for at, one in enumerate(found)], Checked())
    assert total.run >= len(found) >= 27 and not total.foreign and not total.long


def test_results_past_the_caches() -> None:
    """Large results are written there, from an address that is no multiple of a vector."""
    a = numbers(1_700_001, "complex128")
    x = own(a)
    assert np.array_equal((x[1:] - 1.5).numpy(), a[1:] - 1.5)
    assert np.array_equal(xt.where(xt.real(x) > 0, xt.conj(x), x).numpy(), np.where(a.real > 0, np.conj(a), a))


@every_dtype
def test_conversions(dtype: str) -> None:
    """From every dtype, to the other complex one, and to truth values."""
    for source in xt.__array_namespace_info__().dtypes():
        values = np.array([0, 1, 3, 100, 1, 0] * 7).astype(source)
        with np.errstate(all="ignore"):
            right = (values.astype(dtype) + np.asarray(2, dtype)).astype(dtype)
        assert texts(compiled(xt.astype(own(values), getattr(xt, dtype)) + 2).numpy()) == texts(right)
    values = specials(dtype)
    with np.errstate(all="ignore"):
        for target in DTYPES:
            mine = -xt.astype(own(values), getattr(xt, target))
            assert texts(compiled(mine).numpy()) == texts(-values.astype(target))
    assert np.array_equal(compiled(xt.astype(own(values), xt.bool)).numpy(), values.astype(bool))


# ---- reductions

SHAPES = [(1,), (7,), (200,), (20_011,), (3, 5), (130, 70), (2, 40, 33), (1030, 4)]


@every_dtype
@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_sums_means_and_products(shape: tuple[int, ...], dtype: str) -> None:
    """Each part of a sum is as near to the true one as a sum of real numbers is; counts are exact."""
    a = numbers(math.prod(shape), dtype).reshape(shape)
    a[a.real > 1] = 0
    x, eps = own(a), float(np.finfo(dtype).eps)
    for axis in (None, *range(len(shape)), *([(0, 1)] if len(shape) > 1 else [])):
        wide = a.astype(np.clongdouble)
        size = np.sum(np.abs(a), axis=axis)
        total, mean = compiled(xt.sum(x, axis=axis)).numpy(), compiled(xt.mean(x, axis=axis)).numpy()
        assert total.dtype == mean.dtype == a.dtype
        bound = eps * size * max(8, math.log2(a.size))
        assert np.all(np.abs(total - np.sum(wide, axis=axis)) <= bound)
        assert np.all(np.abs(mean - np.mean(wide, axis=axis)) * (a.size / size.size) <= bound)
        assert np.array_equal(compiled(xt.count_nonzero(x, axis=axis)).numpy(), np.count_nonzero(a, axis=axis))
        assert np.array_equal(compiled(xt.any(x, axis=axis)).numpy(), np.any(a, axis=axis))
        assert np.array_equal(compiled(xt.all(x, axis=axis)).numpy(), np.all(a, axis=axis))
        turns = own(np.exp(1j * np.angle(a)).astype(dtype))  # of magnitude 1
        np.testing.assert_allclose(
            compiled(xt.prod(turns, axis=axis)).numpy(), np.prod(turns.numpy(), axis=axis), atol=a.size * 4 * eps
        )


@every_dtype
def test_sums_do_not_depend_on_threads(dtype: str) -> None:
    """Nor on what is computed in the same loop."""
    a = numbers(300_000, dtype).reshape(300, 1000)
    found = set()
    for threads in (1, 2):
        with xt.options(threads=threads):
            x = own(a)
            found.add((xt.sum(x).numpy().tobytes(), xt.sum(x, axis=0).numpy().tobytes()))
            both = xt.sum(x), xt.sum(x * x)
            assert both[1].shape == ()
            found.add((both[0].numpy().tobytes(), xt.sum(x, axis=0).numpy().tobytes()))
    assert len(found) == 1


def test_sums_of_special_values() -> None:
    """Infinities and NaN stay in their part; of negative zeros NumPy's sum is a positive one."""
    for values in ([complex(math.inf, 1), 2j], [complex(1, math.nan), 3 + 1j], [complex(-0.0, -0.0)] * 9):
        a = np.array(values)
        assert texts(xt.sum(own(a)).numpy()) == texts(np.sum(a))


@every_dtype
@pytest.mark.parametrize("axis", [0, 1])
def test_centring(axis: int, dtype: str) -> None:
    """A reduction and what follows, over rows and columns, with numbers in between."""
    a = numbers(400 * 130, dtype).reshape(400, 130)
    x = own(a)
    mine = (x * (2 - 1j) - xt.mean(x * (0.5 + 1j), axis=axis, keepdims=True)) / 3j
    right = (a * (2 - 1j) - np.mean(a * (0.5 + 1j), axis=axis, keepdims=True)) / 3j
    np.testing.assert_allclose(compiled(mine).numpy(), right, rtol=1e-4 if dtype == "complex64" else 1e-12)


# ---- functions

FUNCTIONS = ["exp", "log", "log2", "log10", "sqrt", "sin", "cos", "sinh", "cosh"]
EXACT = {"log2": lambda z: mpmath.log(z) / mpmath.log(2)}  # mpmath has no such function


def where_difficult(dtype: str) -> Array:
    """Return numbers of all sizes, near 1 and its circle, and such that e to their power is nearly too large."""
    rng = np.random.default_rng(3)
    base = rng.standard_normal(120) + 1j * rng.standard_normal(120)
    sizes, near = np.exp(rng.uniform(-60, 60, 120)), 10.0 ** rng.uniform(-12, 0, 120)
    large = 88.0 if dtype == "complex64" else 709.0
    edges = [large + rng.standard_normal(40) + 1j * rng.standard_normal(40) for _ in range(2)]
    return np.concatenate([base, base * sizes, 1 + base * near, np.exp(1j * base.real), base * 30, *edges]).astype(
        dtype
    )


@every_dtype
@pytest.mark.parametrize("name", FUNCTIONS)
def test_functions_are_within_four_eps(name: str, dtype: str) -> None:
    """Beside the size of the true value, where that is neither too large nor subnormal in any part."""
    a, limits = where_difficult(dtype), np.finfo(dtype)
    found = compiled(getattr(xt, name)(own(a))).numpy()
    checked = 0
    with mpmath.workprec(200):
        for value, mine in zip(a.tolist(), found.tolist(), strict=True):
            exact = EXACT.get(name, getattr(mpmath, name, None))(mpmath.mpc(value))
            if 1e6 * float(limits.tiny) < abs(exact) < float(limits.max):
                assert abs(mpmath.mpc(mine) - exact) <= 4 * float(limits.eps) * abs(exact), value
                checked += 1
    assert checked > 300


@every_dtype
@pytest.mark.parametrize("name", FUNCTIONS)
def test_what_functions_make_of_special_values(name: str, dtype: str) -> None:
    """As NumPy; the sign of a zero beside NaN is nobody's business."""
    a, least = specials(dtype), float(np.finfo(dtype).smallest_subnormal)
    with np.errstate(all="ignore"):
        right = getattr(np, name)(a)
    for value, mine, its in zip(a.tolist(), getattr(xt, name)(own(a)).numpy().tolist(), right.tolist(), strict=True):
        for one, other, beside in ((mine.real, its.real, its.imag), (mine.imag, its.imag, its.real)):
            if math.isfinite(other) and other:
                assert math.isclose(one, other, rel_tol=1e-5, abs_tol=least), value
            else:
                signless = other == 0 and math.isnan(beside)
                assert repr(abs(one) if signless else one) == repr(abs(other) if signless else other), value


# ---- what generated code lacks


def test_functions_are_the_librarys() -> None:
    """Beside those that generated code lacks, and in an expression with them, all is as NumPy has it."""
    a = numbers(5000, "complex128")
    x = own(a)
    z = xt.tan(x) * x + xt.conj(x)
    assert "there is no tan of complex128 in generated code" in xt.explain(z)
    assert np.array_equal(z.numpy(), np.tan(a) * a + np.conj(a))


# ---- gradients


def test_gradients() -> None:
    """Of real and imaginary parts, products, quotients and magnitudes: as differences have them."""
    a, b = numbers(5, "complex128"), numbers(5, "complex128", 1)
    check_grads(lambda x, y: xt.sum(xt.real(x * y / (x + 3)) - xt.imag(xt.conj(x) * (2 - 1j))), (a, b))
    check_grads(lambda x: xt.sum(xt.abs(x * (1 + 2j)) ** 2), (a,), order=1)
    check_grads(lambda x, y: xt.mean(xt.where(xt.real(x) > 0, x, y)), (a, b), order=1)


# ---- captured functions


def step(z: Any, c: Any, inside: Any) -> Any:
    """Write in place, through views and masks; return what is made."""
    inside[...] = abs(z) < 2.0
    z[inside] = z[inside] ** 2 + c[inside]
    z[::2] *= 1.5 - 0.5j
    z[1:] += c[:-1] / (2 + z[1:])
    c -= z.real
    return z * c.conj(), (z * 2j).sum()


@every_dtype
@pytest.mark.parametrize("engine", ["auto", "llvm", "interpret"])
def test_captured_functions(engine: str, dtype: str) -> None:
    """Called with other numbers, elsewhere in memory: arguments and results are the plain function's."""
    with xt.options(engine=engine, lazy="auto"):
        fast = xt.fuse(step)
        for call in range(4):
            z, c = numbers(1001, dtype, call), numbers(1001, dtype, call + 9)
            mine = own(z), own(c), xt.zeros(1001, dtype=xt.bool)
            plain = own(z), own(c), xt.zeros(1001, dtype=xt.bool)
            found, right = fast(*mine), step(*plain)
            for a, b in zip((*mine, found[0]), (*plain, right[0]), strict=True):
                assert np.array_equal(a.numpy(), b.numpy())
            size = np.sum(np.abs(mine[0].numpy()))
            assert abs(complex(found[1]) - complex(right[1])) <= 8 * np.finfo(dtype).eps * size
        assert fast.why(*mine) == ""


@pytest.mark.parametrize("dtype", ["complex64", "complex128"])
@pytest.mark.parametrize("name", ["cos", "cosh", "sin", "sinh", "exp"])
@pytest.mark.parametrize("engine", ["direct", "interpret", "llvm"])
def test_signs_of_zero_parts(engine: Any, name: str, dtype: str) -> None:
    """Beyond the first half turn a sine is negative: the sign of a zero decides on which branch a root of it is."""
    turns = np.array([0.5, 2.0, 3.2, 4.0, 5.0, 7.0, 100.0, 1e5])
    real = [complex(sign * turn, zero) for turn in turns for sign in (1, -1) for zero in (0.0, -0.0)]
    values = np.array(real if name in ("cos", "sin") else [complex(z.imag, z.real) for z in real], dtype=dtype)
    with xt.options(engine=engine, lazy="always"):
        found = getattr(xt, name)(xt.asarray(values)).numpy()
    wanted = np.array([getattr(cmath, name)(complex(z)) for z in values])
    for part in ("real", "imag"):
        mine, right = getattr(found, part), getattr(wanted, part)
        zero = right == 0
        np.testing.assert_array_equal(mine[zero], 0)
        np.testing.assert_array_equal(np.signbit(mine[zero]), np.signbit(right[zero]))
