"""The kernels that xtensor generates for CUDA, compiled by NVRTC and emulated, against NumPy and the CPU.

No GPU takes part: PTX is interpreted (tests/ptx) over host memory, with every access checked. What cannot be covered so
stands in NOT_GENERATED, by name and with the reason.
"""

from __future__ import annotations

import sys
import threading
import warnings
from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any

import emulated
import numpy as np
import programs
import ptx
import pytest
import test_every_op as every
from ptx import exact

import xtensor as xt
from benchmarks import gpu
from xtensor.base.dtypes import ALL
from xtensor.base.layout import Layout
from xtensor.calls.op import Op
from xtensor.codegen.cuda import nvrtc as cuda_build
from xtensor.run import cuda as cuda_run
from xtensor.tensor.face import face

if emulated.MISSING:
    pytest.skip(emulated.MISSING, allow_module_level=True)

Array = np.ndarray[Any, Any]
EXACT_WIDE = np.finfo(np.longdouble).nmant >= 63

# Rounded once, so that their bits are NumPy's; all other functions are within 2 units in the last place.
INEXACT = {"acos", "acosh", "asin", "asinh", "atan", "atan2", "atanh", "cos", "cosh", "exp", "expm1", "hypot", "log"}
INEXACT |= {"log1p", "log2", "log10", "logaddexp", "pow", "sin", "sinh", "tan", "tanh"}
GROUP = 6  # functions in one kernel
INEXACT_COMPLEX = {"abs", "sign", "sqrt", "reciprocal", "divide", "square", "multiply"}
COMPLEX_ORDER = "an order of complex numbers is NumPy's alone; the library compares"
NOT_GENERATED = {
    **{(name, kind): COMPLEX_ORDER for name in ("greater", "greater_equal", "less", "less_equal") for kind in "c"},
    **{(name, kind): COMPLEX_ORDER for name in ("maximum", "minimum") for kind in "c"},
    **{("reciprocal", kind): "NumPy's reciprocal of integers; the standard has none" for kind in "biu"},
    **{("pow", kind): "negative exponents raise, which looks at values" for kind in "biu"},
    ("nextafter", "float16"): "float16 is no dtype of the standard; NumPy makes it of 8-bit integers",
}


@pytest.fixture(scope="module")
def cuda() -> Iterator[emulated.Launches]:
    """The emulated device."""
    with emulated.device() as launches, warnings.catch_warnings():
        warnings.simplefilter("error")
        yield launches


def there(array: Array) -> xt.Tensor:
    """Return an array's values on the emulated device."""
    return xt.asarray(array, device="cuda:0")


def host(x: xt.Tensor) -> Array:
    """Return a tensor's values."""
    return np.asarray(x.to_device("cpu"))


def generates(op: Op, dtype: np.dtype[Any]) -> bool:
    """Whether there is generated code for an op of a dtype."""
    if dtype.itemsize == 1 and (op.name, str(op.dtype(*[dtype] * len(op.parameters)))) in NOT_GENERATED:
        return False
    return (op.name, dtype.kind) not in NOT_GENERATED


# ---- elementwise functions


def wide(dtype: np.dtype[Any]) -> Any:
    """Return the dtype in which NumPy's functions are exact enough to hold another's last bits against."""
    return {"f2": np.float64, "f4": np.float64, "f8": np.longdouble, "c8": np.complex128, "c16": np.clongdouble}[
        dtype.str[1:]
    ]


def points(op: Op, dtype: np.dtype[Any]) -> list[Array]:
    """Return operands: special values, each with each, and others; not a whole number of vectors."""
    special = every.special(dtype)
    special = special[::11] if dtype.kind == "c" else special
    count = len(op.parameters)
    grid = (
        [special]
        if count == 1
        else [x.reshape(-1) for x in np.broadcast_arrays(special[:, None], special, special[::-1])]
    )
    usual = [every.samples((151,), dtype, op.domain, seed) for seed in range(count)]
    return [np.concatenate([a, b]) for a, b in zip(grid, usual, strict=False)]


def truths(op: Op, operands: list[Array], dtype: np.dtype[Any]) -> Array:
    """Return NumPy's results in a wider dtype, of operands as the function takes them."""
    loop = np.result_type(dtype, *operands)
    with np.errstate(all="ignore"):
        return np.asarray(getattr(np, op.name)(*(x.astype(loop).astype(wide(loop)) for x in operands)))


def units_off(found: Array, truth: Array) -> Array:
    """Return how many units in the last place of its dtype results are from the truth."""
    limits = np.finfo(found.dtype)
    beyond = np.copysign(np.exp2(np.array(limits.maxexp, truth.dtype)), found)
    with np.errstate(all="ignore"):
        unit = np.spacing(np.minimum(np.abs(truth), limits.max).astype(found.dtype)).astype(truth.dtype)
        return np.abs(np.where(np.isinf(found), beyond, found.astype(truth.dtype)) - truth) / unit


def alike(found: Array, expected: Array) -> Array:
    """Where two real arrays have the same values: NaN, infinities, and zeros with their signs."""
    return (found == expected) & (np.signbit(found) == np.signbit(expected)) | (np.isnan(found) & np.isnan(expected))


def real_error(op: Op, found: Array, operands: list[Array], expected: Array) -> Array:
    """Return the units in the last place by which a real function is off; infinite where its kind of value is."""
    truth = truths(op, operands, found.dtype)
    error = units_off(found, truth)
    if op.name == "logaddexp":  # where it is near 0 by cancellation, units of the larger operand
        with np.errstate(all="ignore"):
            scale = np.spacing(np.max(np.abs(operands), axis=0).astype(found.dtype)).astype(truth.dtype)
            error = np.minimum(error, np.abs(found.astype(truth.dtype) - truth) / scale)
    return np.where(alike(found, expected), 0, np.where(np.isfinite(error) & (truth != 0), error, np.inf))


def complex_error(op: Op, found: Array, operands: list[Array], expected: Array) -> Array:
    """Return by how many epsilons a complex function is off: of its absolute value, or where that is not finite, of
    each part; infinite where a part's kind of value is another. Annex G of C leaves signs open where there is a NaN.
    """
    truth = truths(op, operands, found.dtype)
    if op.name == "log1p":  # NumPy's loses the real part of small operands
        truth = np.where(np.abs(operands[0]) < 1e-3, _log1p(operands[0].astype(truth.dtype)), truth)
    is_open = np.isnan(expected) | np.logical_or.reduce([np.isnan(x) for x in operands])
    eps = np.finfo(found.dtype).eps
    with np.errstate(all="ignore"):
        whole = np.abs(found.astype(truth.dtype) - truth) / np.maximum(np.abs(truth), np.finfo(found.dtype).tiny) / eps
        parts = []
        for mine, theirs in ((found.real, expected.real), (found.imag, expected.imag)):
            near = np.abs(mine - theirs) / np.abs(theirs) / eps
            same = alike(mine, theirs) | is_open & alike(np.abs(mine), np.abs(theirs))
            parts.append(np.where(same, 0, np.where(np.isfinite(near), near, np.inf)))
    apart = np.maximum(*parts)
    return np.where(apart == 0, 0, np.where(np.isfinite(whole), whole, apart))


def _log1p(z: Array) -> Array:
    """log(1 + z) of small complex numbers: 2 atanh(z / (2 + z))."""
    w = np.where(np.abs(z) < 1e-3, z, 0) / (2 + np.where(np.abs(z) < 1e-3, z, 0))
    return 2 * (w + w**3 / 3 + w**5 / 5 + w**7 / 7)


def complex_limit(op: Op, operands: list[Array], error: Array) -> Array:
    """Return how many epsilons a complex function may be off.

    A power is the exponential of a product, whose rounding counts as often as it is large; C says nothing of powers
    that are not finite.
    """
    if op.name != "pow":
        return np.full(error.shape, 4.0)
    a, b = (x.astype(complex) for x in operands)
    with np.errstate(all="ignore"):
        product = b * np.log(a)
        usual = np.isfinite(product) & (np.abs(product.real) < 600) & (np.abs(product.imag) < 1e6)
        if operands[0].dtype == np.complex64:
            usual &= np.abs(product.real) < 80
    return np.where(usual | (a == 0) & np.isfinite(b), 4 + 4 * np.abs(np.where(usual, product, 0)), np.inf)


def assert_elementwise(op: Op, found: Array, operands: list[Array], expected: Array) -> None:
    """Compare with NumPy: in every bit, or by units in the last place."""
    assert found.dtype == expected.dtype
    is_complex = any(x.dtype.kind == "c" for x in operands)
    if expected.dtype.kind in "fc" and (op.name in INEXACT or (is_complex and op.name in INEXACT_COMPLEX)):
        error = (complex_error if found.dtype.kind == "c" else real_error)(op, found, operands, expected)
        limit = complex_limit(op, operands, error) if is_complex else np.full(error.shape, 2.0)
        error = np.where(np.isinf(limit), 0, error)
        worst = int(np.argmax(error / limit))
        given = [x[worst] for x in operands]
        far = f"{error[worst]:.3g} off, one of {(error > limit).sum()} of {error.size}"
        assert error[worst] <= limit[worst], f"{op.name}{given}: {found[worst]!r}, not {expected[worst]!r}, {far}"
    else:
        wrong = (every.bits(found) != every.bits(expected)).reshape(found.size, -1).any(axis=1)
        lane = int(np.argmax(wrong))
        given = [x[lane] for x in operands]
        which = f"one of {wrong.sum()} of {found.size}"
        assert not wrong.any(), f"{op.name}{given}: {found[lane]!r}, not {expected[lane]!r}, {which}"


def by_arity(dtype: np.dtype[Any]) -> list[list[Op]]:
    """Return the ops that take a dtype and have generated code, in groups of one arity."""
    fit = [op for op in every.ELEMENTWISE.values() if not every.refuses(op, *[dtype] * len(op.parameters))]
    fit = [op for op in fit if generates(op, dtype)]
    found = []
    for count in (1, 2, 3):
        ops = [op for op in fit if len(op.parameters) == count]
        found += [ops[start : start + GROUP] for start in range(0, len(ops), GROUP)]
    return [group for group in found if group]


every_dtype = pytest.mark.parametrize("dtype", ALL.values(), ids=ALL.keys())


@every_dtype
def test_elementwise(cuda: emulated.Launches, dtype: np.dtype[Any]) -> None:
    """Every function of the standard on every dtype it takes, several as the outputs of one kernel."""
    if dtype in (np.float64, np.complex128) and not EXACT_WIDE:
        pytest.skip("long double, which last bits are held against, is no wider than float64 here")
    for group in by_arity(dtype):
        domain = group[0] if len({op.domain for op in group}) == 1 else None
        given = points(domain or group[0], dtype)
        operands = [there(x) for x in given]
        before = len(cuda.texts)
        results = [every.function_of(op)(*operands) for op in group]
        xt.evaluate(*results)
        assert len(cuda.texts) == before + 1, [op.name for op in group]
        for op, result in zip(group, results, strict=True):
            with xt.options(engine="interpret"):
                expected = host(every.function_of(op)(*map(xt.asarray, given)))
            assert_elementwise(op, host(result), given, expected)


@pytest.mark.parametrize("dtype", ["complex64", "complex128"])
def test_every_special_quotient(cuda: emulated.Launches, dtype: str) -> None:
    """All of them, each with each: among them zeros of both signs below."""
    special = every.special(np.dtype(dtype))
    given = [np.ascontiguousarray(x.reshape(-1)) for x in np.broadcast_arrays(special[:, None], special)]
    found = host(xt.divide(*map(there, given)))
    with xt.options(engine="interpret"):
        expected = host(xt.divide(*map(xt.asarray, given)))
    assert_elementwise(every.ELEMENTWISE["divide"], found, given, expected)


@pytest.mark.parametrize(("name", "kind"), NOT_GENERATED)
def test_what_is_not_generated(cuda: emulated.Launches, name: str, kind: str) -> None:
    """The list of what the emulator does not cover is right: the library computes it."""
    dtype = np.dtype({"b": "?", "i": "i4", "u": "u1", "c": "c8"}.get(kind, "i1"))
    op = every.ELEMENTWISE[name]
    before = len(cuda.texts)
    operands = [there(np.ones(5, dtype))] * len(op.parameters)
    every.function_of(op)(*operands).evaluate()
    assert len(cuda.texts) == before


# ---- how operands lie


def five(a: Any, n: int) -> Any:
    """Return the first elements in five axes."""
    return a.reshape((-1,))[:n].reshape((2, 3, 2, 3, 6))


def layouts() -> dict[str, Callable[[Array], tuple[Any, Any]]]:
    """Pairs of views of a (13, 17) array, to be taken of arrays there and on the host alike."""
    found: dict[str, Any] = {
        f"{n} elements": lambda a, n=n: (a.reshape((-1,))[:n], a.reshape((-1,))[100 : 100 + n])
        for n in (1, 2, 3, 7, 8, 17)
    }
    found |= {
        "begins between vectors": lambda a: (a.reshape((-1,))[1:100], a.reshape((-1,))[2:101]),
        "whole and between": lambda a: (a.reshape((-1,))[:99], a.reshape((-1,))[3:102]),
        "transposed": lambda a: (a.T, a.T),
        "transposed and not": lambda a: (a[:, :13], a[:, :13].T),
        "row": lambda a: (a, a[3:4, :]),
        "column": lambda a: (a, a[:, 3:4]),
        "row and column": lambda a: (a[2], a[:, 2:3]),
        "one element": lambda a: (a, a[1:2, 1:2]),
        "no axes": lambda a: (a[4, 5], a[0, 0]),
        "backwards": lambda a: (a[::-1], a[:, ::-1]),
        "every second": lambda a: (a[::2, ::-2], a[::-2, ::2]),
        "part of each row": lambda a: (a[:, 1:9], a[:, 5:13]),
        "nothing": lambda a: (a[:0], a[:0]),
        "five axes": lambda a: (five(a, 216)[:, ::-1, :, 1:], five(a, 216)[:, :, ::-1, :1, ::-1]),
    }
    return found


LAYOUTS = layouts()


@pytest.mark.parametrize(
    "dtypes", ["float32 float32", "int8 float64", "complex64 float32", "bool int16", "float64 int32"]
)
def test_layouts(cuda: emulated.Launches, dtypes: str) -> None:
    """Tails, operands between vectors, strides of all kinds, broadcasting."""
    first, second = (np.dtype(name) for name in dtypes.split())
    a, b = (np.random.default_rng(seed).integers(0, 100, (13, 17)).astype(d) for seed, d in ((1, first), (2, second)))
    ours = there(a), there(b)
    for name, views in LAYOUTS.items():
        x, y = views(a)[0], views(b)[1]
        before = len(cuda.texts)
        left, right = views(ours[0])[0], views(ours[1])[1]
        result, truth = left * right + left, left < right if first.kind != "c" else left == right
        xt.evaluate(result, truth)
        assert len(cuda.texts) == before + (result.size > 0), name
        every.assert_same(host(result), np.asarray(x * y + x))
        every.assert_same(host(truth), np.asarray(x < y if first.kind != "c" else x == y))


def test_wide_indices(cuda: emulated.Launches, monkeypatch: pytest.MonkeyPatch) -> None:
    """The form with 64-bit indices, taken for small operands as if 32 bits did not reach them."""
    monkeypatch.setattr(cuda_run, "REACH", 64)
    x = np.random.default_rng(3).integers(0, 100, (9, 33)).astype(np.float32)
    for view in (lambda a: a, lambda a: a[::-1, ::2], lambda a: a.T):
        ours = view(there(x))
        every.assert_same(host(ours * 2.0 + ours), np.asarray(view(x) * np.float32(2) + view(x)))
        assert "#define WIDE 1" in cuda.texts[-1]
        every.assert_same(host(xt.max(ours, axis=0)), np.asarray(view(x).max(axis=0)))
        every.assert_same(host(xt.sum(ours, axis=1)), np.asarray(view(x).sum(axis=1)))
        assert "#define WIDE 1" in cuda.texts[-1]


def test_scalars_of_all_kinds(cuda: emulated.Launches) -> None:
    """Python numbers on either side are run-time arguments: other numbers need no other code."""
    x = np.arange(-20, 21)
    for dtype in ("int32", "float32", "float64", "uint8", "complex64"):
        ours, theirs = there(x.astype(dtype)), x.astype(dtype)
        seen = set()
        for a, b in ((2, 5), (3, 7), (4, 100)):
            with np.errstate(all="ignore"):
                every.assert_same(host(a - (ours * b)), np.asarray(a - (theirs * b)))
                every.assert_same(
                    host(xt.where(ours == a, ours, b)), np.asarray(np.where(theirs == a, theirs, theirs.dtype.type(b)))
                )
            seen |= set(cuda.texts[-2:])
        assert len(seen) == 2


def test_chains_and_several_outputs(cuda: emulated.Launches) -> None:
    """What is wanted of a graph comes out of one kernel, and nothing is computed in between."""
    x, y = (np.random.default_rng(seed).uniform(-1, 1, 1003).astype(np.float32) for seed in (4, 5))
    a, b = there(x), there(y)
    total = a + b
    product = total * a
    choice = xt.where(product > 0, total, -b)
    before = len(cuda.texts)
    xt.evaluate(total, product, choice)
    assert len(cuda.texts) == before + 1
    every.assert_same(host(total), x + y)
    every.assert_same(host(product), (x + y) * x)
    every.assert_same(host(choice), np.where((x + y) * x > 0, x + y, -y))


def test_contraction_only_where_asked(cuda: emulated.Launches) -> None:
    """a * b + c is rounded twice; with fast_math it may be rounded once."""
    x, y, z = (np.random.default_rng(seed).uniform(-1, 1, 500) for seed in (6, 7, 8))
    a, b, c = there(x), there(y), there(z)
    every.assert_same(host(a * b + c), x * y + z)
    with xt.options(fast_math=True):
        found = host(a * b + c)
    once = exact.fma64(x, y, z, "rn")
    assert (found == once).all() and (once != x * y + z).any()


def test_writes_in_place(cuda: emulated.Launches) -> None:
    """Kernels write to views, and to memory that they read."""
    x = np.random.default_rng(9).uniform(-1, 1, (12, 10))
    mine, theirs = there(x), x.copy()
    for array in (mine, theirs):
        array[::2, 1:] += array[1::2, :-1] * 2
        array[3] = array[:, 3][:10] - 1
        array *= array.T[:1, :10]
    every.assert_same(host(mine), theirs)
    small = there(np.ones(3, np.uint8))
    for number in (300, -1):
        with pytest.raises(OverflowError, match="^add: "):
            small += number
    every.assert_same(host(small), np.ones(3, np.uint8))


@pytest.mark.parametrize("target", ALL.values(), ids=ALL.keys())
def test_conversions(cuda: emulated.Launches, target: np.dtype[Any]) -> None:
    """astype from every dtype, where the CPU's result does not depend on the processor."""
    for source in ALL.values():
        if source.kind == "c" and target.kind != "c":
            continue
        given = every.special(source)
        if source.kind == "f" and target.kind in "iu":
            limits = np.iinfo(target)
            with np.errstate(all="ignore"):
                given = given[(np.trunc(given) >= float(limits.min)) & (np.trunc(given) < float(limits.max))]
        with np.errstate(all="ignore"):
            every.assert_same(host(xt.astype(there(given), target)), given.astype(target))


# ---- reductions


SHAPES: list[tuple[tuple[int, ...], Any]] = [
    ((1,), None),
    ((31,), None),
    ((33,), 0),
    ((300,), None),
    ((40_000,), None),  # of several blocks, joined by a second launch
    ((7, 5), 1),
    ((7, 100), 1),
    ((3, 1500), 1),
    ((65, 9), 0),  # results side by side
    ((1200, 40), 0),  # likewise, in pieces
    ((6, 7, 8), (0, 2)),
    ((6, 7, 8), 1),
    ((5, 6, 4), None),
    ((4, 0), 0),
    ((4, 1), 1),
]
REDUCED = ["sum", "prod", "max", "min", "any", "all", "count_nonzero", "argmax", "argmin"]


@pytest.mark.parametrize("dtype", ["int32", "float32", "bool", "int8", "uint16", "uint64", "float64", "complex64"])
def test_reductions(cuda: emulated.Launches, dtype: str) -> None:
    """Sums, products, extrema and their places, truth: of numbers whose sums are exact, so in every bit."""
    rng = np.random.default_rng(10)
    for shape, axis in SHAPES if dtype == "float32" else SHAPES[1::3]:
        x = rng.integers(0, 2 if dtype == "bool" else 30, shape).astype(dtype)
        if x.dtype.kind in "ifc":
            x = x - np.array(15).astype(dtype)
        names = [name for name in REDUCED if x.dtype in every.REDUCTIONS[name].accepts and defined(name, x, axis)]
        ours = there(x)
        results = [getattr(xt, name)(ours, axis=axis) for name in names]
        xt.evaluate(*results)
        with xt.options(engine="interpret"):
            for name, result in zip(names, results, strict=True):
                every.assert_same(host(result), host(getattr(xt, name)(xt.asarray(x), axis=axis)))


def defined(name: str, x: Array, axis: Any) -> bool:
    """Whether a reduction has a result, and one that does not round."""
    if name.startswith("arg") and isinstance(axis, tuple):
        return False
    if name == "prod":
        return x.dtype.kind not in "fc"
    return x.size > 0 or name not in ("max", "min", "argmax", "argmin")


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_sums_are_near(cuda: emulated.Launches, dtype: str) -> None:
    """Sums, products and moments that round: within some units for each doubling of the length."""
    rng = np.random.default_rng(11)
    for shape, axis in SHAPES:
        x = rng.uniform(0.5, 1.5, shape).astype(dtype)
        if x.size == 0:
            continue
        names = [name for name in ("sum", "mean", "var", "std", "prod") if name != "prod" or x.size <= 1000]
        ours = there(x)
        results = [getattr(xt, name)(ours, axis=axis) for name in names]
        xt.evaluate(*results)
        for name, result in zip(names, results, strict=True):
            found, truth = host(result), getattr(np, name)(x.astype(np.longdouble), axis=axis)
            count = x.size // max(truth.size, 1)
            limit = (np.log2(count) + 4) * np.finfo(dtype).eps * (count if name == "prod" else 1)
            near = np.abs(found - truth) <= limit * np.maximum(np.abs(truth), np.finfo(dtype).eps)
            assert near.all(), (name, shape)


def test_reductions_of_special_values(cuda: emulated.Launches) -> None:
    """NaN wins, -0 and 0 keep their order, the first of equal ones is found."""
    nan, inf = np.nan, np.inf
    rows = [
        [1, nan, 2, nan],
        [-0.0, 0.0, -0.0, 0.0],
        [0.0, -0.0, 0.0, -0.0],
        [inf, -inf, 1, inf],
        [2, 2, 1, 1],
        [-inf, -inf, -inf, -inf],
    ]
    for dtype in ("float32", "float64"):
        for repeats in (1, 9, 100, 700):
            x = np.tile(np.array(rows, dtype), repeats)
            for a, axis in ((x, 1), (np.ascontiguousarray(x.T), 0)):
                ours = there(a)
                results = {name: getattr(xt, name)(ours, axis=axis) for name in REDUCED if name not in ("sum", "prod")}
                xt.evaluate(*results.values())
                for name, result in results.items():
                    found, expected = host(result), np.asarray(getattr(np, name)(a, axis=axis))
                    if name in ("max", "min"):  # where there are zeros of both signs, either
                        assert found.dtype == expected.dtype
                        assert ((found == expected) | np.isnan(found) & np.isnan(expected)).all()
                    else:
                        every.assert_same(found, expected)


def test_reductions_are_fused_and_repeat(cuda: emulated.Launches) -> None:
    """Maps go into reductions; several share a kernel; the result is the same wherever memory begins."""
    x = np.random.default_rng(12).uniform(-1, 1, 30_011).astype(np.float32)
    ours = there(x)
    before = len(cuda.texts)
    total, top = xt.sum(ours * ours + 1), xt.max(ours)
    xt.evaluate(total, top)
    assert len(cuda.texts) <= before + 4
    truth = (x.astype(np.float64) ** 2 + 1).sum()
    assert abs(float(total) - truth) < 1e-5 * truth and float(top) == x.max()
    shifted = there(np.concatenate([x[:1], x]))[1:]
    assert host(xt.sum(shifted * shifted + 1)) == host(total) == host(xt.sum(ours * ours + 1))


# ---- rows


def softmax(x: Any, xp: Any) -> Any:
    """Along the last axis."""
    e = xp.exp(x - xp.max(x, axis=-1, keepdims=True))
    return e / xp.sum(e, axis=-1, keepdims=True)


def layer_norm(x: Any, xp: Any) -> Any:
    """Along the last axis."""
    centred = x - xp.mean(x, axis=-1, keepdims=True)
    return centred / xp.sqrt(xp.mean(centred * centred, axis=-1, keepdims=True) + 1e-5)


def log_sum(x: Any, xp: Any) -> Any:
    """A number for each row."""
    top = xp.max(x, axis=-1, keepdims=True)
    return xp.squeeze(top, axis=-1) + xp.log(xp.sum(xp.exp(x - top), axis=-1))


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("program", [softmax, layer_norm, log_sum])
def test_row_programs(cuda: emulated.Launches, program: Callable[[Any, Any], Any], dtype: str) -> None:
    """A row goes through reductions and maps, in one kernel, whatever its length."""
    for rows, cells in ((1, 1), (5, 3), (40, 32), (9, 33), (3, 250), (2, 1000), (300, 7), (2, 5003)):
        x = np.random.default_rng(13).uniform(-3, 3, (rows, cells)).astype(dtype)
        before = len(cuda.texts)
        found = host(program(there(x), xt))
        if program is not log_sum and cells > 1:
            assert len(cuda.texts) == before + 1, (rows, cells)
        truth = program(x.astype(np.longdouble), np)
        scale = np.maximum(np.abs(truth), np.max(np.abs(truth)) / 8) + np.finfo(dtype).eps
        error = np.max(np.abs(found - truth) / scale) / np.finfo(dtype).eps
        assert error < 8 + 2 * np.log2(cells), (rows, cells, error)


def test_long_rows(cuda: emulated.Launches) -> None:
    """Rows that shared memory does not hold."""
    x = np.random.default_rng(14).uniform(-3, 3, (2, 30_000)).astype(np.float32)
    truth = softmax(x.astype(np.float64), np)
    assert np.abs(host(softmax(there(x), xt)) - truth).max() < 4e-6 * truth.max()
    x = np.random.default_rng(15).uniform(-3, 3, (300, 100)).astype(np.float32)
    truth = softmax(x.astype(np.float64), np)
    assert np.abs(host(softmax(there(x), xt)) - truth).max() < 4e-6 * truth.max()


@pytest.mark.parametrize(("most", "cells"), [(48 << 10, 12288), (227 << 10, 12288), (227 << 10, 58112)])
def test_rows_as_long_as_shared_memory(
    cuda: emulated.Launches, monkeypatch: pytest.MonkeyPatch, most: int, cells: int
) -> None:
    """What the code declares for its sums takes room beside the row; the device refuses more than it has."""
    monkeypatch.setattr(cuda_build, "most_shared", lambda number: most)
    x = np.random.default_rng(0).normal(size=(1, cells)).astype(np.float32)
    truth = softmax(x.astype(np.float64), np)
    assert np.abs(host(softmax(there(x), xt)) - truth).max() < 4e-6 * truth.max()


def test_numbers_between_multiples_of_their_size(cuda: emulated.Launches) -> None:
    """Complex numbers 8 bytes behind a vector, which one load of 16 bytes must not read, by rows and one by one."""
    memory = there(np.arange(20_001.0))
    real = memory.blob.view(Layout((100, 100), (1600, 16), 8), dtype=np.dtype(np.complex128))
    x, values = face(real), np.arange(1.0, 20_001.0).view(np.complex128).reshape(100, 100)
    for call in (lambda x, xp: x * 2.0, lambda x, xp: x - xp.sum(x, axis=1, keepdims=True)):
        every.assert_same(host(call(x, xt)), call(values, np))


def test_a_thread_without_the_devices_context(cuda: emulated.Launches) -> None:
    """The first launch of a thread, into memory that is there."""
    x = there(np.arange(100.0))
    thread = threading.Thread(target=lambda: x.__setitem__(..., x * 2.0 + 1.0))
    thread.start()
    thread.join()
    every.assert_same(host(x), np.arange(100.0) * 2 + 1)


def test_rows_of_views(cuda: emulated.Launches) -> None:
    """Row programs over parts of rows, rows backwards, and columns, one after the other."""
    x = np.random.default_rng(16).uniform(-3, 3, (12, 12, 12))
    ours = there(x)
    for view in (
        lambda a: a[3],
        lambda a: a[:, 3],
        lambda a: a[:, :, 0],
        lambda a: a[::-1, 5],
        lambda a: a[:, 0].T,
        lambda a: a[0, ::-1, ::-1],
    ):
        found, truth = host(softmax(view(ours), xt)), softmax(view(x), np)
        assert np.abs(found - truth).max() < 1e-15


# ---- the whole path


@pytest.mark.parametrize("seeds", [range(start, start + 12) for start in (0, 12, 24, 36)] + [[4231, 4304]], ids=str)
def test_random_programs(cuda: emulated.Launches, seeds: Any) -> None:
    """Programs drawn at random (tests/programs): values and errors, of all variables."""
    for seed in seeds:
        programs.kinds.check(programs.DEVICE, seed, programs.DEVICE.modes)


def test_rows_of_one_cell(cuda: emulated.Launches) -> None:
    """Reductions over no axes beside what follows them."""
    x = np.arange(3, dtype=np.uint32)
    ours = there(x)
    found = xt.astype(ours, xt.float32)
    least = xt.min(found, axis=(), keepdims=True)
    larger = least > 1
    xt.evaluate(found, least, larger)
    every.assert_same(host(least), x.astype(np.float32))
    every.assert_same(host(larger), x > 1)


def test_gradients(cuda: emulated.Launches) -> None:
    """A gradient of a small network, against the CPU's."""
    rng = np.random.default_rng(17)
    data = [rng.standard_normal(shape) for shape in ((20, 5), (5,), (20,))]

    def loss(w: Any, x: Any, y: Any) -> Any:
        hidden = xt.tanh(xt.sum(x * w, axis=-1))
        return xt.mean((1 - hidden) ** 2 * y) + xt.sum(xt.exp(-w * w))

    before = len(cuda.texts)
    x, w, y = (there(a) for a in data)
    found = host(xt.autograd.grad(loss)(w, x, y))
    assert len(cuda.texts) > before
    x, w, y = (xt.asarray(a) for a in data)
    expected = host(xt.autograd.grad(loss)(w, x, y))
    assert np.allclose(found, expected, rtol=1e-13, atol=0)


@pytest.mark.parametrize("architecture", ["compute_75", "compute_80", "compute_100"])
def test_other_architectures(architecture: str) -> None:
    """The same on what NVRTC makes for other devices."""
    x = np.random.default_rng(18).uniform(-2, 2, (37, 33)).astype(np.float32)
    with emulated.device(architecture):
        a = there(x)
        every.assert_same(host(a[::-1] * a + 2), x[::-1] * x + np.float32(2))
        every.assert_same(host(xt.max(a, axis=0)), x.max(axis=0))
        assert abs(float(xt.sum(a)) - x.sum(dtype=np.float64)) < 1e-3
        truth = softmax(x.astype(np.float64), np)
        assert np.abs(host(softmax(a, xt)) - truth).max() < 1e-6
        for name in ("exp", "sin", "pow", "erf", "log1p", "atan2"):
            if hasattr(xt, name):
                op = every.ELEMENTWISE[name]
                given = [np.abs(x).ravel()] * len(op.parameters)
                with xt.options(engine="interpret"):
                    expected = host(getattr(xt, name)(*map(xt.asarray, given)))
                assert_elementwise(op, host(getattr(xt, name)(*map(there, given))), given, expected)


# ---- that faults would be seen


def rebuilt(patch: pytest.MonkeyPatch, change: Callable[[str], str]) -> None:
    """Change the text of kernels before NVRTC gets it."""
    real = cuda_build.built
    patch.setattr(cuda_build, "built", lambda text, options: real(change(text), options))
    cuda_build.forget()


def without(words: str) -> Callable[[str], str]:
    """Return the change that takes words out of a text in which they stand."""

    def change(text: str) -> str:
        assert words in text
        return text.replace(words, "")

    return change


def test_benchmarks(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    """Every expression of the benchmark is right, in CuPy's names and in ours; times are not taken."""
    with emulated.device() as launches:
        library: Any = sys.modules["cupy"]
        library.get_default_memory_pool = lambda: SimpleNamespace(free_all_blocks=lambda: None)
        monkeypatch.setattr(gpu, "seconds_of", lambda call: [call(), 1.0][1])
        monkeypatch.setattr(gpu, "copy_bandwidth", lambda elements: 1.0)
        entered = [gpu.Xtensor("cuda:0"), gpu.Contestant("cuda:0")]
        monkeypatch.setattr(gpu, "ELEMENTWISE", 700 << 7)
        monkeypatch.setattr(gpu, "ROWS", 3000 << 7)
        text = gpu.compared_by_size(entered, quick=True)
        assert not {"failed", "wrong", "no"} & set(text.split()), capsys.readouterr().out
        assert text.count("1000.000") == len(gpu.CHOSEN) + 3 and len(launches.texts) >= len(gpu.CHOSEN) + 3
        monkeypatch.setattr(gpu, "PATIENCE", -1)
        assert gpu.compared_by_size(entered, quick=True).count("no time") == len(gpu.CHOSEN) + 3


def test_an_overrun_would_be_seen(cuda: emulated.Launches, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of memory that is one byte shorter than it is, the last element is out of bounds, whole vector or tail."""
    real = cuda.named
    monkeypatch.setattr(cuda, "named", lambda words: [memory[:-1] for memory in real(words)])
    for length in (64, 63):
        x = there(np.arange(float(length)))
        for call in (lambda x: x + 1.0, xt.sum, lambda x: softmax(xt.reshape(x, (1, -1)), xt)):
            with pytest.raises(ptx.OutOfBoundsError, match=f"buffer . of {8 * length - 1} bytes"):
                call(x).evaluate()


def test_a_missing_barrier_would_be_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    """Warps of a block meet in shared memory."""
    with emulated.device():
        x = there(np.arange(5077.0))
        assert float(xt.sum(x)) == 5077 * 5076 / 2
        rebuilt(monkeypatch, without("__syncthreads();"))
        with pytest.raises(ptx.RaceError, match="no barrier between"):
            xt.prod(x).evaluate()


def test_code_that_nvrtc_refuses(monkeypatch: pytest.MonkeyPatch) -> None:
    """The library does the work, and the warning holds NVRTC's words."""
    with emulated.device() as launches:
        rebuilt(monkeypatch, lambda text: text + "\nwrong;")
        x = there(np.arange(67.0))
        with pytest.warns(RuntimeWarning, match="no code that NVRTC takes.*\\n.*error"):
            y = (x * 5.0).evaluate()
        assert not launches.texts
        every.assert_same(host(y), np.arange(67.0) * 5)
