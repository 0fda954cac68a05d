"""NumPy and xtensor in one expression: operators, NumPy functions, memory, index keys, and strangers."""

from __future__ import annotations

import hashlib
import operator
import sys
from typing import Any

import numpy as np
import pytest

import xtensor as xt

VALUES = [[1.0, 2.0, 3.0], [4.0, 5.0, 6.0]]


@pytest.fixture
def n() -> Any:
    """A NumPy array."""
    return np.asarray(VALUES)


@pytest.fixture
def x() -> Any:
    """A tensor of the same values."""
    return xt.asarray(VALUES)


def assert_same(ours: Any, theirs: Any) -> None:
    """Check that a tensor has the values, shape and dtype of a NumPy result."""
    assert isinstance(ours, xt.Tensor), type(ours)
    assert ours.dtype == np.asarray(theirs).dtype
    np.testing.assert_array_equal(np.asarray(ours), theirs)


# ---- operators

BINARY = [
    operator.add,
    operator.sub,
    operator.mul,
    operator.truediv,
    operator.floordiv,
    operator.mod,
    operator.pow,
    operator.lt,
    operator.le,
    operator.gt,
    operator.ge,
    operator.eq,
    operator.ne,
]
every_operator = pytest.mark.parametrize("op", BINARY, ids=lambda op: op.__name__)


@every_operator
@pytest.mark.parametrize(
    "other",
    [np.asarray(VALUES), np.asarray([1, 2, 3]), np.float64(2), np.float32(2), np.int64(2), np.asarray(2.0)],
    ids=["array", "row", "float64", "float32", "int64", "0-d"],
)
def test_operators_with_numpy(op: Any, other: Any, x: Any, n: Any) -> None:
    """On either side, an operator with a NumPy array or scalar gives a tensor with NumPy's values."""
    assert_same(op(x, other), op(n, other))
    assert_same(op(other, x), op(other, n))


@every_operator
@pytest.mark.parametrize("other", [2, 2.5, True, [1.0, 2.0, 3.0]], ids=repr)
def test_operators_with_python(op: Any, other: Any, x: Any, n: Any) -> None:
    """Python scalars and sequences count as NumPy counts them."""
    assert_same(op(x, other), op(n, other))
    assert_same(op(other, x), op(other, n))


def test_matmul_with_numpy(x: Any, n: Any) -> None:
    """`@` on either side, with matrices and rows."""
    assert_same(n @ x.T, n @ n.T)
    assert_same(x @ n.T, n @ n.T)
    assert_same(n[0] @ x.T, n[0] @ n.T)


@pytest.mark.parametrize("op", [operator.and_, operator.or_, operator.xor, operator.lshift, operator.rshift])
def test_integer_operators_with_numpy(op: Any) -> None:
    """The bitwise operators, with arrays and scalars on either side."""
    n = np.asarray([1, 2, 3])
    x = xt.asarray(n, copy=True)
    for other in (n, np.int64(2), 2):
        assert_same(op(x, other), op(n, other))
        assert_same(op(other, x), op(other, n))


def test_in_place_operators_take_numpy(x: Any, n: Any) -> None:
    """`x += n` writes x's own memory; `n += x` does not fail."""
    same = x
    x += n
    assert same is x
    assert_same(x, n * 2)
    n += xt.asarray(VALUES)
    np.testing.assert_array_equal(np.asarray(n), np.asarray(VALUES) * 2)


def test_promotion_is_numpys() -> None:
    """Kinds mix as in NumPy: integer division gives floats, integers meet floats, scalars are weak."""
    i, f = np.asarray([1, 2, 3]), np.asarray([1.5, 2.5, 3.5], dtype=np.float32)
    x, y = xt.asarray(i, copy=True), xt.asarray(f, copy=True)
    assert_same(x / x, i / i)
    assert_same(x + y, i + f)
    assert_same(y + 1, f + 1)
    assert_same(y + np.float64(1), f + np.float64(1))
    assert_same(x + 0.5, i + 0.5)
    assert_same(xt.sum(x) / 2, np.sum(i) / 2)


# ---- NumPy's functions on tensors

FUNCTIONS: dict[str, tuple[Any, ...]] = {
    **dict.fromkeys(["sum", "prod", "min", "max", "any", "all", "mean", "std", "var", "argmin", "argmax"], ()),
    **dict.fromkeys(["sin", "exp", "sqrt", "isnan", "real", "cumsum", "cumprod", "median", "ptp", "ravel"], ()),
    **dict.fromkeys(["transpose", "squeeze", "sort", "argsort", "diagonal", "trace", "copy", "flip", "diff"], ()),
    **dict.fromkeys(["unique", "ones_like", "zeros_like", "nan_to_num", "average", "count_nonzero"], ()),
    **dict.fromkeys(["shape", "ndim", "size", "atleast_3d", "isreal", "fft.fft"], ()),
    "clip": (2, 5),
    "round": (1,),
    "reshape": ((3, 2),),
    "repeat": (2,),
    "take": ([0, 1],),
    "swapaxes": (0, 1),
    "moveaxis": (0, 1),
    "roll": (1,),
    "tile": (2,),
    "quantile": (0.5,),
    "percentile": (50,),
    "expand_dims": (0,),
    "pad": (1,),
    "multiply.reduce": (),
    "linalg.norm": (),
}


def numpy_function(name: str) -> Any:
    """Return a function of NumPy by its dotted name."""
    return operator.attrgetter(name)(np)


@pytest.mark.parametrize("name", FUNCTIONS)
def test_numpy_functions(name: str, x: Any, n: Any) -> None:
    """A function of NumPy takes a tensor and gives the same values."""
    function = numpy_function(name)
    np.testing.assert_array_equal(np.asarray(function(x, *FUNCTIONS[name])), function(n, *FUNCTIONS[name]))


@pytest.mark.parametrize("name", ["sum", "prod", "min", "max", "any", "all", "mean", "std", "var"])
@pytest.mark.parametrize("keywords", [{"axis": 0}, {"axis": (0, 1)}, {"axis": 1, "keepdims": True}], ids=repr)
def test_numpy_reductions_with_keywords(name: str, keywords: Any, x: Any, n: Any) -> None:
    """NumPy calls the method of that name, with keywords of its own."""
    np.testing.assert_array_equal(np.asarray(getattr(np, name)(x, **keywords)), getattr(np, name)(n, **keywords))


def test_numpy_ddof_and_dtype(x: Any, n: Any) -> None:
    """`ddof` and `dtype` reach the method too."""
    np.testing.assert_array_equal(np.asarray(np.std(x, axis=0, ddof=1)), np.std(n, axis=0, ddof=1))
    np.testing.assert_array_equal(np.asarray(np.var(x, ddof=1)), np.var(n, ddof=1))
    assert np.asarray(np.sum(x, dtype="float32")).dtype == np.float32


def test_numpy_ufuncs_with_out(x: Any, n: Any) -> None:
    """A ufunc may be given a NumPy array to fill."""
    out = np.empty((2, 3))
    assert np.add(x, n, out=out) is out
    np.testing.assert_array_equal(out, n + n)


def test_several_arguments(x: Any, n: Any) -> None:
    """Functions of several arrays take any mixture."""
    np.testing.assert_array_equal(np.concatenate([x, n]), np.concatenate([n, n]))
    np.testing.assert_array_equal(np.stack([x, x]), np.stack([n, n]))
    np.testing.assert_array_equal(np.where(x > 2, x, 0), np.where(n > 2, n, 0))
    np.testing.assert_array_equal(np.einsum("ij,kj->ik", x, x), n @ n.T)
    assert np.array_equal(x, n)
    assert np.allclose(x, n)
    assert np.searchsorted(xt.asarray([1, 2, 3]), 2) == 1


# ---- memory


def test_asarray_shares_memory(x: Any) -> None:
    """`np.asarray` gives an ndarray over the tensor's memory, views of it included."""
    n = np.asarray(x)
    assert type(n) is np.ndarray
    n[0, 0] = 10
    assert x[0, 0] == 10
    x[1, :] = 7
    np.testing.assert_array_equal(n[1], [7, 7, 7])
    assert np.shares_memory(np.asarray(x[:, ::-2]), n)
    assert np.asarray(x[:, ::-2]).strides == (24, -16)


def test_asarray_of_ndarray_shares_memory(n: Any) -> None:
    """`xt.asarray` takes over a NumPy array's memory, and copies on request."""
    x, copied = xt.asarray(n), xt.asarray(n, copy=True)
    n[0, 0] = 10
    assert x[0, 0] == 10
    assert copied[0, 0] == 1
    x += 1
    assert n[0, 0] == 11
    assert np.shares_memory(np.asarray(xt.asarray(n[:, ::-1])), n)


def test_later_writes_reach_no_recorded_value(n: Any) -> None:
    """A value computed from a NumPy array is that of the moment of the call."""
    x = xt.asarray(n)
    y = xt.exp(x) * 2
    before = np.exp(n) * 2
    n[...] = 0
    np.testing.assert_allclose(np.asarray(y), before)


def test_asarray_keywords(x: Any, n: Any) -> None:
    """`dtype` and `copy` of the `__array__` protocol are followed."""
    single = np.asarray(x, dtype=np.float32)
    assert single.dtype == np.float32
    assert not np.shares_memory(np.array(x), np.asarray(x))
    assert not np.shares_memory(np.asarray(x, copy=True), np.asarray(x))
    assert np.shares_memory(np.asarray(x, copy=False), np.asarray(x))
    with pytest.raises(ValueError, match="copy"):
        np.asarray(x, dtype=np.float32, copy=False)
    np.testing.assert_array_equal(x.__array__(None, None), n)


def test_read_only_memory_stays_read_only(n: Any) -> None:
    """Broadcast views and read-only arrays cannot be written from either side."""
    n.flags.writeable = False
    x = xt.asarray(n)
    with pytest.raises(ValueError, match="read-only"):
        x[0, 0] = 1
    assert not np.asarray(x).flags.writeable
    assert not np.asarray(xt.broadcast_to(xt.asarray(1.0), (3,))).flags.writeable
    assert xt.asarray(n, copy=True).is_writeable


@pytest.mark.parametrize("dtype", ["<f8", ">f8", "<i4", ">i4", "?", "<c16", ">c8"])
def test_byte_orders(dtype: str) -> None:
    """Arrays of the other byte order are taken with their values, in the machine's order."""
    n = np.asarray([1, 0, 3]).astype(dtype)
    x = xt.asarray(n)
    assert x.dtype.isnative
    np.testing.assert_array_equal(np.asarray(x), n)


def test_subclasses_and_odd_sources(n: Any) -> None:
    """Subclasses, odd strides, buffers, memory that is not aligned: what NumPy makes of them."""
    assert_same(xt.asarray(n.view(np.recarray)), n)
    assert_same(xt.asarray(n[::-1, ::2]), n[::-1, ::2])
    assert_same(xt.asarray(memoryview(b"ab")), np.asarray([97, 98], dtype=np.uint8))
    packed = np.zeros(2, dtype=[("a", "i1"), ("b", "<i4")])
    packed["b"] = [1, 2]
    assert_same(xt.asarray(packed["b"]), np.asarray([1, 2], dtype=np.int32))  # not aligned


@pytest.mark.parametrize("bad", [np.asarray(["a"]), np.asarray([None]), np.asarray(["2020"], "M8[D]"), "a", None])
def test_what_cannot_be_held(bad: Any) -> None:
    """Strings, objects and dates are refused with a TypeError."""
    with pytest.raises(TypeError, match="asarray"):
        xt.asarray(bad)


def test_assigning_into_numpy(x: Any, n: Any) -> None:
    """A NumPy array can be filled from a tensor, whole, in part, and from 0-d ones."""
    into = np.zeros((2, 3))
    into[...] = x
    np.testing.assert_array_equal(into, n)
    into[0] = x[1]
    into[1, 0] = x[0, 0]
    np.testing.assert_array_equal(into, [[4, 5, 6], [1, 5, 6]])


def test_tensors_as_numpy_index_keys(n: Any) -> None:
    """A tensor selects from a NumPy array as an array would."""
    np.testing.assert_array_equal(n[xt.asarray([1, 0])], n[[1, 0]])
    np.testing.assert_array_equal(n[xt.asarray(n) > 2], n[n > 2])
    np.testing.assert_array_equal(n[xt.asarray(1)], n[1])


KEYS = [
    np.int64(1),
    np.asarray([1, 0, 1]),
    np.asarray([True, False]),
    (slice(None), np.asarray([0, 2])),
    (np.asarray([0, 1]), np.asarray([2, 0])),
    (np.asarray([[0], [1]]), [0, 2]),
    (np.uint8(1), slice(None, None, -1)),
    (..., np.asarray([True, False, True])),
    np.asarray([], dtype=np.int64),
    [],
    (None, np.asarray([0])),
]


@pytest.mark.parametrize("key", KEYS, ids=repr)
def test_numpy_index_keys(key: Any, x: Any, n: Any) -> None:
    """NumPy arrays and scalars select, and assign, as they do in NumPy."""
    assert_same(x[key], n[key])
    x[key], n[key] = 9, 9
    assert_same(x, n)


def test_functions_take_numpy(n: Any) -> None:
    """The namespace's functions take NumPy arrays and give tensors."""
    assert_same(xt.add(n, n), n + n)
    assert_same(xt.sum(n, axis=0), n.sum(axis=0))
    assert_same(xt.matmul(n, xt.asarray(n.T)), n @ n.T)
    assert_same(xt.concat([n, xt.asarray(n)]), np.concatenate([n, n]))
    assert_same(xt.linalg.qr(n)[1], np.linalg.qr(n)[1])


# ---- strangers


class Stranger:
    """Answers every operator itself."""

    __array_ufunc__ = None

    def answer(self, other: Any) -> str:
        """Say that this class was asked."""
        return f"asked with {type(other).__name__}"

    __radd__ = __rsub__ = __rmul__ = __rtruediv__ = __rfloordiv__ = __rmod__ = __rpow__ = __rmatmul__ = answer
    __rand__ = __ror__ = __rxor__ = __rlshift__ = __rrshift__ = answer
    __lt__ = __le__ = __gt__ = __ge__ = __eq__ = __ne__ = answer  # type: ignore[assignment]


STRANGE = [*BINARY, operator.matmul, operator.and_, operator.or_, operator.xor, operator.lshift, operator.rshift]


@pytest.mark.parametrize("op", STRANGE, ids=lambda op: op.__name__)
def test_strangers_are_asked(op: Any) -> None:
    """An operand of a type xtensor knows nothing of gets its turn."""
    assert op(xt.ones((2, 2), dtype=xt.int64), Stranger()) == "asked with Tensor"


@pytest.mark.parametrize(
    "op", [op for op in STRANGE if op not in (operator.eq, operator.ne)], ids=lambda op: op.__name__
)
@pytest.mark.parametrize("other", [object(), None, {}], ids=["object", "None", "dict"])
def test_nobody_answers(op: Any, other: Any) -> None:
    """Where the other side does not answer either, Python says so, whichever side it stands on."""
    x = xt.ones((2, 2), dtype=xt.int64)
    with pytest.raises(TypeError):
        op(x, other)
    with pytest.raises(TypeError):
        op(other, x)


def test_equality_with_strangers(x: Any, n: Any) -> None:
    """No number is None or a text, element by element, as in NumPy; other objects are told by identity."""
    for stranger in (None, "text", b"text"):
        for ours, theirs in ((x == stranger, n == stranger), (x != stranger, n != stranger)):
            assert ours.dtype == xt.bool
            np.testing.assert_array_equal(np.asarray(ours), theirs)
        assert bool(x[0, 0] == stranger) is bool(n[0, 0] == stranger) is False
    assert (x == object()) is False


def test_in_place_with_strangers(x: Any) -> None:
    """`x += stranger` fails cleanly and leaves x as it was."""
    with pytest.raises(TypeError, match="unsupported operand"):
        x += object()
    np.testing.assert_array_equal(np.asarray(x), VALUES)


class Dataset:
    """What can be converted, but has no arithmetic, as an h5py.Dataset."""

    def __init__(self, values: Any) -> None:
        self.values = values

    def __array__(self, dtype: Any = None, copy: Any = None) -> Any:
        return np.asarray(self.values, dtype=dtype)


@pytest.mark.parametrize("op", [operator.add, operator.sub, operator.truediv, operator.pow, operator.lt, operator.eq])
def test_objects_without_operators_are_converted(op: Any, x: Any, n: Any) -> None:
    """On both sides; in place too, into the same memory. Functions still ask for arrays."""
    assert_same(op(x, Dataset(n)), op(n, n))
    assert_same(op(Dataset(n), x), op(n, n))
    assert_same(x @ Dataset(n.T), n @ n.T)
    assert_same(Dataset(n) @ xt.asarray(n.T), n @ n.T)
    if op is operator.add:
        seen, y = x[...], x
        y += Dataset(n)
        assert_same(seen, n + n)
        with pytest.raises(TypeError, match="add: x2 must be an array or a scalar, got Dataset"):
            xt.add(x, Dataset(n))


def test_masked_arrays_keep_their_mask(x: Any, n: Any) -> None:
    """Their reflected operators answer; in place, where that would not be, and in functions they are refused."""
    masked = np.ma.masked_array(n, n > 4)
    for op in (operator.mul, operator.sub, operator.lt, operator.eq):
        for found, expected in ((op(x, masked), op(n, masked)), (op(masked, x), op(masked, n))):
            assert isinstance(found, np.ma.MaskedArray)
            assert found.mask.tolist() == expected.mask.tolist()
            np.testing.assert_array_equal(np.asarray(found.filled(0)), expected.filled(0))
    with pytest.raises(TypeError, match="got MaskedArray"):
        x += masked
    with pytest.raises(TypeError, match="got MaskedArray"):
        xt.multiply(x, masked)
    assert_same(x, n)


def test_buffers(x: Any, n: Any) -> None:
    """`data` is a buffer and no memoryview, which netCDF4 takes for the mark of NumPy's arrays; `ctypes` is NumPy's;
    from Python 3.12 on tensors are buffers themselves, writable ones where NumPy's are.
    """
    assert not isinstance(x.data, memoryview) and bytes(x.data) == n.tobytes()
    assert x.ctypes.data == np.asarray(x).ctypes.data
    if sys.version_info >= (3, 12):
        view = memoryview(x)
        assert (view.format, view.shape, view.strides) == ("d", n.shape, n.strides)
        view[1, 2] = 7.0
        n[1, 2] = 7.0
        assert_same(x, n)
        assert hashlib.sha256(x).digest() == hashlib.sha256(n).digest()
        assert np.asarray(x).dtype == n.dtype and np.asarray(x[:, ::2]).tolist() == n[:, ::2].tolist()
        x.flags.writeable = False
        assert memoryview(x).readonly
        leaf = xt.asarray(n, requires_grad=True)
        with pytest.raises((RuntimeError, BufferError)):
            memoryview(leaf * 2.0)


def test_views_as_raw_bytes(x: Any, n: Any) -> None:
    """They are NumPy's, over the same memory: tensors have no such dtype, and zarr compares chunks so."""
    found = x.view("V8")
    assert type(found) is np.ndarray and found.tobytes() == n.tobytes()
    x[0, 0] = 9.0
    assert found.tobytes() == np.asarray(x).tobytes()
    with pytest.raises(TypeError, match="view: dtype must be"):
        x.view("U2")


def test_infinities_as_integers() -> None:
    """As NumPy's full, with its warning."""
    with pytest.warns(RuntimeWarning, match="invalid value"):
        expected = np.full(3, -np.inf, dtype=np.int32)
    for call in (
        lambda: xt.full(3, -xt.inf, dtype=xt.int32),
        lambda: xt.full_like(xt.zeros(3, dtype=xt.int32), -xt.inf),
    ):
        with pytest.warns(RuntimeWarning, match="invalid value"):
            found = call()
        assert_same(found, expected)


def test_linear_operators_and_sparse_matrices(x: Any, n: Any) -> None:
    """SciPy's linear operators and sparse arrays answer `@` themselves, on either side."""
    linear = pytest.importorskip("scipy.sparse.linalg")
    sparse = pytest.importorskip("scipy.sparse")
    twice = 2 * np.eye(2)
    for other in (linear.aslinearoperator(twice), sparse.csr_array(twice), sparse.coo_matrix(twice)):
        np.testing.assert_array_equal(np.asarray(other @ x), 2 * n)
        np.testing.assert_array_equal(np.asarray(x.T @ other), 2 * n.T)


# ---- DLPack


def test_dlpack_shares_memory(x: Any, n: Any) -> None:
    """Memory goes to NumPy and comes from it without a copy."""
    theirs = np.from_dlpack(x)
    theirs[0, 0] = 10
    assert x[0, 0] == 10
    ours = xt.from_dlpack(n)
    n[0, 0] = 20
    assert ours[0, 0] == 20
    assert not np.shares_memory(np.asarray(xt.from_dlpack(n, copy=True)), n)


@pytest.mark.parametrize("keywords", [{}, {"device": "cpu"}, {"copy": True}, {"copy": False}, {"copy": None}], ids=repr)
def test_dlpack_keywords(keywords: Any, x: Any, n: Any) -> None:
    """Both directions with every keyword."""
    np.testing.assert_array_equal(np.from_dlpack(x, **keywords), n)
    assert_same(xt.from_dlpack(n, **keywords), n)
    assert_same(xt.from_dlpack(x, **keywords), n)


LAYOUTS = {
    "packed": lambda x: x,
    "transposed": lambda x: x.T,
    "gaps": lambda x: x[:, ::2],
    "offset": lambda x: x[1:, 1:],
    "reversed": lambda x: x[::-1, ::-1],
    "broadcast": lambda x: xt.broadcast_to(x[:1], (4, 3)),
    "0-d": lambda x: x[0, 0],
    "empty": lambda x: x[:0],
}
every_layout = pytest.mark.parametrize("layout", LAYOUTS.values(), ids=LAYOUTS)


class Unversioned:
    """Hands a tensor on as JAX and PyTorch before 2.9 ask for it: without any keyword but stream."""

    def __init__(self, x: Any) -> None:
        self.x = x

    def __dlpack__(self, *, stream: Any = None) -> Any:
        return self.x.__dlpack__(stream=stream)

    def __dlpack_device__(self) -> tuple[int, int]:
        return self.x.__dlpack_device__()


@every_layout
def test_dlpack_layouts(layout: Any, x: Any, n: Any) -> None:
    """Every layout leaves, with no negative stride among the strides."""
    view = layout(x)
    theirs = np.from_dlpack(view)
    np.testing.assert_array_equal(theirs, np.asarray(view))
    assert all(stride >= 0 for stride in theirs.strides)


@every_layout
def test_dlpack_unversioned(layout: Any, x: Any) -> None:
    """A consumer of the old protocol gets memory without gaps or repetitions."""
    view = layout(x)
    theirs = np.from_dlpack(Unversioned(view))
    np.testing.assert_array_equal(theirs, np.asarray(view))
    assert theirs.flags.c_contiguous or theirs.flags.f_contiguous


@pytest.mark.parametrize("name", ["reversed", "broadcast"])
def test_dlpack_without_copy(name: str, x: Any) -> None:
    """copy=False refuses what would have to be copied."""
    with pytest.raises(BufferError, match="copy=False"):
        LAYOUTS[name](x).__dlpack__(copy=False, max_version=(1, 0))


def test_dlpack_arguments(x: Any) -> None:
    """The device is asked for by its number; another device and a stream are refused."""
    assert x.__dlpack_device__() == (1, 0)
    np.testing.assert_array_equal(np.from_dlpack(x, device="cpu"), VALUES)
    x.__dlpack__(dl_device=(1, 0), max_version=(1, 0), stream=None, copy=None)
    with pytest.raises(BufferError, match="dl_device"):
        x.__dlpack__(dl_device=(2, 0))
    with pytest.raises(BufferError, match="stream"):
        x.__dlpack__(stream=1)


@pytest.mark.parametrize("dtype", ["bool", "int8", "uint8", "int64", "uint64", "float32", "complex64", "complex128"])
def test_dlpack_dtypes(dtype: str) -> None:
    """Every kind of element travels."""
    n = np.asarray([0, 1, 1]).astype(dtype)
    assert_same(xt.from_dlpack(np.from_dlpack(xt.asarray(n))), n)


def test_dlpack_read_only() -> None:
    """Read-only memory comes in read-only, and goes out as a copy."""
    n = np.arange(3.0)
    n.flags.writeable = False
    x = xt.from_dlpack(n)
    assert not x.is_writeable
    np.testing.assert_array_equal(np.from_dlpack(x), n)


class Broken:
    """A producer that fails."""

    def __init__(self, error: Exception) -> None:
        self.error = error

    def __dlpack__(self, **keywords: Any) -> Any:
        raise self.error

    def __dlpack_device__(self) -> tuple[int, int]:
        return (1, 0)


@pytest.mark.parametrize(
    "error", [RuntimeError("no"), AssertionError("no"), BufferError("no"), ValueError("no")], ids=repr
)
def test_broken_producers(error: Exception) -> None:
    """Whatever a producer raises, the caller gets one of the errors consumers catch."""
    with pytest.raises((BufferError, TypeError, ValueError), match="no"):
        xt.from_dlpack(Broken(error))


def test_what_is_no_producer() -> None:
    """An object without the protocol is refused."""
    with pytest.raises(TypeError, match="__dlpack__"):
        xt.from_dlpack(object())  # type: ignore[arg-type]


class OnlyDLPack:
    """An array that can only be exchanged."""

    def __init__(self, n: Any) -> None:
        self.n = n

    def __dlpack__(self, **keywords: Any) -> Any:
        return self.n.__dlpack__(**keywords)

    def __dlpack_device__(self) -> tuple[int, int]:
        return (1, 0)


class OnlyArray:
    """An array that only NumPy understands."""

    def __init__(self, n: Any) -> None:
        self.n = n

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> Any:
        return np.asarray(self.n, dtype=dtype)


@pytest.mark.parametrize("make", [OnlyDLPack, OnlyArray])
def test_asarray_of_foreign_arrays(make: Any, n: Any) -> None:
    """`asarray` keeps a foreign array's dtype and takes dtype and copy."""
    single = n.astype(np.float32)
    assert_same(xt.asarray(make(single)), single)
    assert_same(xt.asarray(make(single), dtype=xt.float64), n)
    copied = xt.asarray(make(single), copy=True)
    copied[0, 0] = 9
    assert single[0, 0] == 1


@pytest.mark.parametrize("dtype", ["int32", "complex128", "float64"])
@pytest.mark.parametrize(
    "empty",
    [np.zeros((8, 8), order="F")[:0, :0], np.zeros((4, 6))[:0, ::2], np.zeros((3, 4))[:, 9:], np.zeros((0, 4))],
    ids=["columns", "steps", "nothing beyond the end", "rows"],
)
def test_reading_nothing_as_another_dtype(empty: np.ndarray, dtype: str) -> None:
    """Whatever its strides say, memory without elements can be read as another dtype where NumPy does so."""
    x = xt.asarray(empty)
    if empty.shape[-1] * 8 % np.dtype(dtype).itemsize:
        with pytest.raises(ValueError, match="view: dtype must divide"):
            x.view(dtype)
    else:
        assert x.view(dtype).shape == empty.view(dtype).shape


def test_another_byte_order_is_copied_or_refused() -> None:
    """No tensor lies in memory as such an array does, so that without a copy there is none."""
    swapped = np.arange(3.0).astype(np.dtype(np.float64).newbyteorder())
    assert xt.asarray(swapped).tolist() == [0.0, 1.0, 2.0]
    with pytest.raises(ValueError, match="^asarray: copy must be None or True"):
        xt.asarray(swapped, copy=False)


def test_gradients_of_what_is_written_by_the_library() -> None:
    """Sums at indices have them; of other functions that write their argument, going back says that none is known."""
    import xtensor.numpy as xnp

    def spread(x: xt.Tensor) -> xt.Tensor:
        total = xnp.zeros(3)
        xnp.add.at(total, [0, 0, 2], x)
        xnp.subtract.at(total, np.array([1, 2, 2]), 2 * x)
        return xt.sum(total**2)

    x = np.array([1.0, 2.0, 3.0])
    matrix = np.zeros((3, 3))
    for places, factor in (([0, 0, 2], 1.0), ([1, 2, 2], -2.0)):
        matrix[places, np.arange(3)] += factor
    np.testing.assert_allclose(xt.grad(spread)(xt.asarray(x)).numpy(), 2 * matrix.T @ matrix @ x, rtol=1e-14)

    writes = (
        lambda total, x: xnp.maximum.at(total, [0, 0, 2], x),
        lambda total, x: xnp.matmul(xnp.eye(3), x, out=total),
    )
    for write in writes:

        def loss(x: xt.Tensor, write: Any = write) -> xt.Tensor:
            total = xnp.zeros(3)
            write(total, x)
            return xt.sum(total**2)

        with pytest.raises(NotImplementedError, match="no derivative"):
            xt.grad(loss)(xt.asarray(x))
