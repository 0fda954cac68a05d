"""The engines against NumPy computed step by step: what goes direct, interpreted and through generated code is one.

Exact operations agree in every bit, functions within the stated ulp; nothing else in memory changes, whatever is held,
written or looked at meanwhile. Random programs are in test_programs.py, laziness itself in test_lazy.py.
"""

from __future__ import annotations

import math
import operator
import random
import warnings
from collections.abc import Callable, Iterator
from functools import lru_cache
from itertools import combinations, permutations, product
from typing import Any

import numpy as np
import pytest

import xtensor as xt
import xtensor.memory
from xtensor.calls.op import REGISTRY
from xtensor.codegen.cpu import compile as compiling
from xtensor.codegen.cpu.compile import host
from xtensor.codegen.cpu.math import FUNCTIONS
from xtensor.plan.costs import COMPILED_AGAIN
from xtensor.run import replay

ENGINES = ["direct", "interpret", "llvm"]
every_engine = pytest.mark.parametrize("engine", ENGINES)

REAL = ["bool", "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64", "float32", "float64"]
COMPLEX = ["complex64", "complex128"]
FLOATS = ["float32", "float64"]


def under(engine: str, **more: Any) -> Any:
    """Record every call and run what is recorded by one engine."""
    return xt.options(**{"lazy": "always", "engine": engine, "cache_dir": "", **more})


@pytest.fixture(autouse=True)
def no_warnings() -> Iterator[None]:
    """Nothing may warn, and nothing may touch the settings of NumPy: here they would raise."""
    with warnings.catch_warnings(), np.errstate(all="raise"):
        warnings.simplefilter("error")
        before = np.geterr()
        yield
        assert np.geterr() == before


def quietly(function: Callable[..., Any], *args: Any, **params: Any) -> Any:
    """Return what NumPy computes, without its warnings."""
    with np.errstate(all="ignore"), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return function(*args, **params)


# ---- comparing


def bits_of(a: np.ndarray) -> np.ndarray:
    """Return elements as integers that have their bits, all NaNs being one."""
    a = np.ascontiguousarray(a)
    if a.dtype.kind == "c":
        a = a.view(f"f{a.dtype.itemsize // 2}")
    if a.dtype.kind == "f":
        a = np.where(np.isnan(a), np.array(np.nan, a.dtype), a)
    return a.view(f"u{a.dtype.itemsize}") if a.dtype.kind == "f" else a


def assert_same(mine: Any, right: Any, what: Any = "") -> None:
    """Compare bit by bit, dtype and shape included."""
    mine = mine.native() if isinstance(mine, xt.Tensor) else mine
    right = np.asarray(right)
    assert mine.dtype == right.dtype, f"{what}: dtype {mine.dtype}, NumPy {right.dtype}"
    assert mine.shape == right.shape, f"{what}: shape {mine.shape}, NumPy {right.shape}"
    a, b = bits_of(np.asarray(mine)), bits_of(right)
    if not np.array_equal(a, b):
        wrong = np.argwhere((a != b).reshape(-1))[:, 0]
        first = int(wrong[0]) // (2 if right.dtype.kind == "c" else 1)
        values = mine.reshape(-1)[first], right.reshape(-1)[first]
        raise AssertionError(
            f"{what}: {len(wrong)} of {a.size} differ, first at {first}: {values[0]}, NumPy {values[1]}"
        )


def ulps(mine: np.ndarray, right: np.ndarray) -> np.ndarray:
    """Return how many units in the last place of `mine`'s dtype two values are apart; `right` may be more precise."""
    narrow = right.astype(mine.dtype)
    finite = np.isfinite(mine) & np.isfinite(narrow)
    same = (mine == narrow) | (np.isnan(mine) & np.isnan(narrow))
    info = np.finfo(mine.dtype)
    size = np.maximum(np.abs(np.where(finite, right, 1)), info.tiny)
    unit = np.exp2(np.floor(np.log2(size)) - info.nmant)
    distance = np.abs(np.where(finite, mine, 0).astype(right.dtype) - np.where(finite, right, 0)) / unit
    return np.where(same, np.minimum(distance, 1), np.where(finite, distance, np.inf))


def assert_close(mine: Any, right: np.ndarray, limit: float, what: Any = "") -> None:
    """Compare within so many ulp."""
    mine = np.asarray(mine.native() if isinstance(mine, xt.Tensor) else mine)
    assert mine.shape == right.shape, f"{what}: shape {mine.shape}, NumPy {right.shape}"
    off = quietly(ulps, mine, right)
    if off.size and np.max(off) > limit:
        place = int(np.argmax(off))
        values = mine.reshape(-1)[place], right.reshape(-1)[place]
        raise AssertionError(f"{what}: {np.max(off):.1f} ulp at {place}: {values[0]!r}, NumPy {values[1]!r}")


# ---- operands


def special(dtype: str, size: int, seed: int = 0) -> np.ndarray:
    """Return small numbers with every extreme and special value of a dtype among them."""
    return _special(dtype, size, seed).copy()


@lru_cache(1024)  # every engine and most functions ask for the same
def _special(dtype: str, size: int, seed: int) -> np.ndarray:
    rng = np.random.default_rng(seed)
    kind = np.dtype(dtype).kind
    if kind == "b":
        return rng.random(size) < 0.5
    if kind in "iu":
        info = np.iinfo(dtype)
        ends = [info.min, info.min + 1, info.max, info.max - 1, info.max // 2, 0, 1]
        near = rng.integers(-3 if kind == "i" else 0, 12, size).astype(dtype)
        width = 8 * info.bits // 8
        ends += [width - 1, width, width + 1] + ([-1] if kind == "i" else [])
        anything = rng.integers(info.min, info.max, size, dtype=dtype, endpoint=True)
        picked = np.array(ends, object)[rng.integers(0, len(ends), size)].astype(dtype)
        which = rng.random(size)
        return np.where(which < 0.3, picked, np.where(which < 0.6, anything, near)).astype(dtype)
    if kind == "c":
        return (rng.integers(-8, 9, size) * 0.25 + 1j * rng.integers(-8, 9, size) * 0.5).astype(dtype)
    info = np.finfo(dtype)
    ends = [np.nan, -np.nan, np.inf, -np.inf, 0.0, -0.0, info.tiny, -info.tiny, info.smallest_subnormal]
    ends += [-info.smallest_subnormal, info.max, info.min, 1.0, -1.0, 0.5, -0.5, 1.5, 2.5, -2.5, 1 + info.eps, 0.1]
    ends += [2.0**info.nmant + 0.5, 2.0 ** (info.nmant - 1) + 0.5]
    picked = np.array(ends, dtype)[rng.integers(0, len(ends), size)]
    scaled = (rng.standard_normal(size) * 4.0 ** rng.integers(-6, 7, size)).astype(dtype)
    quarters = (rng.integers(-16, 17, size) * 0.25).astype(dtype)
    which = rng.random(size)
    return np.where(which < 0.3, picked, np.where(which < 0.65, scaled, quarters)).astype(dtype)


def tensor(a: np.ndarray) -> xt.Tensor:
    """Return an array's copy of our own, which nobody outside can write to."""
    return xt.asarray(a, copy=True)


LAYOUTS: dict[str, Callable[[np.ndarray], tuple[xt.Tensor, np.ndarray]]] = {}


def layout(function: Callable[[np.ndarray], tuple[xt.Tensor, np.ndarray]]) -> Any:
    """Enter a way in which an operand may lie in memory: from a packed matrix to a tensor and NumPy's same view."""
    LAYOUTS[function.__name__] = function
    return function


@layout
def packed(a: np.ndarray) -> tuple[xt.Tensor, np.ndarray]:
    return tensor(a), a


@layout
def transposed(a: np.ndarray) -> tuple[xt.Tensor, np.ndarray]:
    base = np.ascontiguousarray(a.T)
    return tensor(base).T, base.T


@layout
def backwards(a: np.ndarray) -> tuple[xt.Tensor, np.ndarray]:
    base = np.ascontiguousarray(a[::-1, ::-1])
    return tensor(base)[::-1, ::-1], base[::-1, ::-1]


@layout
def gaps(a: np.ndarray) -> tuple[xt.Tensor, np.ndarray]:
    base = np.zeros((a.shape[0], 3 * a.shape[1] + 1), a.dtype)
    base[:, 1::3] = a
    return tensor(base)[:, 1::3], base[:, 1::3]


@layout
def row_repeated(a: np.ndarray) -> tuple[xt.Tensor, np.ndarray]:
    base = np.ascontiguousarray(a[:1])
    return xt.broadcast_to(tensor(base), a.shape), np.broadcast_to(base, a.shape)


@layout
def column_repeated(a: np.ndarray) -> tuple[xt.Tensor, np.ndarray]:
    base = np.ascontiguousarray(a[:, :1])
    return tensor(base), base


@layout
def one_element(a: np.ndarray) -> tuple[xt.Tensor, np.ndarray]:
    base = np.array(a.flat[0])
    return tensor(base), base


@layout
def askew(a: np.ndarray) -> tuple[xt.Tensor, np.ndarray]:
    """An address that is no multiple of anything."""
    raw = np.zeros(a.nbytes + 1, np.uint8)
    raw[1:] = np.frombuffer(a.tobytes(), np.uint8)
    if a.dtype == bool:
        base = np.zeros(a.size + 1, bool)
        base[1:] = a.reshape(-1)
        return xt.reshape(tensor(base)[1:], a.shape), base[1:].reshape(a.shape)
    mine = tensor(raw)[1:].view(a.dtype)
    return xt.reshape(mine, a.shape), raw[1:].view(a.dtype).reshape(a.shape)


@layout
def offset(a: np.ndarray) -> tuple[xt.Tensor, np.ndarray]:
    base = np.zeros((a.shape[0] + 1, a.shape[1] + 3), a.dtype)
    base[1:, 2:-1] = a
    return tensor(base)[1:, 2:-1], base[1:, 2:-1]


def lie(a: np.ndarray, name: str) -> tuple[xt.Tensor, np.ndarray]:
    mine, right = LAYOUTS[name](a)
    assert mine.shape == right.shape and mine.dtype == right.dtype
    return mine, right


# ---- elementwise

# Functions that NumPy itself rounds differently from loop to loop; all other elementwise ops are exact.
INEXACT = {*FUNCTIONS, "logaddexp", "expm1", "hypot", "pow", "atan2"}
ELEMENTWISE = [name for name, op in REGISTRY.items() if op.kind == "elementwise" and hasattr(xt, name)]

# Which of two zeros NumPy's extrema return depends on the length and on the machine.
ZEROS_ALIKE = {"maximum", "minimum"}


def zero_signs_dropped(x: Any) -> np.ndarray:
    a = np.asarray(x.native() if isinstance(x, xt.Tensor) else x)
    return a + np.zeros((), a.dtype) if a.dtype.kind == "f" else a


def reference(name: str, *operands: Any) -> Any:
    """Return NumPy's value, where NumPy has the standard's; None where it refuses the dtypes."""
    function = {"round": np.rint, "imag": lambda a: np.imag(a).copy(), "real": lambda a: np.real(a).copy()}.get(name)
    if name == "floor_divide" and any(np.asarray(o).dtype.kind == "f" for o in operands):
        return floored(*operands)
    if name == "round" and np.asarray(operands[0]).dtype.kind in "biu":
        function = np.round
    try:
        return quietly(function or getattr(np, name), *operands)
    except (TypeError, ValueError):
        return None


def floored(a: Any, b: Any) -> Any:
    """Floor division with the standard's values for infinities."""
    found = np.asarray(quietly(np.floor_divide, a, b))
    infinite = quietly(lambda: np.isinf(np.asarray(a, found.dtype)) | np.isinf(np.asarray(b, found.dtype)))
    return np.where(infinite, quietly(lambda: np.floor(np.true_divide(a, b))).astype(found.dtype), found)


def precise(name: str, *operands: Any) -> Any:
    """Return NumPy's value in a dtype more precise than these."""
    dtype = np.result_type(*operands)
    wide = np.float64 if dtype.itemsize < 8 else np.longdouble
    wider = [np.asarray(o).astype(wide) if np.asarray(o).dtype.kind != "b" or name != "where" else o for o in operands]
    return quietly(getattr(np, name), *wider)


def compare(engine: str, name: str, mine: Any, operands: tuple[Any, ...], what: Any) -> None:
    """Compare a value of a function with NumPy's: exact ones by their bits, others within the stated ulp."""
    right = reference(name, *operands)
    if name in ZEROS_ALIKE:
        assert_same(zero_signs_dropped(mine), zero_signs_dropped(right), what)
    elif name not in INEXACT or mine.dtype.kind not in "f":
        assert_same(mine, right, what)
    elif engine != "llvm":
        assert_close(mine, np.asarray(right), 0 if name != "pow" else 1, what)  # NumPy itself
    else:
        assert mine.dtype == np.asarray(right).dtype
        wide = precise(name, *operands)
        if name == "logaddexp":  # where the result is near 0 its digits cancel, as NumPy's do
            off = quietly(lambda: np.abs(np.asarray(mine.native()) - wide) <= 2 * np.finfo(mine.dtype).eps)
            mine, right = (np.where(off, 0, v) for v in (mine.native(), right))
            wide = np.where(off, 0, wide)
        if mine.dtype == np.float32 and np.asarray(wide).dtype != np.float32:
            assert_close(mine, np.asarray(wide), 2, what)
        else:
            assert_close(mine, np.asarray(right), 3, what)


def accepted(name: str, dtypes: tuple[str, ...]) -> bool:
    op = REGISTRY[name]
    if op.fails_on_values(*(np.dtype(d) for d in dtypes)):
        return False
    try:
        op.dtype(*(np.dtype(d) for d in dtypes))
    except TypeError:
        return False
    return True


@every_engine
@pytest.mark.parametrize("name", ELEMENTWISE)
def test_every_op_and_dtype(name: str, engine: str) -> None:
    """Over packed memory, for special values and every length around a vector's."""
    arity = len(REGISTRY[name].parameters)
    for dtype in [*REAL, *COMPLEX]:
        dtypes = ("bool", dtype, dtype) if name == "where" else (dtype,) * arity
        if not accepted(name, dtypes):
            continue
        for size in (1, 2, 3, 7, 8, 15, 16, 17, 31, 33, 63, 64, 65, 70, 1000):
            arrays = [special(d, size, seed + size) for seed, d in enumerate(dtypes)]
            with under(engine):
                mine = getattr(xt, name)(*map(tensor, arrays)).evaluate()
            if dtype in COMPLEX:
                continue
            compare(engine, name, mine, tuple(arrays), (name, dtype, size))


@every_engine
@pytest.mark.parametrize("name", ELEMENTWISE)
def test_every_op_and_layout(name: str, engine: str) -> None:
    """Operands lie in every way, alike and each in another one."""
    arity = len(REGISTRY[name].parameters)
    dtype = "float32" if accepted(name, ("float32",) * arity) else "int32"
    dtypes = ("bool", dtype, dtype) if name == "where" else (dtype,) * arity
    names = list(LAYOUTS)
    for turn, first in enumerate(names):
        for second in names if arity > 1 else [first]:
            lies = [first, second, names[(turn + 4) % len(names)]][:arity]
            arrays = [special(d, 7 * 37, seed).reshape(7, 37) for seed, d in enumerate(dtypes)]
            with under(engine):
                pairs = [lie(a, one) for a, one in zip(arrays, lies, strict=True)]
                mine = getattr(xt, name)(*(x for x, _ in pairs)).evaluate()
            compare(engine, name, mine, tuple(n for _, n in pairs), (name, dtype, lies))


CHAINS: dict[str, Callable[..., Any]] = {
    "a * 2 + b": lambda xp, a, b: a * 2 + b,
    "-(a - b) * a": lambda xp, a, b: -(a - b) * a,
    "where": lambda xp, a, b: xp.where(a > b, a, b * 2),
    "masks": lambda xp, a, b: (a > b) & (a != 1) | (b <= a),
    "max of sums": lambda xp, a, b: xp.maximum(a + b, a - b),
    "mixed with truth": lambda xp, a, b: (a < b) + a,
    "squares": lambda xp, a, b: xp.square(a) + b * b,
    "absolute": lambda xp, a, b: xp.abs(a) + xp.abs(b),
}
SIZES = range(1, 71)


@every_engine
@pytest.mark.parametrize("chain", CHAINS)
@pytest.mark.parametrize("dtype", ["int8", "uint16", "int32", "int64", "float32", "float64"])
def test_every_length(dtype: str, chain: str, engine: str) -> None:
    """Whole vectors and every remainder, and nothing beside the elements is read or written."""
    function = CHAINS[chain]
    for size in SIZES:
        a, b = special(dtype, size + 2, size), special(dtype, size + 2, size + 100)
        target = special(dtype, size + 2, 5)
        mine = tensor(target)
        with under(engine):
            x, y = tensor(a), tensor(b)
            value = function(xt, x[1:-1], y[1:-1])
            right = quietly(function, np, a[1:-1], b[1:-1])
            assert_same(zero_signs_dropped(value), zero_signs_dropped(right), size)
            mine[1:-1] = function(xt, x[1:-1], y[1:-1])
        target[1:-1] = quietly(lambda r=right: r.astype(dtype))
        assert_same(zero_signs_dropped(mine), zero_signs_dropped(target), size)


@every_engine
@pytest.mark.parametrize(
    "shape", [(), (1,), (1, 1), (1, 5), (5, 1), (3, 1, 4), (2, 3, 4, 5), (2, 1, 3, 1, 2, 2), (0,), (3, 0)]
)
def test_every_shape(shape: tuple[int, ...], engine: str) -> None:
    """0-d, lengths of one, nothing at all, and many axes that cannot be joined."""
    a = special("float64", math.prod(shape), 1).reshape(shape)
    b = special("float64", math.prod(shape), 2).reshape(shape)
    order = tuple(range(len(shape)))[::-1]
    with under(engine):
        x, y = tensor(a), tensor(b)
        assert_same((x + y) * x - 1, quietly(lambda: (a + b) * a - 1))
        mixed = (x + xt.permute_dims(tensor(np.transpose(b, order)), order)) * 2
        assert_same(mixed, quietly(lambda: (a + b) * 2))
        z = xt.permute_dims(x, order) * 3 - 1
        assert_same(z, quietly(lambda: np.transpose(a, order) * 3 - 1))
        assert_same(xt.sum(xt.isnan(x) & (y > 0), axis=()), (np.isnan(a) & (b > 0)).sum(axis=(), dtype=np.int64))


@every_engine
def test_many_axes_in_every_order(engine: str) -> None:
    """Five axes, each operand with its own order, signs and gaps."""
    rng = np.random.default_rng(3)
    for turn in range(60):
        shape = tuple(int(n) for n in rng.integers(1, 5, 5))
        pairs = []
        for _ in range(3):
            order = rng.permutation(5)
            steps = [int(s) for s in rng.choice([-2, -1, 1, 2], 5)]
            base = rng.integers(
                -50, 50, [abs(s) * n for s, n in zip(np.array(steps)[order], np.array(shape)[order], strict=True)]
            )
            inverse = tuple(int(i) for i in np.argsort(order))
            key = tuple(slice(None, None, s) for s in steps)
            pairs.append((xt.permute_dims(tensor(base), inverse)[key], np.transpose(base, inverse)[key]))
        mine, right = zip(*pairs, strict=True)
        with under(engine):
            value = mine[0] * mine[1] - mine[2]
            total = xt.sum(value, axis=(1, 3))
            value.evaluate()
            assert_same(total, (right[0] * right[1] - right[2]).sum(axis=(1, 3)), turn)
        assert_same(value, right[0] * right[1] - right[2], turn)
        assert value.strides == (right[0] * right[1] - right[2]).strides or 1 in shape


INFIX = [
    "add",
    "sub",
    "mul",
    "truediv",
    "floordiv",
    "mod",
    "pow",
    "lt",
    "le",
    "eq",
    "ne",
    "gt",
    "ge",
    "and_",
    "or_",
    "xor",
]
INFIX += ["lshift", "rshift"]
NAMES = (
    {"add": "add", "sub": "subtract", "mul": "multiply", "truediv": "divide", "floordiv": "floor_divide"}
    | {"mod": "remainder", "pow": "pow", "lt": "less", "le": "less_equal", "eq": "equal", "ne": "not_equal"}
    | {"gt": "greater", "ge": "greater_equal", "and_": "bitwise_and", "or_": "bitwise_or", "xor": "bitwise_xor"}
    | {"lshift": "bitwise_left_shift", "rshift": "bitwise_right_shift"}
)
NUMBERS = [0, 1, 2, 3, -1, 5, 7, 100, 127, True, False, 0.0, -0.0, 1.5, -0.25, 0.1, 1e30, 1e39, -1e300, 5e-324]
NUMBERS += [math.inf, -math.inf, math.nan, 1 << 40, -(1 << 31)]


@every_engine
@pytest.mark.parametrize("word", INFIX)
def test_scalars_on_either_side(word: str, engine: str) -> None:
    """Python numbers take on the other operand's dtype, or make it wider, as NumPy has it."""
    call = getattr(operator, word)
    numpys = np.power if word == "pow" else call  # NumPy's own ** has dtypes of its own for small exponents
    for dtype in REAL:
        a = special(dtype, 45, 9)
        for number in NUMBERS:
            for swap in (False, True):
                operands = (number, a) if swap else (a, number)
                try:
                    right = quietly(numpys, *operands)
                except (TypeError, OverflowError, ValueError) as error:
                    with under(engine), pytest.raises(type(error)):
                        x = tensor(a)
                        _ = (call(number, x) if swap else call(x, number)).evaluate()
                    continue
                with under(engine):
                    x = tensor(a)
                    mine = call(number, x) if swap else call(x, number)
                    mine.evaluate()
                what = (word, dtype, number, swap)
                assert mine.dtype == right.dtype, what
                if NAMES[word] == "floor_divide" and right.dtype.kind == "f":
                    right = floored(*operands)
                if word == "pow" and right.dtype.kind == "f":
                    close = quietly(
                        lambda r=right, o=operands: (
                            r if r.dtype == np.float64 else np.power(*(np.asarray(v, r.dtype).astype(float) for v in o))
                        )
                    )
                    assert_close(mine, close, 3 if right.dtype == np.float64 else 2, what)
                else:
                    assert_same(mine, right, what)


@every_engine
@pytest.mark.parametrize(
    "name",
    [
        "add",
        "multiply",
        "subtract",
        "divide",
        "maximum",
        "less",
        "equal",
        "greater_equal",
        "floor_divide",
        "remainder",
        "bitwise_and",
        "bitwise_left_shift",
        "where",
        "copysign",
        "logical_and",
    ],
)
def test_mixed_dtypes(name: str, engine: str) -> None:
    """Every pair of dtypes meets in NumPy's."""
    for first in REAL:
        for second in REAL:
            if not accepted(name, ("bool", first, second) if name == "where" else (first, second)):
                continue
            arrays = [special(first, 70, 1), special(second, 70, 2)]
            if name == "where":
                arrays.insert(0, special("bool", 70, 3))
            right = reference(name, *arrays)
            if right is None:
                continue
            with under(engine):
                mine = getattr(xt, name)(*map(tensor, arrays)).evaluate()
            assert mine.dtype == right.dtype
            drop = zero_signs_dropped if name in ZEROS_ALIKE else np.asarray
            assert_same(drop(mine.native()), drop(right), (name, first, second))


@every_engine
@pytest.mark.parametrize("source", [*REAL])
def test_casts(source: str, engine: str) -> None:
    """Every conversion, alone and inside a chain; floats only where C says what comes out."""
    for target in REAL:
        a = special(source, 200, 3)
        if np.dtype(source).kind == "f" and np.dtype(target).kind in "iu":
            info = np.iinfo(target)
            limit = float(np.nextafter(np.dtype(source).type(info.max), np.dtype(source).type(0)))
            a = quietly(
                lambda a=a, info=info, limit=limit: np.clip(np.nan_to_num(a), max(info.min, -limit - 1), limit)
            ).astype(source)
            if info.min == 0:
                a = np.abs(a)
        right = quietly(a.astype, target)
        with under(engine):
            x = tensor(a)
            assert_same(xt.astype(x, np.dtype(target)), right, target)
            mine = xt.astype(xt.positive(x) if source != "bool" else ~x, np.dtype(target))
            assert_same(mine, right if source != "bool" else quietly((~a).astype, target), target)


@every_engine
@pytest.mark.parametrize("dtype", FLOATS)
def test_functions_in_chains_and_layouts(dtype: str, engine: str) -> None:
    """Functions keep their accuracy wherever they stand and however their operands lie."""
    rng = np.random.default_rng(1)
    a = rng.uniform(0.1, 3, (40, 67)).astype(dtype)
    for name in LAYOUTS:
        with under(engine):
            x, n = lie(a, name)
            mine = xt.exp(-x) * xt.log(x + 1) + xt.tanh(x) * xt.sin(x) - xt.sqrt(x) ** 3
            mine.evaluate()
        wide = n.astype(np.float64 if dtype == "float32" else np.longdouble)
        right = np.exp(-wide) * np.log(wide + 1) + np.tanh(wide) * np.sin(wide) - np.sqrt(wide) ** 3
        scale = np.finfo(dtype).eps * (1 + np.abs(np.sqrt(wide) ** 3))
        assert np.max(np.abs(np.broadcast_to(np.asarray(mine.native()), right.shape) - right) / scale) < 6, name


@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("exponent", [2, 3, 4, 0.5, -1, -2, 0, 1, 2.0, 3.0, 1.5, -0.5, 10, math.inf, math.nan])
def test_powers(exponent: float, dtype: str) -> None:
    """Exponents that become multiplications give what the power gives, special values and signs included."""
    a = special(dtype, 700, 4)
    with under("llvm"):
        mine = (tensor(a) ** exponent).evaluate()
    right = quietly(lambda: np.power(a, np.full(a.shape, exponent, dtype)))  # a scalar 0.5 is a square root in NumPy
    if dtype == "float32":
        assert_close(mine, quietly(lambda: np.power(a.astype(float), np.full(a.shape, float(exponent)))), 2, exponent)
    assert_close(mine, right, 3, exponent)
    exact = np.isnan(right) | np.isinf(right) | (right == 0)
    assert_same(np.asarray(mine.native())[exact], right[exact], exponent)


# ---- reductions

REDUCTIONS = [name for name, op in REGISTRY.items() if op.kind == "reduction"]
ONE_AXIS = ("argmin", "argmax")
FLOATING_RESULTS = ("sum", "prod", "mean", "var", "std")


def axes_of(name: str, ndim: int) -> list[Any]:
    """Return every `axis` a reduction takes over so many axes."""
    if name in ONE_AXIS:
        return [None, *range(ndim)]
    return [None, *(subset for count in range(ndim + 1) for subset in combinations(range(ndim), count))]


def numpys_reduction(name: str, a: np.ndarray, **params: Any) -> Any:
    """Return NumPy's value in the standard's dtypes."""
    if name in ("sum", "prod"):
        kinds = {"b": np.int64, "i": np.int64, "u": np.uint64}
        return quietly(getattr(np, name), a, dtype=kinds.get(a.dtype.kind), **params)
    return quietly(getattr(np, name), a, **params)


def assert_reduced(name: str, mine: xt.Tensor, a: np.ndarray, what: Any, **params: Any) -> None:
    """Compare a reduction: exactly, or as closely as sums of floating numbers allow."""
    right = np.asarray(numpys_reduction(name, a, **params))
    native = np.asarray(mine.native())
    assert native.shape == right.shape, what
    if name in ("max", "min"):
        native, right = zero_signs_dropped(native), zero_signs_dropped(right)
    if name not in FLOATING_RESULTS or right.dtype.kind != "f":
        assert_same(native, right, what)
        return
    assert native.dtype == right.dtype, what
    wide = a.astype(np.longdouble)
    exact = np.asarray(quietly(getattr(np, name), wide, **params))
    count = a.size / max(right.size, 1)
    scale = (
        np.abs(exact)
        if name in ("prod", "var", "std")
        else quietly(np.sum if name == "sum" else np.mean, np.abs(wide), **params)
    )
    limit = (
        np.finfo(right.dtype).eps * (4 + 3 * math.log2(max(count, 1)) + (count if name == "prod" else 0)) * scale
        + 1e-300
    )
    bad = quietly(
        lambda: ~((np.abs(native - exact) <= limit) | (np.isnan(native) & np.isnan(exact)) | (native == right))
    )
    assert not np.any(bad), f"{what}: {native[bad][:3]}, NumPy {right[bad][:3]}"


SHAPES = [
    (1,),
    (5,),
    (70,),
    (1, 1),
    (3, 17),
    (17, 3),
    (1, 40),
    (40, 1),
    (3, 4, 9),
    (2, 1, 33),
    (2, 3, 4, 5),
    (1, 3, 1, 2),
]


@every_engine
@pytest.mark.parametrize("dtype", ["bool", "int8", "uint32", "int64", "float32", "float64"])
@pytest.mark.parametrize("name", REDUCTIONS)
def test_every_reduction(name: str, dtype: str, engine: str) -> None:
    """Over every set of axes, with and without them kept, of packed and of transposed memory."""
    if np.dtype(dtype) not in REGISTRY[name].accepts and (dtype != "bool" or name not in ("sum", "mean", "var")):
        return
    for shape in SHAPES:
        a = special(dtype, math.prod(shape), 7).reshape(shape)
        if np.dtype(dtype).kind == "f" and name in FLOATING_RESULTS:
            a = np.random.default_rng(1).uniform(-2, 2, shape).astype(dtype)
        order = tuple(range(len(shape)))[::-1]
        pairs = [
            (tensor(a), a),
            (xt.permute_dims(tensor(np.transpose(a, order)), order), a),
            (tensor(a)[::-1], a[::-1]),
        ]
        for place, (x, n) in enumerate(pairs):
            for axis in axes_of(name, len(shape)):
                for keepdims in (False, True):
                    what = (name, dtype, shape, axis, keepdims, place)
                    with under(engine):
                        mine = getattr(xt, name)(x, axis=axis, keepdims=keepdims).evaluate()
                    assert_reduced(name, mine, n, what, axis=axis, keepdims=keepdims)


@every_engine
@pytest.mark.parametrize("name", [name for name in REDUCTIONS if REGISTRY[name].of_nothing is not None])
@pytest.mark.parametrize("shape", [(0,), (3, 0), (0, 3), (2, 0, 3)])
def test_reductions_of_nothing(shape: tuple[int, ...], name: str, engine: str) -> None:
    """No elements at all, alone and inside an expression."""
    a = np.zeros(shape)
    for axis in axes_of(name, len(shape)):
        right = numpys_reduction(name, a, axis=axis) if name in ("sum", "prod", "any", "all", "count_nonzero") else None
        with under(engine):
            mine = getattr(xt, name)(tensor(a) * 2, axis=axis).evaluate()
        if right is not None:
            assert_same(mine, right, axis)
        elif mine.size:
            assert np.isnan(np.asarray(mine.native())).all()


def test_shapes_that_stay_tell_their_axes() -> None:
    """Reducing an axis of length 1 keeps the shape: graphs of 2 and of 3 axes are not one expression."""
    rng = np.random.default_rng(3)
    for shape in [(500, 1), (500, 1), (500, 1), (500, 1, 70), (500, 1, 70), (500, 1, 70)]:
        a = rng.uniform(1.0, 2.0, shape)
        with under("llvm"):
            x = tensor(a)
            mine = (x / xt.sum(x, axis=1, keepdims=True)).evaluate()
        assert_same(mine, a / np.sum(a, axis=1, keepdims=True), shape)


@every_engine
def test_reductions_of_nothing_keep_the_order(engine: str) -> None:
    """The product over an axis without elements lies as NumPy's does: in the order of what was empty."""
    a = np.transpose(np.zeros((0, 2, 3)), (2, 0, 1))
    with under(engine):
        mine = xt.prod(xt.permute_dims(tensor(np.zeros((0, 2, 3))), (2, 0, 1)), axis=1).evaluate()
    assert mine.native().strides == np.prod(a, axis=1).strides


@every_engine
@pytest.mark.parametrize("name", REDUCTIONS)
def test_reductions_lie_as_numpys_do(name: str, engine: str) -> None:
    """What comes after a reduction inside an expression lies as after NumPy's, whatever the order of the axes."""
    base = np.random.default_rng(4).integers(0, 3, (4, 3, 2)).astype("float64")
    for order in permutations(range(3)):
        a = np.transpose(base, order)
        for axis, keepdims in product(axes_of(name, 3), (False, True)):
            with under(engine):
                reduced = getattr(xt, name)(xt.permute_dims(tensor(base), order), axis=axis, keepdims=keepdims)
                mine = (reduced == reduced).evaluate()
            right = numpys_reduction(name, a, axis=axis, keepdims=keepdims)
            for length, stride, numpys in zip(mine.shape, mine.native().strides, (right == right).strides, strict=True):
                assert length == 1 or stride == numpys, (order, axis, keepdims)


LARGE = [
    (100_003,),
    (16385,),
    (16384,),
    (3, 40_000),
    (70_000, 3),
    (1025, 40),
    (600, 5, 7),
    (3, 1300, 4),
    (5, 7, 33_000),
    (2, 600, 2, 9),
]


@every_engine
@pytest.mark.parametrize("dtype", ["float32", "float64", "int32"])
@pytest.mark.parametrize("shape", LARGE)
def test_large_reductions(shape: tuple[int, ...], dtype: str, engine: str) -> None:
    """Rows and columns that are cut into pieces, alone, after an expression and before one."""
    a = np.random.default_rng(2).uniform(0.5, 2, shape).astype(dtype)
    if dtype == "int32":
        a = special(dtype, math.prod(shape), 1).reshape(shape)
    for axis in axes_of("sum", len(shape)):
        with under(engine):
            x = tensor(a)
            total, top, low, some, every, count = (
                xt.sum(x, axis=axis),
                xt.max(x * 2, axis=axis),
                xt.min(x, axis=axis, keepdims=True),
                xt.any(x > 1.9999, axis=axis),
                xt.all(x > 0.6, axis=axis),
                xt.count_nonzero(x > 1, axis=axis),
            )
            shifted = x - low
            again = xt.sum(shifted, axis=axis) * 2 + 1
            xt.evaluate(total, top, low, some, every, count, again)
            transposed = xt.sum(xt.permute_dims(x, tuple(range(len(shape)))[::-1]) * 1, axis=axis)
        if engine == "llvm" or dtype == "int32":
            assert_reduced("sum", total, a, axis, axis=axis)
            assert_reduced("sum", transposed, np.transpose(a), axis, axis=axis)
        assert_same(top, quietly(lambda axis=axis: (a * 2).max(axis=axis)), axis)
        assert_same(low, a.min(axis=axis, keepdims=True), axis)
        assert_same(some, (a > 1.9999).any(axis=axis), axis)
        assert_same(every, (a > 0.6).all(axis=axis), axis)
        assert_same(count, np.asarray((a > 1).sum(axis=axis)), axis)
        assert_same(shifted, quietly(lambda axis=axis: a - a.min(axis=axis, keepdims=True)), axis)
        last = quietly(
            lambda axis=axis: (
                (a - a.min(axis=axis, keepdims=True)).sum(axis=axis, dtype=np.longdouble if dtype != "int32" else None)
                * 2
                + 1
            )
        )
        if dtype == "int32":
            assert_same(again, last, axis)
        else:
            np.testing.assert_allclose(
                np.asarray(again.native(), np.float64),
                last.astype(np.float64),
                rtol=2e-4 if dtype == "float32" else 1e-12,
            )


@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("size", [1, 7, 100, 5000, 16384, 16385, 100_000, 1_000_000])
def test_sums_are_close_to_the_exact_one(size: int, dtype: str) -> None:
    """Within a few ulp for each doubling of the length, of numbers of one sign and of both, of rows and of columns."""
    rng = np.random.default_rng(size)
    for a in (
        rng.uniform(0, 1, size),
        rng.standard_normal(size),
        rng.standard_normal(size) * 10.0 ** rng.integers(-6, 6, size),
    ):
        a = a.astype(dtype)
        exact, scale = math.fsum(a.astype(float)), math.fsum(np.abs(a.astype(float)))
        limit = scale * np.finfo(dtype).eps * (2 + math.log2(size))
        with under("llvm"):
            row = float(xt.sum(tensor(a)))
            column = np.asarray(xt.sum(tensor(np.stack([a, -a], 1)) * 1.0, axis=0).native())
            mean = float(xt.mean(tensor(a) * 1))
        assert abs(row - exact) <= limit
        assert abs(float(column[0]) - exact) <= 3 * limit and abs(float(column[1]) + exact) <= 3 * limit
        assert abs(mean - exact / size) <= limit / size


def threads_program() -> list[np.ndarray]:
    """Return values of everything whose order of summing could depend on threads."""
    rng = np.random.default_rng(5)
    a = rng.standard_normal((1200, 1100)).astype(np.float32)
    long = rng.standard_normal(1_500_000)
    deep = rng.standard_normal((300, 17, 301)).astype(np.float32)
    x, y, z = tensor(a), tensor(long), tensor(deep)
    values = [
        xt.sum(x),
        xt.sum(x, axis=0),
        xt.sum(x, axis=1),
        xt.sum(x.T * 2, axis=0),
        xt.mean(x * x),
        xt.std(x, axis=1),
        xt.var(x, axis=0),
        xt.prod(xt.exp(x * 1e-3), axis=1),
        xt.sum(y),
        xt.sum(xt.exp(y) * y),
        xt.mean(y),
        xt.std(y),
        *[xt.sum(z * 1.5, axis=axis) for axis in (0, 1, 2, (0, 1), (0, 2), (1, 2))],
        *[
            xt.exp(x - xt.max(x, axis=1, keepdims=True))
            / xt.sum(xt.exp(x - xt.max(x, axis=1, keepdims=True)), axis=1, keepdims=True)
        ],
        (x - xt.mean(x, axis=1, keepdims=True)) / xt.std(x, axis=1, keepdims=True),
        (x - xt.mean(x, axis=0)) / xt.std(x, axis=0),
        x.T + x.T * 2,
        xt.tanh(y) * 2 + 1,
    ]
    xt.evaluate(*values)
    return [np.array(value.native()) for value in values]


@every_engine
def test_threads_and_runs_change_no_bit(engine: str) -> None:
    """One, two, three threads, and twice the same."""
    runs = []
    for threads in (1, 2, 3, 2, 7):
        with under(engine, threads=threads):
            runs.append(threads_program())
    for others in runs[1:]:
        for place, (one, other) in enumerate(zip(runs[0], others, strict=True)):
            assert_same(other, one, place)


@every_engine
def test_several_reductions_in_one_graph(engine: str) -> None:
    """Over the same axes they share a loop, over others they do not; each with other dtypes, all right."""
    rng = np.random.default_rng(8)
    for shape in [(7, 9), (300, 500), (5, 40, 600), (20_000, 2)]:
        a = rng.integers(-9, 10, shape).astype(np.float64)
        b = rng.integers(-9, 10, shape).astype(np.int32)
        with under(engine):
            x, y = tensor(a), tensor(b)
            e = x * 2 + y
            mine = [
                xt.sum(e, axis=0),
                xt.sum(e, axis=1),
                xt.sum(e),
                xt.max(e, axis=0),
                xt.min(e, axis=0, keepdims=True),
                xt.argmax(e, axis=1),
                xt.count_nonzero(y, axis=0),
                xt.any(e > 20, axis=1),
                xt.sum(y, axis=0),
                xt.prod(xt.sign(y), axis=1),
                e,
                xt.sum(xt.sum(e, axis=0)),
                e - xt.max(e, axis=0),
                xt.cumulative_sum(xt.sum(e, axis=tuple(range(1, e.ndim)))),
                xt.mean(e, axis=-1) + xt.min(e),
            ]
            xt.evaluate(*mine)
        f = a * 2 + b
        right = [
            f.sum(axis=0),
            f.sum(axis=1),
            f.sum(),
            f.max(axis=0),
            f.min(axis=0, keepdims=True),
            f.argmax(axis=1),
            np.count_nonzero(b, axis=0),
            (f > 20).any(axis=1),
            b.sum(axis=0, dtype=np.int64),
            np.sign(b).prod(axis=1, dtype=np.int64),
            f,
            f.sum(axis=0).sum(),
            f - f.max(axis=0),
            np.cumsum(f.sum(axis=tuple(range(1, f.ndim)))),
            f.mean(axis=-1) + f.min(),
        ]
        for place, (one, other) in enumerate(zip(mine, right, strict=True)):
            if place == 14:
                np.testing.assert_allclose(np.asarray(one.native()), other, rtol=1e-13)
            else:
                assert_same(zero_signs_dropped(one), zero_signs_dropped(other), (shape, place))


@every_engine
def test_extremes_with_nan_and_infinities(engine: str) -> None:
    """NaN wins wherever it stands; infinities of both signs sum to NaN, without a warning."""
    for size in (1, 5, 16, 33, 70, 1000, 20_000, 40_001):
        for at in {0, size // 2, size - 1}:
            for dtype in FLOATS:
                a = np.linspace(-1, 1, size).astype(dtype)
                a[at] = np.nan
                with under(engine):
                    x = tensor(a)
                    for value in (
                        xt.max(x),
                        xt.min(x),
                        xt.max(x + 0),
                        xt.sum(x),
                        xt.min(tensor(np.stack([a, a], 1)), axis=0)[0],
                    ):
                        assert math.isnan(float(value)), (size, at)
        if size > 1:
            a = np.zeros(size)
            a[0], a[-1] = np.inf, -np.inf
            with under(engine):
                x = tensor(a)
                assert math.isnan(float(xt.sum(x))) and math.isnan(float(xt.mean(x * 1)))
                assert float(xt.max(x)) == math.inf and float(xt.min(x)) == -math.inf
                assert float(xt.prod(tensor(np.full(size, 1e200)))) == math.inf


# ---- row programs


def softmax(x: Any, axis: int = -1) -> Any:
    e = xt.exp(x - xt.max(x, axis=axis, keepdims=True))
    return e / xt.sum(e, axis=axis, keepdims=True)


def rows_of(n: np.ndarray, axis: Any) -> dict[str, Any]:
    """Return the row programs' values, in more digits than xtensor has."""
    w = n.astype(np.float64 if n.dtype == np.float32 else np.longdouble)
    top = w.max(axis=axis, keepdims=True)
    e = np.exp(w - top)
    m, s = w.mean(axis=axis, keepdims=True), w.std(axis=axis, keepdims=True)
    return {
        "softmax": e / e.sum(axis=axis, keepdims=True),
        "logsumexp": np.log(e.sum(axis=axis, keepdims=True)) + top,
        "log softmax": w - top - np.log(e.sum(axis=axis, keepdims=True)),
        "centred": w - m,
        "standard": (w - m) / s,
        "unit": w / np.sqrt((w * w).sum(axis=axis, keepdims=True)),
        "minmax": (w - w.min(axis=axis, keepdims=True)) / (top - w.min(axis=axis, keepdims=True)),
    }


def our_rows(x: xt.Tensor, axis: Any) -> dict[str, xt.Tensor]:
    top = xt.max(x, axis=axis, keepdims=True)
    e = xt.exp(x - top)
    total = xt.sum(e, axis=axis, keepdims=True)
    m, s = xt.mean(x, axis=axis, keepdims=True), xt.std(x, axis=axis, keepdims=True)
    low = xt.min(x, axis=axis, keepdims=True)
    return {
        "softmax": e / total,
        "logsumexp": xt.log(total) + top,
        "log softmax": x - top - xt.log(total),
        "centred": x - m,
        "standard": (x - m) / s,
        "unit": x / xt.sqrt(xt.sum(x * x, axis=axis, keepdims=True)),
        "minmax": (x - low) / (top - low),
    }


ROW_SHAPES = [
    ((3, 5), -1),
    ((500, 300), -1),
    ((500, 300), 0),
    ((4, 50, 260), -1),
    ((4, 50, 260), (1, 2)),
    ((4, 50, 260), 1),
    ((70_000, 2), -1),
]
ROW_SHAPES += [
    ((5, 40_000), -1),
    ((2, 100_000), -1),
    ((40_000,), -1),
    ((1, 50_000), -1),
    ((33_000, 1), -1),
    ((65, 4, 3, 70), (-2, -1)),
]


@lru_cache(4)  # for every engine
def row_operands(shape: tuple[int, ...], axis: Any, dtype: str) -> tuple[np.ndarray, dict[str, Any]]:
    """Return operands, and for each of the row programs its values and what differences are measured by."""
    n = np.random.default_rng(4).uniform(-3, 3, shape).astype(dtype)
    sizes = {name: (one, np.abs(one)) for name, one in quietly(rows_of, n, axis).items()}
    return n, {name: (one, np.maximum(size, size.max() * 0.01 + 1e-30)) for name, (one, size) in sizes.items()}


@every_engine
@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize(("shape", "axis"), ROW_SHAPES)
def test_row_programs(shape: tuple[int, ...], axis: Any, dtype: str, engine: str) -> None:
    """Softmax and its kin, each alone and all at once, packed, transposed and with gaps."""
    axis = axis if isinstance(axis, tuple) else (axis,)
    n, right = row_operands(shape, axis, dtype)
    count = math.prod(shape[a] for a in axis)
    limit = np.finfo(dtype).eps * (30 + 5 * math.log2(count)) * (1 if engine == "llvm" else 20)
    wide = np.zeros((*shape[:-1], shape[-1] * 2), dtype)
    wide[..., ::2] = n
    order = tuple(range(len(shape)))[::-1]
    for place in range(3):
        for alone in (True, False):
            with under(engine):
                x = [tensor(n), xt.permute_dims(tensor(np.transpose(n, order)), order), tensor(wide)[..., ::2]][place]
                mine = our_rows(x, axis)
                if alone:
                    mine = {name: our_rows(x, axis)[name].evaluate() for name in mine}
                else:
                    xt.evaluate(*mine.values())
            for name, value in mine.items():
                expected, scale = right[name]
                native = np.asarray(value.native())
                assert native.shape == expected.shape and native.dtype == dtype
                if not np.isfinite(scale).all() or (name == "standard" and count < 8):  # rows of one number, nearly
                    continue
                off = np.abs(native - expected) / scale
                assert off.max() < limit * (4 if name in ("standard", "centred") else 1), (
                    name,
                    place,
                    alone,
                    off.max() / limit,
                )


@every_engine
@pytest.mark.parametrize("dtype", FLOATS)
def test_layer_norm_with_parameters(dtype: str, engine: str) -> None:
    """Parameters along the row, one for each row, for each batch, for each step, and in other dtypes."""
    rng = np.random.default_rng(6)
    b, t, c = 6, 50, 320
    n = rng.standard_normal((b, t, c)).astype(dtype)
    shapes = [(c,), (1, c), (t, c), (t, 1), (b, 1, 1), (b, t, 1), (b, 1, c), (1, 1, 1), (), (b, t, c)]
    m, v = n.mean(axis=-1, keepdims=True, dtype=np.longdouble), n.astype(np.longdouble).var(axis=-1, keepdims=True)
    normal = (n - m) / np.sqrt(v + 1e-5)
    for one in shapes:
        for other in [(c,), (b, t, 1), (t, 1)]:
            g, h = rng.uniform(1, 2, one).astype(dtype), rng.uniform(1, 2, other).astype(np.float32)
            with under(engine):
                x = tensor(n)
                mean = xt.mean(x, axis=-1, keepdims=True)
                value = (x - mean) / xt.sqrt(xt.var(x, axis=-1, keepdims=True) + 1e-5) * tensor(g) + tensor(h)
                value.evaluate()
            off = np.abs(np.asarray(value.native()) - (normal * g + h))
            assert off.max() < np.finfo(dtype).eps * 200, (one, other)


@every_engine
def test_row_programs_keep_what_is_held(engine: str) -> None:
    """Intermediate rows and narrow values that are held come out right too, and can be used again."""
    n = np.random.default_rng(4).uniform(-3, 3, (400, 300))
    with under(engine):
        x = tensor(n)
        top = xt.max(x, axis=1, keepdims=True)
        shifted = x - top
        e = xt.exp(shifted)
        total = xt.sum(e, axis=1, keepdims=True)
        value = e / total
        value.evaluate()
        again = value * total
        x[...] = 0.0
        np.testing.assert_allclose(np.asarray(again.native()), np.exp(n - n.max(axis=1, keepdims=True)), rtol=1e-14)
    assert_same(top, n.max(axis=1, keepdims=True))
    assert_same(shifted, n - n.max(axis=1, keepdims=True))
    np.testing.assert_allclose(np.asarray(e.native()), np.exp(n - n.max(axis=1, keepdims=True)), rtol=1e-15)
    np.testing.assert_allclose(
        np.asarray(total.native()), np.exp(n - n.max(axis=1, keepdims=True)).sum(axis=1, keepdims=True), rtol=1e-14
    )


# ---- what is kept


@every_engine
@pytest.mark.parametrize("size", [7, 5000, 200_000])
def test_values_held_in_every_order(size: int, engine: str) -> None:
    """Whatever is held, dropped, asked for first or used from outside: all values are right."""
    rng = np.random.default_rng(size)
    a, b = rng.uniform(-2, 2, size), rng.uniform(1, 2, size)
    for turn in range(25):
        with under(engine):
            x, y = tensor(a), tensor(b)
            mine: dict[str, Any] = {"s": x + y, "d": x - y}
            mine["p"] = mine["s"] * mine["d"]
            mine["q"] = mine["p"] / y
            mine["m"] = mine["q"] > mine["d"]
            mine["w"] = xt.where(mine["m"], mine["p"], mine["s"])
            mine["t"] = xt.max(mine["w"])
            mine["u"] = mine["w"] - mine["t"]
            mine["k"] = xt.count_nonzero(mine["m"])
            mine["v"] = mine["u"] * mine["s"]
            outside = mine["p"] + 1, mine["w"] * 2
            dropped = [name for name in mine if rng.random() < 0.4]
            for name in dropped:
                del mine[name]
            names = list(mine)
            rng.shuffle(names)
            if turn % 3 == 0:
                xt.evaluate(*(mine[name] for name in names))
            for name in names:
                mine[name].evaluate()
        s, d = a + b, a - b
        p = s * d
        q = p / b
        m = q > d
        w = np.where(m, p, s)
        right = {
            "s": s,
            "d": d,
            "p": p,
            "q": q,
            "m": m,
            "w": w,
            "t": w.max(),
            "u": w - w.max(),
            "k": np.asarray(np.count_nonzero(m)),
        }
        right["v"] = right["u"] * s
        for name in names:
            assert_same(mine[name], right[name], (turn, name))
        assert_same(outside[0], p + 1)
        assert_same(outside[1], w * 2)


@every_engine
@pytest.mark.parametrize("count", [2, 191, 192, 193, 400, 2000])
def test_many_values_at_once(count: int, engine: str) -> None:
    """Evaluated together, or by the write that they wait before."""
    a = np.arange(5.0)
    with under(engine):
        for how in ("together", "write", "last first"):
            x = tensor(a)
            values = [(x + float(i)) * 2 for i in range(count)]
            if how == "together":
                xt.evaluate(*values)
                assert not any(value.is_pending for value in values)
            elif how == "write":
                x[...] = 100.0
            else:
                values[-1].evaluate()
                x += 100.0
            for i, value in enumerate(values):
                assert_same(value, (a + i) * 2, (how, i))


@every_engine
@pytest.mark.parametrize("steps", [63, 191, 192, 193, 385, 3000])
def test_long_graphs(steps: int, engine: str) -> None:
    """However many steps wait behind one value."""
    with under(engine, fuse_limit=1 << 60):
        x = tensor(np.arange(5.0))
        y, middle = x, None
        for step in range(steps):
            y = y + 1 if step % 3 else y - x
            if step == steps // 2:
                middle = y * 2
        n = m = np.arange(5.0)
        for step in range(steps):
            n = n + 1 if step % 3 else n - np.arange(5.0)
            if step == steps // 2:
                m = n * 2
        assert_same(y, n)
        assert_same(middle, m)


def random_steps(xp: Any, values: list[Any], steps: int, seed: int) -> Any:
    """Compute so many steps of values made shortly before, some of them several times; return what depends on many."""
    kinds = (
        lambda a, b: a + b,
        lambda a, b: a - b,
        lambda a, b: a * b * 0.25,
        lambda a, b: a / (b * b + 1.5),
        lambda a, b: xp.sqrt(xp.abs(a)),
        lambda a, b: b - a * 0.5,
    )
    draw, made = random.Random(seed), list(values)
    for _ in range(steps):
        a, b = made[-draw.choice((1, 1, 2, 3))], made[-draw.randint(1, min(30, len(made)))]
        made.append(draw.choice(kinds)(a, b))
    for value in made[-20:-1]:
        made[-1] = made[-1] + value
    return made[-1]


@every_engine
@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("steps", [40, 300, 1000, 3000])
def test_expressions_of_many_steps(steps: int, dtype: str, engine: str) -> None:
    """Whatever order their steps are made in, and where they are cut, they give NumPy's bits."""
    arrays = list(np.random.default_rng(steps).uniform(-1.0, 1.0, (3, 1037)).astype(dtype))
    with under(engine, fuse_limit=1 << 60):
        for seed in range(2):
            z = random_steps(xt, [tensor(a) for a in arrays], steps, seed)
            assert_same(z, random_steps(np, arrays, steps, seed))


@every_engine
def test_results_of_many_steps(engine: str) -> None:
    """More values than one loop writes, reduced over several axes, beside a chain of more steps than one has."""
    a = np.random.default_rng(0).uniform(0.5, 1.0, (30, 200))
    with under(engine, fuse_limit=1 << 60):
        x = tensor(a)
        values = [x * (1.0 + i) for i in range(70)]
        largest = [xt.max(value, axis=1) for value in values] + [xt.min(value * 0.5, axis=0) for value in values]
        chain, right = values[3], a * 4.0
        for step in range(2200):
            chain = chain + 1.0 if step % 2 else chain * 0.999
            right = right + 1.0 if step % 2 else right * 0.999
        end = xt.max(chain, axis=1)
        xt.evaluate(*values, *largest, chain, end)
    assert_same(chain, right)
    assert_same(end, right.max(axis=1))
    for i in range(70):
        assert_same(values[i], a * (1.0 + i))
        assert_same(largest[i], (a * (1.0 + i)).max(axis=1))
        assert_same(largest[70 + i], (a * (1.0 + i) * 0.5).min(axis=0))


@pytest.mark.skipif(host() is None, reason="generated code needs llvmlite and a fused multiply-add")
def test_a_second_time_over_many_elements_is_compiled() -> None:
    """However little library calls take for it; fewer elements wait until those would have taken long."""
    for n, compiled in ((COMPILED_AGAIN, True), (COMPILED_AGAIN // 4, False)):
        x = tensor(np.arange(float(n), dtype=np.float32))
        with xt.options(cache_dir="", lazy="always"):
            for _ in range(3):
                before = xt.cache_info().kernels
                (x - np.float32(n)).evaluate()
            assert "it is compiled" in xt.explain(x - np.float32(n)) if compiled else before == xt.cache_info().kernels


# ---- fused writes


def keep(*values: Any) -> list[Any]:
    return list(values)


WRITES: dict[str, Callable[..., list[Any]]] = {}


def program(function: Callable[..., list[Any]]) -> Callable[..., list[Any]]:
    """Enter a program of writes into x, which sees three square matrices and says what else is to be compared."""
    WRITES[function.__name__] = function
    return function


@program
def update_held(xp: Any, x: Any, y: Any, z: Any) -> list[Any]:
    value = 2 * y + z
    x += value
    later = value * 2
    return keep(value, later)


@program
def update_not_held(xp: Any, x: Any, y: Any, z: Any) -> list[Any]:
    x += 2 * y + z
    x -= y * z
    x *= y + 1
    x /= z * z + 1
    return keep(x + 0)


@program
def assign_held(xp: Any, x: Any, y: Any, z: Any) -> list[Any]:
    value = y * 2 - z
    before = x + 1
    x[...] = value
    y *= 0
    return keep(value, before, value + x)


@program
def assign_reading_itself(xp: Any, x: Any, y: Any, z: Any) -> list[Any]:
    value = x * 2 + y
    x[...] = value
    after = value + 1
    value += 5
    return keep(value, after)


@program
def assign_reading_itself_twice(xp: Any, x: Any, y: Any, z: Any) -> list[Any]:
    inner = x - z
    x[...] = inner * inner + x
    return keep(inner)


@program
def assign_not_held(xp: Any, x: Any, y: Any, z: Any) -> list[Any]:
    old = x * 3
    x[...] = xp.where(x > 0, y, x + z)
    return keep(old)


@program
def every_second(xp: Any, x: Any, y: Any, z: Any) -> list[Any]:
    x[::2] *= y[::2] + 2
    x[:, 1::3] -= z[:, 1::3] * 2
    x[::-1] += y * z
    x[::-2, ::-1] = y[::2] * 2 + 1 if len(x) % 2 else y[1::2] * 2 + 1
    return []


@program
def shifted(xp: Any, x: Any, y: Any, z: Any) -> list[Any]:
    x[1:] += x[:-1]
    x[:-1] += x[1:] * 2 + y[1:]
    x[:, 1:] -= x[:, :-1] + 1
    x[1:, 1:] = x[:-1, :-1] * 2 + x[1:, 1:]
    return []


@program
def turned(xp: Any, x: Any, y: Any, z: Any) -> list[Any]:
    x[...] = x[::-1] + 1
    x[...] = x[:, ::-1] * 2 - x
    x += x.T
    x[...] = x.T * y
    x -= x.T + x
    return []


@program
def centred(xp: Any, x: Any, y: Any, z: Any) -> list[Any]:
    x -= xp.max(x)
    x -= xp.min(x, axis=0)
    x *= xp.max(y, axis=1, keepdims=True)
    x[...] = x - xp.max(x, axis=1, keepdims=True) * 2
    return []


@program
def broadcast(xp: Any, x: Any, y: Any, z: Any) -> list[Any]:
    x += x[0] * 2
    x *= y[:, :1] + x[:, :1]
    x[...] = z[3] + 1
    x += x[1, 1] + z[2, 2]
    x[2] = x[3] * 2 + z[3]
    return []


@program
def views_of_x(xp: Any, x: Any, y: Any, z: Any) -> list[Any]:
    row, column, corner, back = x[1], x[:, 2], x[1:3, 1:3], x[::-1]
    waiting = [row + 1, column * 2, corner - 1, back + y, x.T * 2]
    x *= y + z
    row += column * 2
    corner[...] = corner.T + 1
    more = [row * 2, back + 1]
    x[1:3] -= 1
    return keep(row, column, corner, back, *waiting, *more)


@program
def chain_of_readers(xp: Any, x: Any, y: Any, z: Any) -> list[Any]:
    a = x + y
    b = a * x
    x += b
    c = x * a
    x -= c + b
    d = b + c
    x[...] = d - x
    return keep(a, b, c, d)


@program
def the_same_value_into_two(xp: Any, x: Any, y: Any, z: Any) -> list[Any]:
    value = x * y + z
    x[...] = value
    z += value
    y[...] = value * x
    return keep(value)


@program
def value_of_a_write(xp: Any, x: Any, y: Any, z: Any) -> list[Any]:
    first = x + 1
    x += first
    x += first
    second = first * 2
    first -= x
    x[...] = first
    return keep(first, second)


@program
def into_columns(xp: Any, x: Any, y: Any, z: Any) -> list[Any]:
    t = x.T
    t += y * 2 + z
    t[...] = t * y + x
    u = x[::2].T
    u *= y[:, ::2] - 1
    return keep(t + 0)


@program
def updates_again(xp: Any, x: Any, y: Any, z: Any) -> list[Any]:
    for _ in range(5):
        x -= 2 * y + z
    waiting = x * 3
    x -= 2 * y + z
    step = 2 * y + z
    x -= step
    y += 1
    x -= 2 * x + z
    x -= 2 * y[::-1] + z
    return keep(waiting, step, step + x)


@program
def assignments_again(xp: Any, x: Any, y: Any, z: Any) -> list[Any]:
    for _ in range(5):
        x[...] = y * 2 + z
    waiting = x - 1
    x[...] = y * 2 + z
    value = y * 2 + z
    x[...] = value
    z += 1
    x[...] = x * 2 + z
    x[...] = x.T * 2 + z
    return keep(waiting, value, value + x)


@program
def rows_again(xp: Any, x: Any, y: Any, z: Any) -> list[Any]:
    for _ in range(5):
        x[1:] += y[1:] * 2 - z[1:]
    x[1:] += x[:-1] * 2 - z[1:]
    x[1:] += x[1:] * 2 - z[1:]
    x[:-1] += y[1:] * 2 - x[1:]
    below = x[1:]
    below += y[1:] * 2 - z[1:]
    return keep(below)


class Plain:
    """NumPy with the two reductions these programs use."""

    where = staticmethod(np.where)
    max = staticmethod(np.max)
    min = staticmethod(np.min)


@every_engine
@pytest.mark.parametrize("name", WRITES)
@pytest.mark.parametrize("size", [4, 5, 70, 301])
@pytest.mark.parametrize("dtype", ["float32", "float64", "int64"])
def test_fused_writes(dtype: str, size: int, name: str, engine: str) -> None:
    """Writes leave what NumPy's leave, in the target, its views, its readers and everything else."""
    if dtype == "int64" and name == "update_not_held":
        pytest.skip("NumPy refuses /= of integers")
    rng = np.random.default_rng(size)
    base = rng.integers(-9, 10, (size + 2, size + 2)).astype(dtype)
    others = [rng.integers(-9, 10, (size, size)).astype(dtype) for _ in range(2)]
    for lazy in ("always", "auto"):
        for inset in (False, True):
            n, m, k = base.copy(), *(a.copy() for a in others)
            mine = [tensor(a) for a in (n, m, k)]
            right = quietly(WRITES[name], Plain, n[1:-1, 1:-1] if inset else n[:size, :size].copy(), m, k)
            x = mine[0][1:-1, 1:-1] if inset else tensor(base[:size, :size])
            y = base.copy()[1:-1, 1:-1] if inset else base[:size, :size].copy()
            n, m, k = base.copy() if inset else y, *(a.copy() for a in others)
            right = quietly(WRITES[name], Plain, n[1:-1, 1:-1] if inset else n, m, k)
            with under(engine, lazy=lazy):
                got = WRITES[name](xt, x, *mine[1:])
                what = (lazy, inset)
                assert_same(zero_signs_dropped(mine[0] if inset else x), zero_signs_dropped(n), what)
                for place, (one, other) in enumerate(zip([*mine[1:], *got], [m, k, *right], strict=True)):
                    assert_same(zero_signs_dropped(one), zero_signs_dropped(other), (*what, place))


@pytest.mark.skipif(compiling.host() is None, reason="nothing compiles here")
@pytest.mark.parametrize("size", [50_000, 300_000])
def test_updates_that_come_again_are_not_planned(size: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """What was written before is one loop into the target at once, while nobody waits to read that."""
    planned = []
    real = replay.planned
    monkeypatch.setattr(replay, "planned", lambda *given: planned.append(1) or real(*given))

    def work(x: Any, y: Any, z: Any) -> None:
        x -= 0.25 * y
        z += x * 2.0 + y
        y[...] = x * 0.5 - z * 0.125

    mine = [tensor(np.arange(size, dtype=np.float32) % 17 - place) for place in range(3)]
    right = [np.arange(size, dtype=np.float32) % 17 - np.float32(place) for place in range(3)]
    with xt.options(engine="llvm", cache_dir=""):
        for turn in range(12):
            if turn == 6:
                planned.clear()
            work(*mine)
            work(*right)
            if turn == 8:
                waiting, expected = mine[0] * 3.0, right[0] * np.float32(3)
    assert len(planned) <= 2  # where somebody waited, and his own
    for x, n in zip([*mine, waiting], [*right, expected], strict=True):
        assert_same(x, n)


@every_engine
@pytest.mark.parametrize("target", ["int8", "int32", "uint8", "float32", "float64", "bool", "complex64"])
@pytest.mark.parametrize("source", ["int32", "float32", "float64", "bool"])
def test_writes_that_convert(source: str, target: str, engine: str) -> None:
    """Assignment converts as NumPy's does, also a value that waits and is held."""
    rng = np.random.default_rng(3)
    for size in (9, 70_000):
        a, b = (rng.integers(0, 50, size).astype(source) for _ in range(2))
        n = np.zeros(size + 1, target)
        with under(engine):
            x, y, z = tensor(n), tensor(a), tensor(b)
            value = xt.where(y > z, y, z)
            x[1:] = value
            z[...] = xt.asarray(0, dtype=z.dtype)
            half = value if source == "bool" else value * 0.5
            x[::2] = half[: x[::2].shape[0]] if half.shape[0] >= x[::2].shape[0] else x[::2]
            v = np.where(a > b, a, b)
            n[1:] = v
            h = v if source == "bool" else v * (0.5 if source != "float32" else np.float32(0.5))
            if h.shape[0] >= n[::2].shape[0]:
                n[::2] = h[: n[::2].shape[0]]
            assert_same(x, n)
            assert_same(value, v)
            assert_same(half, h)


@every_engine
def test_refused_writes_change_nothing(engine: str) -> None:
    """A read-only target, a shape or a dtype that does not fit: an error at the call, and all stays."""
    with under(engine):
        x = tensor(np.arange(12).reshape(3, 4))
        y = tensor(np.arange(4.0))
        value = x * 2
        for write in (
            lambda: x.__iadd__(y * 1.5),
            lambda: x.__iadd__(xt.ones((2, 3, 4), dtype=xt.int64) * 2),
            lambda: x.__setitem__(..., xt.ones((5,)) * 2),
            lambda: xt.broadcast_to(y, (3, 4)).__iadd__(y * 2),
            lambda: x.__setitem__(..., xt.astype(y, xt.complex128) * 2),
        ):
            with pytest.raises((TypeError, ValueError)):
                write()
        assert_same(x, np.arange(12).reshape(3, 4))
        assert_same(value, np.arange(12).reshape(3, 4) * 2)
        assert_same(y, np.arange(4.0))


# ---- how many kernels


def compiled_by(function: Callable[[], Any]) -> int:
    """Return how many kernels are made while a function runs."""
    compiling.wait_for_better_code()
    before = compiling.counts.compiled + compiling.counts.loaded - compiling.counts.improved
    with under("llvm"):
        function()
    compiling.wait_for_better_code()
    return compiling.counts.compiled + compiling.counts.loaded - compiling.counts.improved - before


def expression(size: int, scalar: Any, offset: int = 0, step: int = 1) -> None:
    x = tensor(np.linspace(0.1, 1, size * step + offset))[offset::step]
    _ = (xt.exp(x * scalar) + x - scalar / (x + scalar)).evaluate()


def test_sizes_scalars_and_offsets_make_no_kernels() -> None:
    """Code is made for a structure, never for the numbers in it."""
    compiled_by(lambda: (expression(50, 0.25), expression(1, 0.25)))  # one element lies like a repeated one
    for size, scalar, offset in (
        (1, 0.5, 0),
        (2, -1.0, 1),
        (70, 2.0, 3),
        (1000, 3.0, 5),
        (200_000, 0.1, 1),
        (50, math.inf, 0),
        (64, 0.0, 7),
    ):
        assert compiled_by(lambda s=size, c=scalar, o=offset: expression(s, c, o)) == 0, (size, scalar, offset)
    compiled_by(lambda: expression(50, 0.25, 0, 2))
    for step in (3, 5, 7):
        assert compiled_by(lambda s=step: expression(40, 0.5, 1, s)) == 0, step


@pytest.mark.parametrize("shape", [(30, 40), (300, 500)])
def test_reductions_of_other_sizes_make_no_kernels(shape: tuple[int, int]) -> None:
    """Rows and columns of a few lengths serve all others of their kind."""

    def reduce(rows: int, columns: int, scalar: float) -> None:
        x = tensor(np.ones((rows, columns)))
        xt.evaluate(xt.sum(x * scalar, axis=1), xt.max(x + scalar, axis=0), softmax(x * scalar))

    compiled_by(lambda: reduce(*shape, 0.5))
    for rows, columns, scalar in (
        (shape[0] + 1, shape[1], 1.5),
        (shape[0], shape[1] + 7, 2.0),
        (shape[0] * 2 + 3, shape[1] - 11, -1.0),
    ):
        assert compiled_by(lambda r=rows, c=columns, s=scalar: reduce(r, c, s)) == 0, (rows, columns)


def test_exponents() -> None:
    """A small whole exponent, 1 / x and roots make code of their own, all others share one."""
    for dtype in FLOATS:
        x = tensor(np.linspace(0.5, 2, 99).astype(dtype))
        for exponent in (2, 3, 0.5, -1, 1.5):
            compiled_by(lambda e=exponent, x=x: ((x + 1) ** e).evaluate())
        for exponent in (2, 3, 0.5, -1, 2.0, 3.0, 0.25, 7.5, -3.5):
            assert compiled_by(lambda e=exponent, x=x: ((x + 1) ** e).evaluate()) == 0, exponent


# ---- memory


@pytest.mark.parametrize("engine", ["interpret", "llvm"])
def test_peak_of_a_long_chain(engine: str) -> None:
    """Twenty steps over two inputs take one output, whatever they compute."""
    xtensor.memory.trim()
    size = 1 << 22
    with under(engine):
        x, y = tensor(np.ones(size)), tensor(np.full(size, 0.5))

        def chain() -> xt.Tensor:
            z = x * 2 + y
            for _ in range(6):
                z = xt.sqrt(z * z + 1) - y
            return z

        before = xtensor.memory.stats()
        highest: list[int] = []
        take = type(xtensor.memory.POOL)._lend

        def watched(pool: Any, block: Any) -> Any:
            found = take(pool, block)
            highest.append(pool._in_use)
            return found

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(type(xtensor.memory.POOL), "_lend", watched)
            z = chain().evaluate()
        assert max(highest) - before.in_use <= size * 8 + (16 << 20)
        assert abs(float(z[0]) - float(chain()[0])) == 0
        del z
        assert xtensor.memory.stats().in_use <= before.in_use + (1 << 20)


@pytest.mark.parametrize("engine", ["interpret", "llvm"])
def test_updates_in_place_take_no_memory(engine: str) -> None:
    """A fused write has no temporary of the target's size."""
    size = 1 << 22
    with under(engine):
        x, y = tensor(np.ones(size)), tensor(np.full(size, 0.5))
        x += y
        misses, hits = xtensor.memory.stats().misses, xtensor.memory.stats().hits
        x += 2 * y + y * y
        x[...] = y * y - 1
        x[::2] *= y[::2] + y[1::2]
        after = xtensor.memory.stats()
        assert (after.misses, after.hits) == (misses, hits)


# ---- large work


INPLACE = ["iadd", "isub", "imul", "itruediv", "ifloordiv", "imod", "ipow", "iand", "ior", "ixor", "ilshift", "irshift"]


@every_engine
@pytest.mark.parametrize("word", INPLACE)
def test_large_updates_by_a_scalar(word: str, engine: str) -> None:
    """On a megabyte and more, an update of something finished goes through the engine as well."""
    call = getattr(operator, word)
    for dtype in ("bool", "uint8", "int32", "int64", "float32", "float64"):
        a = special(dtype, 1_100_003 // np.dtype(dtype).itemsize, 3)
        for number in (0, 2, 3, -1, 200, True, 0.5, -0.0, 1e39, math.nan, 1 << 40):
            for key in (slice(None), slice(1, None), slice(None, None, -2)):
                n = a.copy()
                x = tensor(a)
                part, view = x[key], n[key]
                error = None
                try:
                    quietly(call, view, number)
                except (TypeError, ValueError, OverflowError) as raised:
                    error = type(raised)
                what = (word, dtype, number, key)
                with under(engine):
                    if error is not None:
                        with pytest.raises((TypeError, ValueError, OverflowError)):
                            call(part, number)
                    else:
                        call(part, number)
                if error is not None:
                    assert_same(x, a, what)
                elif word == "ipow" and number == 0.5:  # of -inf NumPy has nan for a scalar, inf for an array
                    assert_close(x[1:2], n[1:2], 3, what)
                elif word == "ipow" and np.dtype(dtype).kind == "f":
                    assert_close(x, n, 3 if dtype == "float64" else 4, what)
                elif not (word == "ifloordiv" and np.dtype(dtype).kind == "f"):
                    assert_same(x, n, what)
                if engine == "direct":
                    break


@pytest.mark.parametrize("engine", ["interpret", "llvm"])
@pytest.mark.parametrize("threads", [1, 3])
def test_results_larger_than_the_caches(engine: str, threads: int) -> None:
    """What is written past the caches arrives whole: odd lengths, odd starts, several outputs, masks, updates."""
    size = (24 << 20) // 4 + 1237
    rng = np.random.default_rng(1)
    a, b = rng.integers(-50, 50, size).astype(np.float32), rng.integers(1, 50, size).astype(np.float32)
    with under(engine, threads=threads):
        x, y = tensor(a), tensor(b)
        s = x * 2 + y
        d, m, w = s - x, s > y, xt.astype(s, xt.float64)
        xt.evaluate(s, d, m, w)
        assert_same(s, a * 2 + b)
        assert_same(d, a * 2 + b - a)
        assert_same(m, a * 2 + b > b)
        assert_same(w, (a * 2 + b).astype(np.float64))
        top, total = xt.max(s), xt.sum(xt.astype(m, xt.int64))
        assert float(top) == (a * 2 + b).max() and int(total) == int((a * 2 + b > b).sum())
        x[3:] += y[:-3] * 2
        a[3:] += b[:-3] * 2
        assert_same(x, a)
        x[1:] -= x[:-1] * 0 + y[1:]
        a[1:] -= a[:-1] * 0 + b[1:]
        assert_same(x, a)
        x += x[::-1] * 2
        assert_same(x, a + a[::-1] * 2)


@every_engine
def test_memory_of_others(engine: str) -> None:
    """Updates reach arrays that are shared with NumPy, however they lie; two views of one array see each other."""
    raw = np.zeros(8 * 200_001 + 9, np.uint8)
    n = raw[1:-8].view(np.float64)  # at no multiple of 8
    n[...] = np.arange(n.size)
    right = np.arange(float(n.size))
    with under(engine):
        x, y = xt.asarray(n), tensor(right)
        x += y * 2 + 1
        np.testing.assert_array_equal(n, right * 3 + 1)
        x[::2] *= y[::2] - 1
        right = right * 3 + 1
        right[::2] *= np.arange(float(n.size))[::2] - 1
        np.testing.assert_array_equal(n, right)
        left, shifted_one = xt.asarray(n[:-1]), xt.asarray(n[1:])
        left += shifted_one * 2
        right[:-1] += right[1:] * 2
        np.testing.assert_array_equal(n, right)
        shifted_one += left
        right[1:] += right[:-1]
        np.testing.assert_array_equal(n, right)
        left[...] = shifted_one + y[:-1]
        right[:-1] = right[1:] + np.arange(float(n.size))[:-1]
        np.testing.assert_array_equal(n, right)


@every_engine
def test_small_parts_of_pending_values(engine: str) -> None:
    """A look at a part computes it alone; written, or after a write, it is a view like any other."""
    a = np.arange(90_000.0).reshape(300, 300)
    with under(engine):
        x = tensor(a)
        z = xt.sqrt(x + 1) * 2
        right = np.sqrt(a + 1) * 2
        row, one, back = z[3], z[5, 7], z[-1, ::-2]
        assert_same(row, right[3])
        assert float(one) == right[5, 7]
        assert z.is_pending
        x[...] = 0.0
        assert_same(back, right[-1, ::-2])
        row += 1
        right[3] += 1
        assert_same(z, right)
        assert_same(row, right[3])
        z[3, :5] = 7.0
        assert row[:5].tolist() == [7.0] * 5


@every_engine
@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("exponent", [2, 3, 4, 3.0])
def test_small_powers_are_the_same_products_everywhere(engine: str, dtype: str, exponent: float) -> None:
    a = np.linspace(-3, 3, 5000).astype(dtype)
    a[:3] = np.inf, -np.inf, -0.0
    squared = a * a
    expected = {2: squared, 3: squared * a, 4: squared * squared}[int(exponent)]
    plain = xt.asarray(a, copy=True) ** exponent
    with under(engine):
        recorded = (xt.asarray(a, copy=True) ** exponent).evaluate()
    assert plain.numpy().tobytes() == recorded.numpy().tobytes() == expected.tobytes()


@pytest.mark.parametrize("dtype", [*"bhilqBHILQ"])
def test_small_powers_of_integers_wrap_around_as_numpys(dtype: str) -> None:
    base = np.random.default_rng(0).integers(0, 1 << 62, 1000).astype(dtype)
    for exponent in (0, 1, 2, 3, 4, 5, True):
        wanted = np.power(base, exponent)
        np.testing.assert_array_equal((xt.asarray(base) ** exponent).numpy(), wanted, strict=True)
        np.testing.assert_array_equal((xt.asarray(base)[::-2] ** exponent).numpy(), wanted[::-2], strict=True)


@pytest.mark.parametrize("exponent", [0.5, -1, -1.0])
@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize(
    ("engine", "lazy"), [("direct", "never"), ("direct", "always"), ("interpret", "always"), ("llvm", "always")]
)
def test_roots_and_quotients_as_powers(engine: Any, lazy: Any, dtype: str, exponent: float) -> None:
    """Signs of zero, infinities and NaN are those of the standard's pow, and all else is rounded correctly."""
    odd = np.array([0.0, -0.0, np.inf, -np.inf, np.nan, 5e-324, -2.5, 1e308, 1.0], dtype=np.float64)
    with np.errstate(all="ignore"):
        x = np.concatenate([odd, np.random.default_rng(0).uniform(0, 9, 300)]).astype(dtype)
        right = np.sqrt(x) if exponent == 0.5 else 1 / x
    if exponent == 0.5:
        right[1], right[3] = 0.0, np.inf
    with xt.options(engine=engine, lazy=lazy):
        for call in (lambda x: x**exponent, lambda x: xt.pow(x, exponent)):
            found = call(xt.asarray(x)).numpy()
            np.testing.assert_array_equal(found, right, strict=True)
            np.testing.assert_array_equal(np.signbit(found), np.signbit(right))


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("engine", ["direct", "interpret", "llvm"])
def test_halves_among_exponents_of_rows(engine: Any, dtype: str) -> None:
    """NumPy takes the square root, another function, wherever one exponent 0.5 stands for a row."""
    odd = np.tile(np.array([0.0, -0.0, np.inf, -np.inf, -4.0], dtype=dtype), (3, 40))
    right = np.tile(np.array([0.0, 0.0, np.inf, np.inf, np.nan], dtype=dtype), 40)
    half = np.array(0.5, dtype=dtype)
    exponents = [half, half[None, None], np.broadcast_to(half, odd.shape), np.array([[0.5], [2.0], [0.5]], dtype=dtype)]
    with xt.options(engine=engine, lazy="always"):
        for exponent in (*exponents, half[()]):
            for base in (odd, np.asfortranarray(odd)):
                found = xt.pow(xt.asarray(base), xt.asarray(exponent)).numpy()[2]
                np.testing.assert_array_equal(found, right, strict=True)
                np.testing.assert_array_equal(np.signbit(found[~np.isnan(found)]), False)
