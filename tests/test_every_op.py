"""Every row of the registry, on every dtype and kind of layout, against NumPy, its formula and mpmath.

Nothing here is written per function but the values the standard fixes where NumPy has others.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterator
from typing import Any

import mpmath
import numpy as np
import pytest

import xtensor as xt
from xtensor.base.dtypes import ALL
from xtensor.base.options import settings
from xtensor.calls.op import REGISTRY, Op
from xtensor.codegen import element as elements
from xtensor.tensor.operators import Operators

# What stands in the registry now: other tests may add rows of their own later. Rows of extensions, which NumPy does
# not have, have tests of their own.
ELEMENTWISE = {name: op for name, op in REGISTRY.items() if op.kind == "elementwise" and hasattr(xt, name)}
REDUCTIONS = {name: op for name, op in REGISTRY.items() if op.kind == "reduction"}
BINARY = {name: op for name, op in ELEMENTWISE.items() if len(op.parameters) == 2}

NAN, INF = math.nan, math.inf


# ---- what there is to test


def accepted(op: Any) -> list[Any]:
    """Return the standard's dtypes that an operation takes."""
    return [dtype for dtype in ALL.values() if dtype in op.accepts]


def numpys(name: str, *operands: Any, **keywords: Any) -> Any:
    """Return what NumPy's function of that name makes of the operands, as an array."""
    with np.errstate(all="ignore"):
        return np.asarray(getattr(np, name)(*operands, **keywords))


def outcome(call: Callable[[], Any]) -> Any:
    """Return what a call gives, or the class of what it raises."""
    try:
        return call()
    except (TypeError, ValueError, OverflowError) as error:
        return next(kind for kind in (OverflowError, ValueError, TypeError) if isinstance(error, kind))


def refuses(op: Op, *dtypes: np.dtype[Any]) -> bool:
    """Return whether NumPy's function takes no such dtypes."""
    return outcome(lambda: numpys(op.name, *(np.ones(1, dtype) for dtype in dtypes))) is TypeError


def pairs(ops: dict[str, Op], *, refused: bool) -> pytest.MarkDecorator:
    """Run a test for every op and dtype that NumPy's function of that name takes, or refuses."""
    found = [(op, d) for op in ops.values() for d in ALL.values() if refuses(op, *[d] * len(op.parameters)) == refused]
    return pytest.mark.parametrize(("op", "dtype"), found, ids=[f"{op.name}-{dtype}" for op, dtype in found])


every_elementwise = pytest.mark.parametrize("op", ELEMENTWISE.values(), ids=ELEMENTWISE.keys())
every_binary = pytest.mark.parametrize("op", BINARY.values(), ids=BINARY.keys())
every_reduction = pytest.mark.parametrize("op", REDUCTIONS.values(), ids=REDUCTIONS.keys())
every_dtype = pytest.mark.parametrize("dtype", ALL.values(), ids=ALL.keys())


@pytest.fixture(autouse=True)
def bits_of_numpy() -> Iterator[None]:
    """Compute with NumPy's own functions: those of generated code have last bits, and sums an order, of their own.

    How far they may differ is tested in test_engines.py.
    """
    engine = settings().engine
    with xt.options(engine=engine if engine == "direct" else "interpret"):
        yield


# ---- samples and layouts


def samples(shape: tuple[int, ...], dtype: np.dtype[Any], domain: tuple[float, float], seed: int = 0) -> Any:
    """Return numbers from an interval, as far as the dtype has some there."""
    random = np.random.default_rng(seed)
    low, high = domain
    if dtype.kind == "b":
        return random.integers(0, 2, shape).astype(dtype)
    if dtype.kind in "iu":
        least = math.ceil(low) if dtype.kind == "i" else max(math.ceil(low), 0)
        return random.integers(least, math.floor(high) + 1, shape).astype(dtype)
    real = random.uniform(low, high, shape)
    return (real if dtype.kind == "f" else real + 1j * random.uniform(low, high, shape)).astype(dtype)


def same(a: Any) -> Any:
    return a


def transposed(a: Any) -> Any:
    return a.T


def backwards(a: Any) -> Any:
    return a[::-1]


def every_second_backwards(a: Any) -> Any:
    return a[::-2]


# Of each operand: the shape of its memory and the view of it that is used.
Layouts = tuple[tuple[tuple[int, ...], Callable[[Any], Any]], ...]
LAYOUTS: dict[str, Layouts] = {
    "0-d": (((), same),) * 3,
    "empty": (((0, 3), same), ((1, 3), same), ((3,), same)),
    "1-d": (((37,), same),) * 3,
    "broadcast": (((5, 1), same), ((7,), same), ((2, 1, 1), same)),
    "transposed": (((5, 7), transposed), ((7, 5), same), ((5, 7), transposed)),
    "negative step": (((9,), backwards), ((18,), every_second_backwards), ((9,), same)),
    "large": (((66_000,), same),) * 3,  # recorded by lazy="auto" too, whatever the dtype but bool and the small ones
}


def operands(op: Op, dtype: np.dtype[Any], layout: str) -> tuple[list[Any], list[xt.Tensor]]:
    """Return the operands of a call as NumPy's arrays and as tensors of the same strides."""
    theirs, ours = [], []
    for number, (shape, view) in enumerate(LAYOUTS[layout][: len(op.parameters)]):
        memory = samples(shape, dtype, op.domain, number)
        theirs.append(view(memory))
        ours.append(view(xt.asarray(memory, copy=True)))
    return theirs, ours


def special(dtype: np.dtype[Any]) -> Any:
    """Return the values at which functions go wrong: zeros, infinities, NaN, the ends of the range."""
    if dtype.kind == "b":
        return np.array([False, True])
    if dtype.kind in "iu":
        info = np.iinfo(dtype)
        small = [n for n in (-3, -1, 0, 1, 2, 7, 8, 31, 63) if info.min <= n]
        return np.array([info.min, info.max, info.max - 1, *small], dtype)
    real = np.dtype(dtype.char.lower()) if dtype.kind == "c" else dtype
    info = np.finfo(real)
    ends = [info.max, info.tiny, info.smallest_subnormal, info.eps]
    parts = np.array([0.0, 0.5, 1.0, 1.5, 2.0, 2.5, 1e3, *ends, INF, NAN], real)
    parts = np.concatenate([parts, -parts])
    if dtype.kind == "f":
        return parts
    grid = np.empty((len(parts), len(parts)), dtype)
    grid.real, grid.imag = parts[:, None], parts
    return grid.reshape(-1)


# ---- what must come out


def repaired(name: str, *natives: Any) -> Any:
    """Return where the standard's value is not NumPy's; `test_values_of_the_standard` has those."""
    x = natives[0]
    if name == "floor_divide":
        return np.isinf(x) | np.isinf(natives[1])
    if name == "square" and np.iscomplexobj(x):
        return True  # NumPy's bits depend on the address of its output; test_formula compares it with a * a
    if name == "pow" and np.iscomplexobj(x) and type(natives[1]) in (int, float) and natives[1] == 2:
        return True  # a square, as by NumPy's operator; test_squares_of_complex_numbers has these
    if name == "expm1" and np.iscomplexobj(x):
        return ~np.isfinite(np.real(x)) | (x == 0)
    if name == "log1p" and np.iscomplexobj(x):  # test_accuracy_near_zero_of_complex_numbers has these
        return (np.abs(np.real(x)) < 0.5) & (np.abs(np.imag(x)) < 0.5)
    if name == "tanh" and np.iscomplexobj(x):
        return np.isinf(np.real(x))
    return np.zeros((), bool)


def bits(a: Any) -> Any:
    """Return an array's bits as unsigned integers, one per real part; every NaN counts as the same."""
    parts = np.ascontiguousarray(a).reshape(-1)
    if parts.dtype.kind == "c":
        parts = parts.view(parts.real.dtype)
    found = parts.view(f"u{parts.dtype.itemsize}").copy()
    if parts.dtype.kind == "f":
        found[np.isnan(parts)] = np.array([NAN], parts.dtype).view(found.dtype)
    return found


def assert_same(ours: Any, theirs: Any, but: Any = False) -> None:
    """Compare dtype, shape and bits, except where `but` holds."""
    assert ours.dtype == theirs.dtype and ours.shape == theirs.shape
    ours = np.asarray(ours.native() if isinstance(ours, xt.Tensor) else ours)
    keep = ~np.broadcast_to(but, theirs.shape)
    ours, theirs = ours[keep], theirs[keep]
    assert np.array_equal(bits(ours), bits(theirs)), f"{ours} is not {theirs}"


def assert_same_outcome(ours: Callable[[], Any], theirs: Callable[[], Any], but: Any = False) -> None:
    expected, got = outcome(theirs), outcome(ours)
    if isinstance(expected, type) or isinstance(got, type):
        assert got == expected
    else:
        assert_same(got, expected, but)


def function_of(op: Op) -> Callable[..., Any]:
    function: Callable[..., Any] = getattr(xt, op.name)
    return function


# ---- elementwise rows


@pairs(ELEMENTWISE, refused=False)
def test_elementwise(op: Op, dtype: np.dtype[Any]) -> None:
    """Dtype, shape and bits are NumPy's, in every layout, computed at once or recorded."""
    function = function_of(op)
    declared = op.dtype(*[dtype] * len(op.parameters))
    for layout in LAYOUTS:
        theirs, ours = operands(op, dtype, layout)
        expected, but = numpys(op.name, *theirs), repaired(op.name, *theirs)
        for lazy in ("never", "auto", "always"):
            with xt.options(lazy=lazy):
                result = function(*ours)
            if lazy != "auto":
                assert result.is_pending == (lazy == "always" and _defers(op, dtype))
            assert result.dtype == declared
            assert_same(result, expected, but)


def _defers(op: Op, *dtypes: np.dtype[Any]) -> bool:
    return not op.fails_on_values(*(dtypes * 2)[:2])


@pairs(ELEMENTWISE, refused=False)
def test_special_values(op: Op, dtype: np.dtype[Any]) -> None:
    """The same for the ends of the range, zeros, infinities and NaN, each with each."""
    values = special(dtype)
    theirs = [values] if len(op.parameters) == 1 else [values[:, None], values, values[::-1]][: len(op.parameters)]
    ours = [xt.asarray(native, copy=True) for native in theirs]
    but = repaired(op.name, *theirs)
    for lazy in ("never", "always"):
        with xt.options(lazy=lazy):
            assert_same_outcome(lambda: function_of(op)(*ours), lambda: numpys(op.name, *theirs), but)


@every_binary
def test_mixed_dtypes(op: Op) -> None:
    """Two dtypes give the dtype and values NumPy gives, or are refused by name."""
    for first in ALL.values():
        for second in ALL.values():
            theirs = [samples((5,), first, op.domain), samples((5,), second, op.domain, 1)]
            ours = [xt.asarray(native, copy=True) for native in theirs]
            if refuses(op, first, second):
                with pytest.raises(TypeError, match=f"^{op.name}: x"):
                    function_of(op)(*ours)
                continue
            expected = numpys(op.name, *theirs)
            assert op.dtype(first, second) == expected.dtype
            for lazy in ("never", "always"):
                with xt.options(lazy=lazy):
                    assert_same(function_of(op)(*ours), expected)


SCALARS: list[Any] = [True, 0, 2, -1, 300, 1 << 40, 1.5, -0.0, INF, 1.5 + 2j]


@every_binary
@every_dtype
def test_python_scalars(op: Op, dtype: np.dtype[Any]) -> None:
    """A Python scalar on either side is weak as in NumPy, and refused where NumPy refuses it."""
    native = samples((5,), dtype, op.domain)
    tensor = xt.asarray(native, copy=True)
    for scalar in SCALARS:
        for ours, theirs in (((tensor, scalar), (native, scalar)), ((scalar, tensor), (scalar, native))):
            but = repaired(op.name, *theirs)
            for lazy in ("never", "always"):
                with xt.options(lazy=lazy):
                    assert_same_outcome(
                        lambda ours=ours: function_of(op)(*ours), lambda theirs=theirs: numpys(op.name, *theirs), but
                    )


@pairs(ELEMENTWISE, refused=True)
def test_refused_dtypes(op: Op, dtype: np.dtype[Any]) -> None:
    """What the category holds is taken; what NumPy does not take is refused with the category's word, at the call."""
    assert dtype not in op.accepts
    text = f"{op.name}: {op.parameters[0]} must be {op.accepts.word}, got {dtype}"
    tensors = [xt.ones((3,), dtype=dtype)] * len(op.parameters)
    for lazy in ("auto", "always", "never"):
        with xt.options(lazy=lazy), pytest.raises(TypeError, match=f"^{re.escape(text)}$"):
            function_of(op)(*tensors)


@pairs(BINARY, refused=True)
def test_the_refused_argument_is_named(op: Op, dtype: np.dtype[Any]) -> None:
    """Where only the second operand is wrong, the message names the second."""
    for good in accepted(op):
        if refuses(op, good, dtype):
            text = f"{op.name}: x2 must be {op.accepts.word}, got {dtype}"
            for lazy in ("auto", "always"):
                with xt.options(lazy=lazy), pytest.raises(TypeError, match=f"^{re.escape(text)}$"):
                    function_of(op)(xt.ones((3,), dtype=good), xt.ones((3,), dtype=dtype))


@every_elementwise
def test_results_own_their_memory(op: Op) -> None:
    """No result shares memory with an operand, and every result can be written."""
    dtype = accepted(op)[-1]
    for layout in ("0-d", "1-d", "transposed"):
        _, ours = operands(op, dtype, layout)
        result = function_of(op)(*ours)
        assert not any(np.shares_memory(result.native(), x.native()) for x in ours)
        assert result.is_writeable


# ---- formulas

EXACT = {"add", "subtract", "multiply", "divide", "negative", "abs", "where", "maximum", "minimum"}
EXACT |= {"less", "less_equal", "greater", "greater_equal", "equal", "bitwise_and", "bitwise_or", "bitwise_invert"}
FORMULAS = {name: op for name, op in ELEMENTWISE.items() if op.element is not None}


def _by_formula(op: Op, natives: list[Any]) -> tuple[Any, bool]:
    """Return a row's formula evaluated over NumPy, and whether every step of it is exact."""
    used: set[str] = set()

    def machine(name: str) -> Callable[..., Any]:
        used.add(name)
        return getattr(np, name)  # type: ignore[no-any-return]

    with np.errstate(all="ignore"):
        value = np.asarray(elements.evaluate(op.element, machine, *natives))
    return value, used <= EXACT


def ulps(a: Any, b: Any, *operands: Any) -> Any:
    """Return by how many units in the last place of the result or the operands two results differ."""
    with np.errstate(all="ignore"):
        largest = np.max(np.abs(np.broadcast_arrays(b, *operands)), axis=0)
        apart = np.abs(a - b) / np.spacing(largest)
    return np.where((a == b) | (np.isnan(a) & np.isnan(b)), 0, apart)


@pytest.mark.parametrize(("op", "dtype"), [(op, d) for op in FORMULAS.values() for d in accepted(op)], ids=str)
def test_formula(op: Op, dtype: np.dtype[Any]) -> None:
    """A row's formula and its kernel agree: bit for bit, or within 4 ulp where a step of it is rounded twice."""
    values = [samples((64,), dtype, op.domain)]
    if dtype.kind != "c":  # complex products with infinities depend on the order of their steps
        values.append(special(dtype))
    for native in values:
        natives = [native] if len(op.parameters) == 1 else [native[:, None], native]
        expected = numpys(op.name, *natives)
        value, exact = _by_formula(op, natives)
        if exact and not (dtype.kind == "c" and op.name in ("reciprocal", "square")):  # NumPy may fuse their steps
            assert_same(value, expected)
        else:
            assert value.dtype == expected.dtype and value.shape == expected.shape
            assert np.max(ulps(value, expected, *natives)) <= 4


FORMULA_OPERATORS = [name for name, value in vars(elements.Element).items() if callable(value) and name != "__init__"]


@pytest.mark.parametrize("dunder", FORMULA_OPERATORS)
def test_formula_operators(dunder: str) -> None:
    """An element's operators are NumPy's."""
    a, b = np.array([6, 1, 3]), np.array([3, 5, 3])
    operator = getattr(elements.Element, dunder)
    operands = (a, b) if operator.__code__.co_argcount == 2 else (a,)
    mine = [elements.Element(lambda name: getattr(np, name), x) for x in operands]
    assert_same(operator(*mine).value, getattr(a, dunder)(*operands[1:]))


# ---- values the standard fixes

C = complex

# name, operands, result: the standard's special cases of the functions in which xtensor repairs NumPy.
STANDARD: list[tuple[str, tuple[Any, ...], Any]] = [
    ("floor_divide", (NAN, 1.0), NAN),
    ("floor_divide", (1.0, NAN), NAN),
    *(("floor_divide", (a, b), NAN) for a in (INF, -INF) for b in (INF, -INF)),
    *(("floor_divide", (a, b), NAN) for a in (0.0, -0.0) for b in (0.0, -0.0)),
    *(("floor_divide", (a, b), math.copysign(0.0, a * b)) for a in (0.0, -0.0) for b in (2.0, -2.0)),
    *(("floor_divide", (a, b), a / math.copysign(1, b) * INF) for a in (3.0, -3.0) for b in (0.0, -0.0)),
    *(("floor_divide", (a, b), a * b) for a in (INF, -INF) for b in (3.0, -3.0, 0.5, -0.5)),
    ("floor_divide", (3.0, INF), 0.0),
    ("floor_divide", (3.0, -INF), -0.0),
    ("floor_divide", (-3.0, INF), -0.0),
    ("floor_divide", (-3.0, -INF), 0.0),
    ("floor_divide", (7.0, -2.0), -4.0),
    ("expm1", (NAN,), NAN),
    ("expm1", (0.0,), 0.0),
    ("expm1", (-0.0,), -0.0),
    ("expm1", (INF,), INF),
    ("expm1", (-INF,), -1.0),
    ("expm1", (C(0.0, 0.0),), C(0.0, 0.0)),
    ("expm1", (C(-0.0, 0.0),), C(0.0, 0.0)),
    ("expm1", (C(2.0, INF),), C(NAN, NAN)),
    ("expm1", (C(2.0, NAN),), C(NAN, NAN)),
    ("expm1", (C(INF, 0.0),), C(INF, 0.0)),
    ("expm1", (C(-INF, 0.0),), C(-1.0, 0.0)),
    ("expm1", (C(-INF, 2.0),), C(-1.0, 0.0)),
    ("expm1", (C(-INF, 4.0),), C(-1.0, -0.0)),
    ("expm1", (C(INF, 1.0),), C(INF, INF)),
    ("expm1", (C(INF, 2.0),), C(-INF, INF)),
    ("expm1", (C(INF, 4.0),), C(-INF, -INF)),
    ("expm1", (C(INF, -1.0),), C(INF, -INF)),
    ("expm1", (C(-INF, INF),), C(-1.0, 0.0)),
    ("expm1", (C(INF, INF),), C(INF, NAN)),
    ("expm1", (C(-INF, NAN),), C(-1.0, 0.0)),
    ("expm1", (C(INF, NAN),), C(INF, NAN)),
    ("expm1", (C(NAN, 0.0),), C(NAN, 0.0)),
    ("expm1", (C(NAN, 2.0),), C(NAN, NAN)),
    ("expm1", (C(NAN, INF),), C(NAN, NAN)),
    ("expm1", (C(NAN, NAN),), C(NAN, NAN)),
    ("tanh", (NAN,), NAN),
    ("tanh", (0.0,), 0.0),
    ("tanh", (-0.0,), -0.0),
    ("tanh", (INF,), 1.0),
    ("tanh", (-INF,), -1.0),
    ("tanh", (C(0.0, 0.0),), C(0.0, 0.0)),
    ("tanh", (C(2.0, INF),), C(NAN, NAN)),
    ("tanh", (C(0.0, INF),), C(0.0, NAN)),
    ("tanh", (C(2.0, NAN),), C(NAN, NAN)),
    ("tanh", (C(0.0, NAN),), C(0.0, NAN)),
    ("tanh", (C(INF, 1.0),), C(1.0, 0.0)),
    ("tanh", (C(INF, 2.0),), C(1.0, 0.0)),
    ("tanh", (C(INF, INF),), C(1.0, 0.0)),
    ("tanh", (C(INF, NAN),), C(1.0, 0.0)),
    ("tanh", (C(NAN, 0.0),), C(NAN, 0.0)),
    ("tanh", (C(NAN, 2.0),), C(NAN, NAN)),
    ("tanh", (C(NAN, NAN),), C(NAN, NAN)),
    *(("round", (x,), x) for x in (INF, -INF, 0.0, -0.0, NAN, 3.0, 2.0**100)),
    ("round", (0.5,), 0.0),
    ("round", (1.5,), 2.0),
    ("round", (2.5,), 2.0),
    ("round", (-0.5,), -0.0),
    ("round", (-1.5,), -2.0),
    ("round", (C(0.5, -1.5),), C(0.0, -2.0)),
    ("round", (C(INF, NAN),), C(INF, NAN)),
    ("round", (C(-0.5, 2.5),), C(-0.0, 2.0)),
    ("real", (C(NAN, 2.0),), NAN),
    ("real", (C(-0.0, INF),), -0.0),
    ("imag", (C(NAN, -0.0),), -0.0),
    ("imag", (C(2.0, INF),), INF),
]


def conjugates(row: tuple[str, tuple[Any, ...], Any]) -> Iterator[tuple[str, tuple[Any, ...], Any]]:
    """Yield a row and, of a complex function, what conj (and for tanh also -x) makes of it."""
    name, values, result = row
    yield row
    if name in ("expm1", "tanh") and isinstance(values[0], complex):
        yield name, (values[0].conjugate(),), result.conjugate()
        if name == "tanh":
            yield name, (-values[0],), -result


def unsigned(name: str, values: tuple[Any, ...]) -> tuple[bool, bool]:
    """Return whether the standard leaves the sign of the real and of the imaginary part open."""
    x = values[0]
    if not isinstance(x, complex) or math.isfinite(x.imag) or not math.isinf(x.real):
        return False, False
    return name == "expm1" and x.real > 0, name == "tanh" or x.real < 0


@pytest.mark.parametrize("row", STANDARD, ids=lambda row: f"{row[0]}{row[1]}")
@pytest.mark.parametrize("single", [False, True])
def test_values_of_the_standard(row: tuple[str, tuple[Any, ...], Any], single: bool) -> None:
    """Where NumPy misses a special case, the standard's value comes out, sign of zero included."""
    for name, values, result in conjugates(row):
        kind = (xt.complex64 if single else xt.complex128) if isinstance(values[0], complex) else None
        dtype = kind or (xt.float32 if single else xt.float64)
        tensors = [xt.full((3,), value, dtype=dtype) for value in values]
        for lazy in ("never", "always"):
            with xt.options(lazy=lazy):
                got = getattr(xt, name)(*tensors)
            expected = np.full((3,), result, got.dtype)
            real_open, imag_open = unsigned(name, values)
            if isinstance(result, complex):
                assert_same(*_parts(got.native().real, expected.real, real_open))
                assert_same(*_parts(got.native().imag, expected.imag, imag_open))
            else:
                assert_same(got, expected)


def _parts(ours: Any, theirs: Any, any_sign: bool) -> tuple[Any, Any]:
    return (np.abs(ours), np.abs(theirs)) if any_sign else (ours, theirs)


@every_dtype
def test_round_keeps_integers(dtype: np.dtype[Any]) -> None:
    """Integers are integer-valued already, the largest too."""
    if dtype.kind in "iu":
        values = special(dtype)
        assert_same(xt.round(xt.asarray(values)), values)


# ---- accuracy

FUNCTIONS: dict[str, Callable[..., Any]] = {
    "log2": lambda x: mpmath.log(x, 2),
    "log10": mpmath.log10,
    "pow": mpmath.power,
    "atan2": mpmath.atan2,
    "logaddexp": lambda a, b: mpmath.log(mpmath.exp(a) + mpmath.exp(b)),
    **{name: getattr(mpmath, name) for name in ("acos", "acosh", "asin", "asinh", "atan", "atanh", "hypot")},
    **{name: getattr(mpmath, name) for name in ("cos", "cosh", "exp", "expm1", "log", "log1p", "sin", "sinh")},
    **{name: getattr(mpmath, name) for name in ("sqrt", "tan", "tanh")},
}
# Rows that are exact, or rounded once: held to NumPy's bits above.
ROUNDED_ONCE = EXACT | {"conj", "copysign", "floor", "ceil", "trunc", "round", "floor_divide", "remainder", "imag"}
ROUNDED_ONCE |= {"isfinite", "isinf", "isnan", "logical_and", "logical_not", "logical_or", "logical_xor", "real"}
ROUNDED_ONCE |= {"nextafter", "not_equal", "positive", "reciprocal", "sign", "signbit", "square"}


def _points(op: Op, dtype: np.dtype[Any]) -> list[Any]:
    """Return 200 points: of the domain, and towards 0 where that lies in it."""
    low, high = op.domain
    found = []
    for number in range(len(op.parameters)):
        points = samples((200,), dtype, op.domain, number)
        if low <= 0 <= high:
            points[100:] *= np.logspace(0, -12, 100, dtype=dtype)
        found.append(points)
    return found


@pytest.mark.parametrize("name", FUNCTIONS)
@pytest.mark.parametrize("dtype", [xt.float32, xt.float64], ids=str)
def test_accuracy(name: str, dtype: np.dtype[Any]) -> None:
    """Transcendental functions lie within 4 units in the last place of the true value."""
    op = ELEMENTWISE[name]
    natives = _points(op, dtype)
    result = function_of(op)(*map(xt.asarray, natives)).native()
    with mpmath.workdps(60):
        for *point, got in zip(*natives, result, strict=True):
            true = FUNCTIONS[name](*(mpmath.mpf(float(x)) for x in point))
            largest = (
                max(abs(float(true)), *map(abs, point)) if name == "logaddexp" else abs(float(true))
            )  # it is a sum
            unit = mpmath.mpf(float(np.spacing(dtype.type(largest))))
            assert abs(mpmath.mpf(float(got)) - true) <= 4 * unit, f"{name}{tuple(point)} is {got}, not {true}"


def _small_and_near() -> Any:
    """Return complex numbers of all sizes, and some near -1 and the circle |1 + z| = 1, where digits cancel."""
    rng = np.random.default_rng(0)
    turns = np.exp(1j * rng.uniform(-np.pi, np.pi, (4, 100)))
    small = 10.0 ** rng.uniform(-12, 0, (2, 100))
    near = [small[0] * turns[1] - 1, turns[2] - 1, np.exp(1j * small[1]) - 1]
    return np.concatenate([10.0 ** rng.uniform(-12, 3, 100) * turns[0], *near, rng.uniform(-2, 2, 100) * turns[3]])


@pytest.mark.parametrize("name", ["log1p", "expm1"])
@pytest.mark.parametrize("dtype", [xt.complex64, xt.complex128], ids=str)
def test_accuracy_near_zero_of_complex_numbers(name: str, dtype: np.dtype[Any]) -> None:
    """Within 4 epsilons of the true value's size, however small it is."""
    points = _small_and_near().astype(dtype)
    points = points[np.abs(points.real) < 80]  # beyond, float32 has no exponential
    result = function_of(ELEMENTWISE[name])(xt.asarray(points)).native()
    with mpmath.workdps(60):
        for z, got in zip(points, result, strict=True):
            true = FUNCTIONS[name](mpmath.mpc(complex(z)))
            error = abs(mpmath.mpc(complex(got)) - true)
            assert error <= 4 * float(np.finfo(dtype).eps) * abs(true), f"{name}({z}) is {got}, not {true}"


def test_every_inexact_function_has_an_oracle() -> None:
    """Each row that takes floating-point numbers is measured above, or is exact."""
    floating = {name for name, op in ELEMENTWISE.items() if xt.float64 in op.accepts}
    assert floating - ROUNDED_ONCE - {"greater", "where"} == set(FUNCTIONS)


# ---- reductions

AXES: list[Any] = [None, 0, 1, -1, -3, (0,), (0, 2), (-1, 0), (2, 1, 0), ()]
SHAPES = [(2, 3, 4), (0, 3, 4), (2, 3, 0), (2, 1, 4)]


def _axes_of(axis: Any, ndim: int) -> set[int]:
    if axis is None:
        return set(range(ndim))
    return {a % ndim for a in (axis if isinstance(axis, tuple) else (axis,))}


def _expected_reduction(op: Op, native: Any, axis: Any, keepdims: bool) -> Any:
    """Return NumPy's value; over no elements the row's."""
    axes = _axes_of(axis, native.ndim)
    if any(native.shape[a] == 0 for a in axes):
        if op.of_nothing is None:
            return ValueError
        shape = [1 if a in axes else n for a, n in enumerate(native.shape) if keepdims or a not in axes]
        value = op.of_nothing
        dtype = op.dtype(native.dtype, axis=0 if op.one_axis else (0,), **_neutral(op))
        if dtype.kind == "c" and value != value:
            value = complex(value, value)
        return np.full(shape, value, dtype)
    return numpys(op.name, native, axis=axis, keepdims=keepdims)


def _neutral(op: Op) -> dict[str, Any]:
    return {"keepdims": False} | ({"correction": 0} if op.name in ("std", "var") else {})


@pairs(REDUCTIONS, refused=False)
def test_reduction(op: Op, dtype: np.dtype[Any]) -> None:
    """Dtype, shape and bits are NumPy's over every choice of axes; over nothing, the row's value or an error.

    NumPy's reductions refuse no dtype of the standard.
    """
    for shape in SHAPES:
        memory = samples(shape, dtype, op.domain)
        for view in (same, transposed, backwards):
            native, tensor = view(memory), _viewed(view, memory)
            for axis in [a for a in AXES if not (op.one_axis and isinstance(a, tuple))]:
                for keepdims in (False, True):
                    _check_reduction(op, native, tensor, axis, keepdims)


def _viewed(view: Callable[[Any], Any], memory: Any) -> xt.Tensor:
    tensor = xt.asarray(memory, copy=True)
    return xt.permute_dims(tensor, (2, 1, 0)) if view is transposed else view(tensor)  # type: ignore[no-any-return]


def _check_reduction(op: Op, native: Any, tensor: xt.Tensor, axis: Any, keepdims: bool) -> None:
    expected = outcome(lambda: _expected_reduction(op, native, axis, keepdims))
    for lazy in ("never", "always"):
        with xt.options(lazy=lazy):
            got = outcome(lambda: function_of(op)(tensor, axis=axis, keepdims=keepdims))
        if isinstance(expected, type) or isinstance(got, type):
            assert got is expected
        else:
            assert got.is_pending == (lazy == "always")
            assert_same(got, expected)


@every_reduction
def test_reduction_axes_out_of_range(op: Op) -> None:
    """An axis that does not exist, or is named twice, is an error at the call."""
    x = xt.ones((2, 3))
    for lazy in ("never", "always"):
        with xt.options(lazy=lazy):
            for axis in (2, -3) if op.one_axis else (2, -3, (0, 2)):
                with pytest.raises(IndexError, match=f"^{op.name}: "):
                    function_of(op)(x, axis=axis)
            if not op.one_axis:
                with pytest.raises(ValueError, match=f"^{op.name}: "):
                    function_of(op)(x, axis=(0, -2))


@every_reduction
@pytest.mark.parametrize("values", [[NAN, 1.0, 2.0], [1.0, NAN, INF], [-0.0, 0.0], [INF, -INF], [NAN, NAN]], ids=str)
def test_reductions_of_special_values(op: Op, values: list[float]) -> None:
    """NaN, infinities and signed zeros go through as in NumPy."""
    for dtype in (xt.float32, xt.float64, xt.complex128):
        native = np.asarray(values, dtype)
        if not refuses(op, dtype):
            assert_same(function_of(op)(xt.asarray(native, copy=True)), numpys(op.name, native))


@pytest.mark.parametrize("name", ["sum", "prod", "mean"])
@every_dtype
def test_reductions_computed_as(name: str, dtype: np.dtype[Any]) -> None:
    """`dtype=` is what is computed in and what comes out."""
    op = REDUCTIONS[name]
    native = samples((4, 5), dtype, op.domain)
    for target in ALL.values():
        if np.can_cast(dtype, target, casting="same_kind") and target.kind in op.accepts.letters:
            for lazy in ("never", "always"):
                with xt.options(lazy=lazy):
                    got = function_of(op)(xt.asarray(native, copy=True), axis=1, dtype=target)
                assert got.dtype == target
                assert_same(got, numpys(name, native, axis=1, dtype=target))


@pytest.mark.parametrize("name", ["std", "var"])
@pytest.mark.parametrize("correction", [0, 1, 0.5, 4, 5])
def test_spread_with_correction(name: str, correction: float) -> None:
    """The divisor is N - correction; NaN where that is not positive."""
    native = samples((3, 4), xt.float64, (-2.0, 2.0))
    for lazy in ("never", "always"):
        with xt.options(lazy=lazy):
            got = getattr(xt, name)(xt.asarray(native, copy=True), axis=1, correction=correction)
        expected = np.full((3,), NAN) if correction >= 4 else numpys(name, native, axis=1, ddof=correction)
        assert_same(got, expected)


# ---- operators

SPELLED = {
    "add": "add",
    "sub": "subtract",
    "mul": "multiply",
    "truediv": "divide",
    "floordiv": "floor_divide",
    "mod": "remainder",
    "pow": "pow",
    "matmul": "matmul",
    "and": "bitwise_and",
    "or": "bitwise_or",
    "xor": "bitwise_xor",
    "lshift": "bitwise_left_shift",
    "rshift": "bitwise_right_shift",
}
COMPARED = {"lt": "less", "le": "less_equal", "gt": "greater", "ge": "greater_equal", "eq": "equal", "ne": "not_equal"}
UNARY = {"neg": "negative", "pos": "positive", "abs": "abs", "invert": "bitwise_invert"}
ELEMENTWISE_SPELLED = {sign: name for sign, name in SPELLED.items() if name != "matmul"}


def test_every_operator_is_tested() -> None:
    """The dunders of Operators are those above, each binary one reflected and in place."""
    expected = [*SPELLED, *(f"r{n}" for n in SPELLED), *(f"i{n}" for n in SPELLED), *COMPARED, *UNARY]
    defined = {name for name, value in vars(Operators).items() if callable(value)} - {"__hash__"}
    assert defined == {f"__{name}__" for name in expected}


def _partners(dtype: np.dtype[Any]) -> Iterator[Any]:
    """Yield what can stand beside a tensor: tensors, arrays, NumPy scalars, Python scalars of its kinds."""
    array = samples((3,), dtype, (1.0, 3.0), 1)
    yield from (xt.asarray(array, copy=True), array, array[0], array[:1], True, 2)
    yield from {"f": (1.5,), "c": (1.5, 1.5 - 2j)}.get(dtype.kind, ())


def _as_numpy(x: Any) -> Any:
    return np.array(x.native()) if isinstance(x, xt.Tensor) else x


@pytest.mark.parametrize(("sign", "name"), [*ELEMENTWISE_SPELLED.items(), *COMPARED.items()])
@every_dtype
def test_operator(sign: str, name: str, dtype: np.dtype[Any]) -> None:
    """An operator is the function of its name, on either side of whatever the function takes."""
    x = xt.asarray(samples((3,), dtype, (1.0, 3.0)), copy=True)
    function, mirrored = getattr(xt, name), f"__r{sign}__" if sign in SPELLED else None
    for lazy in ("auto", "always"):
        for other in _partners(dtype):
            with xt.options(lazy=lazy):
                assert_same_tensor(lambda o=other: getattr(x, f"__{sign}__")(o), lambda o=other: function(x, o))
                if mirrored:
                    assert_same_tensor(lambda o=other: getattr(x, mirrored)(o), lambda o=other: function(o, x))


def assert_same_tensor(ours: Callable[[], Any], theirs: Callable[[], Any]) -> None:
    assert_same_outcome(ours, lambda: _as_numpy(theirs()))


@pytest.mark.parametrize(("sign", "name"), ELEMENTWISE_SPELLED.items())
@every_dtype
def test_operator_in_place(sign: str, name: str, dtype: np.dtype[Any]) -> None:
    """`x op= y` is NumPy's, into the same memory; refused where NumPy refuses it, and nothing changed then."""
    for lazy in ("auto", "always"):
        for other in _partners(dtype):
            if sign == "pow" and dtype.kind == "c" and type(other) in (int, float) and other == 2:
                continue  # test_squares_of_complex_numbers has these
            native = samples((3,), dtype, (1.0, 3.0))
            x = xt.asarray(native, copy=True)
            view, before = x[...], native.copy()
            with xt.options(lazy=lazy):
                got = outcome(lambda x=x, o=other: getattr(x, f"__i{sign}__")(o))
            expected = outcome(lambda n=native, o=other: _in_numpys_place(name, n, _as_numpy(o)))
            if isinstance(expected, type):
                assert got is expected
                assert_same(view, before)
            else:
                assert got is x
                assert_same(view, native)


@pytest.mark.parametrize("dtype", [xt.complex64, xt.complex128], ids=str)
@pytest.mark.parametrize("lazy", ["auto", "always", "never"])
def test_squares_of_complex_numbers(dtype: np.dtype[Any], lazy: Any) -> None:
    """They are products: within 4 eps of the true square, norm-wise; the last bit depends on how the memory lies."""
    native = samples((300,), dtype, (-3.0, 3.0))
    true = native.astype(np.clongdouble) ** 2
    with xt.options(lazy=lazy):
        x = xt.asarray(native, copy=True)
        changed = x.copy()
        changed **= 2
        for found in (x**2, x**2.0, xt.pow(x, 2), changed):
            assert (np.abs(np.asarray(found) - true) <= 4 * np.finfo(dtype).eps * np.abs(true)).all()


def _in_numpys_place(name: str, native: Any, other: Any) -> Any:
    with np.errstate(all="ignore"):
        return getattr(np, name)(native, other, out=native, casting="same_kind")


@pytest.mark.parametrize(("sign", "name"), UNARY.items())
@every_dtype
def test_unary_operator(sign: str, name: str, dtype: np.dtype[Any]) -> None:
    """A unary operator is the function of its name."""
    x = xt.asarray(samples((3,), dtype, (-2.0, 2.0)), copy=True)
    assert_same_tensor(lambda: getattr(x, f"__{sign}__")(), lambda: getattr(xt, name)(x))


@every_dtype
def test_matmul_operator(dtype: np.dtype[Any]) -> None:
    """`@`, reflected and in place, is matmul, with NumPy's arrays too."""
    a, b = samples((3, 3), dtype, (-2.0, 2.0)), samples((3, 3), dtype, (-2.0, 2.0), 1)
    x, y = xt.asarray(a, copy=True), xt.asarray(b, copy=True)
    for other in (y, b):
        assert_same(x @ other, a @ b)
        assert_same(x.__rmatmul__(other), b @ a)
        z = xt.asarray(a, copy=True)
        view = z[...]
        z @= other
        assert_same(view, a @ b)


@pytest.mark.parametrize("value", [0.0, -0.0, 2.5, 0.1, 1e300, -1e300, 1e-300, np.nan, np.inf], ids=str)
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_float_beside_small_operand(value: float, dtype: Any) -> None:
    """A Python number beside a small tensor gives NumPy's bits, also where its equal was met before."""
    native = np.asarray([1.5, -0.0, 0.0, np.inf, np.nan], dtype)
    x = xt.asarray(native, copy=True) + 0.0
    for function in (np.add, np.multiply, np.divide, np.greater, np.copysign):
        for number in (-value, value):
            with np.errstate(all="ignore"):
                expected = function(x.native(), number), function(number, x.native())
            ours = getattr(xt, function.__name__)
            assert [ours(x, number).native().tobytes(), ours(number, x).native().tobytes()] == [
                one.tobytes() for one in expected
            ]
