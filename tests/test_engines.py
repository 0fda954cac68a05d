"""The engines against NumPy computed step by step: what goes direct, interpreted and through generated code is one.

Exact operations agree in every bit, functions within the stated ulp; nothing else in memory changes, whatever is held,
written or looked at meanwhile. Random programs are in test_programs.py, laziness itself in test_lazy.py.
"""

from __future__ import annotations

import math
import operator
import warnings
from collections.abc import Callable, Iterator
from itertools import combinations
from typing import Any

import numpy as np
import pytest

import xtensor as xt
import xtensor.memory
from xtensor.lazy import compile as compiling
from xtensor.lazy.vecmath import FUNCTIONS
from xtensor.op import REGISTRY

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
        raise AssertionError(f"{what}: {len(wrong)} of {a.size} differ, first at {first}: {values[0]}, NumPy {values[1]}")


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
        part = "float32" if dtype == "complex64" else "float64"
        return (rng.integers(-8, 9, size) * 0.25 + 1j * rng.integers(-8, 9, size) * 0.5).astype(part + "" if 0 else dtype)
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
ELEMENTWISE = [name for name, op in REGISTRY.items() if op.kind == "elementwise"]

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
    infinite = np.isinf(np.asarray(a, found.dtype)) | np.isinf(np.asarray(b, found.dtype))
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


def made_once(name: str, operands: list[Any]) -> xt.Tensor:
    """Return a pending value of a function, with a copy before and a copy after it so that a kernel has three steps."""
    return getattr(xt, name)(*operands)


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
@pytest.mark.parametrize("shape", [(), (1,), (1, 1), (1, 5), (5, 1), (3, 1, 4), (2, 3, 4, 5), (2, 1, 3, 1, 2, 2), (0,), (3, 0)])
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
            base = rng.integers(-50, 50, [abs(s) * n for s, n in zip(np.array(steps)[order], np.array(shape)[order], strict=True)])
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


INFIX = ["add", "sub", "mul", "truediv", "floordiv", "mod", "pow", "lt", "le", "eq", "ne", "gt", "ge", "and_", "or_", "xor"]
INFIX += ["lshift", "rshift"]
NAMES = {"add": "add", "sub": "subtract", "mul": "multiply", "truediv": "divide", "floordiv": "floor_divide"} | {
    "mod": "remainder", "pow": "pow", "lt": "less", "le": "less_equal", "eq": "equal", "ne": "not_equal"
} | {"gt": "greater", "ge": "greater_equal", "and_": "bitwise_and", "or_": "bitwise_or", "xor": "bitwise_xor"} | {
    "lshift": "bitwise_left_shift", "rshift": "bitwise_right_shift"
}
NUMBERS = [0, 1, 2, 3, -1, 5, 7, 100, 127, True, False, 0.0, -0.0, 1.5, -0.25, 0.1, 1e30, 1e39, -1e300, 5e-324]
NUMBERS += [math.inf, -math.inf, math.nan, 1 << 40, -(1 << 31)]


@every_engine
@pytest.mark.parametrize("word", INFIX)
def test_scalars_on_either_side(word: str, engine: str) -> None:
    """Python numbers take on the other operand's dtype, or make it wider, as NumPy has it."""
    call = getattr(operator, word)
    for dtype in REAL:
        a = special(dtype, 45, 9)
        for number in NUMBERS:
            for swap in (False, True):
                operands = (number, a) if swap else (a, number)
                try:
                    right = quietly(call, *operands)
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
                    close = quietly(lambda r=right, o=operands: r if r.dtype == np.float64 else np.power(*(np.asarray(v, r.dtype).astype(float) for v in o)))
                    assert_close(mine, close, 3 if right.dtype == np.float64 else 2, what)
                else:
                    assert_same(mine, right, what)


@every_engine
@pytest.mark.parametrize("name", ["add", "multiply", "subtract", "divide", "maximum", "less", "equal", "greater_equal", "floor_divide", "remainder", "bitwise_and", "bitwise_left_shift", "where", "copysign", "logical_and"])
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
            a = quietly(lambda a=a, info=info, limit=limit: np.clip(np.nan_to_num(a), max(info.min, -limit - 1), limit)).astype(source)
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
    right = quietly(lambda: np.power(a, np.dtype(dtype).type(exponent)))
    if dtype == "float32":
        assert_close(mine, quietly(lambda: np.power(a.astype(float), exponent)), 2, exponent)
    assert_close(mine, right, 3, exponent)
    exact = np.isnan(right) | np.isinf(right) | (right == 0)
    assert_same(np.asarray(mine.native())[exact], right[exact], exponent)
