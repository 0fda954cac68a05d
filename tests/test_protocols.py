"""What Python asks of a value: scalars, iteration, text, pickles and copies; and how tensors describe themselves."""

from __future__ import annotations

import copy
import operator
import pickle
from collections import Counter
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

import xtensor as xt


@pytest.fixture
def x() -> Any:
    """A matrix."""
    return xt.asarray([[1.0, 2.0, 3.0], [4.0, 5.0, 6.0]])


def assert_same(ours: Any, theirs: Any) -> None:
    """Check that a tensor has the values, shape and dtype of a NumPy result."""
    assert isinstance(ours, xt.Tensor), type(ours)
    assert ours.dtype == np.asarray(theirs).dtype
    np.testing.assert_array_equal(np.asarray(ours), theirs)


# ---- scalars


@pytest.mark.parametrize("convert", [bool, int, float, complex])
@pytest.mark.parametrize("value", [True, False, 3, -2, 2.75, 0.0])
def test_conversions(convert: Any, value: Any) -> None:
    """A 0-d tensor converts to the Python scalar its element would be."""
    found = convert(xt.asarray(value))
    assert type(found) is convert
    assert found == convert(value)


def test_index() -> None:
    """Integer 0-d tensors are indices of anything."""
    two = xt.asarray(2, dtype=xt.uint8)
    assert operator.index(two) == 2
    assert list(range(two)) == [0, 1]
    assert "abc"[two] == "c"


@pytest.mark.parametrize(
    ("convert", "value"),
    [
        (int, 1 + 2j),
        (float, 1 + 2j),
        (operator.index, 2.0),
        (operator.index, True),
        (int, [1, 2]),
        (float, [1.0, 2.0]),
        (complex, [1.0, 2.0]),
        (operator.index, [1, 2]),
        (len, 1.0),
        (iter, 1.0),
        (hash, 1.0),
    ],
)
def test_refused_conversions(convert: Any, value: Any) -> None:
    """What has no single meaning is a TypeError."""
    with pytest.raises(TypeError):
        convert(xt.asarray(value))


@pytest.mark.parametrize("value", [[], [1, 2], [[True, False]]], ids=repr)
def test_refused_truth(value: Any) -> None:
    """Several elements, or none, are neither true nor false: a ValueError, as in NumPy."""
    with pytest.raises(ValueError, match="one element"):
        bool(xt.asarray(value))


def test_truth_of_one_element() -> None:
    """One element decides, whatever the shape."""
    assert xt.asarray([[1]])
    assert not xt.asarray([0.0])
    assert xt.asarray(2j)


def test_scalars_out(x: Any) -> None:
    """`item` and `tolist` give Python's own types."""
    assert type(xt.asarray(2, dtype=xt.int8).item()) is int
    assert type(xt.asarray(2, dtype=xt.float32).item()) is float
    assert x.item(1, 2) == 6.0
    assert x.tolist() == [[1.0, 2.0, 3.0], [4.0, 5.0, 6.0]]
    assert type(x.tolist()[0][0]) is float
    assert xt.asarray(True).tolist() is True
    assert xt.zeros((0, 2)).tolist() == []
    with pytest.raises(ValueError, match="size 1|one element"):
        x.item()


# ---- containers


def test_length_and_membership(x: Any) -> None:
    """`len` counts the first axis; `in` looks at every element."""
    assert len(x) == 2
    assert len(xt.zeros((0, 3))) == 0
    assert 5.0 in x
    assert 7.0 not in x


def test_iteration(x: Any) -> None:
    """Iterating gives views of the rows."""
    rows = list(x)
    assert [row.tolist() for row in rows] == x.tolist()
    rows[0][0] = 10
    assert x[0, 0] == 10
    first, second = x
    assert_same(second, np.asarray([4.0, 5.0, 6.0]))
    assert [int(i) for i in xt.arange(3)] == [0, 1, 2]


def test_iteration_is_lazy() -> None:
    """SciPy calls `iter` on every array: that alone makes no element."""
    huge = xt.broadcast_to(xt.asarray(1.0), (2**40,))
    assert float(next(iter(huge))) == 1.0
    pending = xt.exp(xt.ones(100_000)) * 2
    was_pending = pending.is_pending
    iter(pending)
    assert pending.is_pending == was_pending


def test_builtins() -> None:
    """Python's own functions of sequences work."""
    x = xt.asarray([3, 1, 2])
    assert int(sum(x)) == 6
    assert int(max(x)) == 3
    assert [int(i) for i in sorted(x)] == [1, 2, 3]
    assert [int(i) for i in reversed(x)] == [2, 1, 3]
    assert abs(xt.asarray(-2)) == 2


def test_arrays_are_unhashable() -> None:
    """Since == is elementwise, an array is no key, also one without axes that can be written."""
    for x in (xt.ones(3), xt.ones(()), xt.ones(3)[:1], xt.ones(3)[0, ...]):
        with pytest.raises(TypeError, match=r"unhashable type: 'Tensor' of shape \("):
            {x: 1}  # noqa: B018


@pytest.mark.parametrize("options", [{}, {"lazy": "always"}, {"lazy": "never"}, {"lazy": "always", "engine": "direct"}])
def test_values_are_keys(options: Any) -> None:
    """Elements and results without axes are found as NumPy's scalars and Python's numbers are."""
    with xt.options(**options):
        labels = xt.asarray([3, 1, 3, 2])
        assert Counter(labels) == {1: 1, 2: 1, 3: 2}
        assert {xt.sum(labels * 2), labels[1] + 1, -labels[1]} == {18, 2, -1}
        assert hash(xt.mean(labels)) == hash(2.25) and 2.25 in {xt.mean(labels)}


def _values(x: Any) -> Iterator[Any]:
    """Yield what NumPy gives as scalars, and what it gives as arrays without axes."""
    yield from (x[0], x[-1] * 2 + 1, -x[1], 1 - x[1], xt.sum(x), xt.max(x), xt.mean(x), xt.matmul(x, x), xt.std(x))


@pytest.mark.parametrize("n", [6, 300_000])
@pytest.mark.parametrize("options", [{}, {"lazy": "always"}, {"lazy": "never"}, {"lazy": "always", "engine": "direct"}])
def test_a_value_that_is_updated_is_another_one(n: int, options: Any) -> None:
    """`x += y` of an element or a result leaves who else holds it alone, as with NumPy's scalars."""
    with xt.options(**options):
        x = xt.arange(n, dtype=xt.float64)
        for value in _values(x):
            before, held = float(value), value
            for other in (1, 2.0, xt.asarray(3.0), x[1]):
                value += other
            value *= 2
            assert float(held) == before and float(value) == (before + 7) * 2
        for element in x[:3]:
            element += 1
        x[3] += 1
        assert x[:4].tolist() == [0.0, 1.0, 2.0, 4.0]


def test_an_array_without_axes_is_updated_in_place() -> None:
    x = xt.arange(4.0)
    for target, seen in ((made := xt.zeros(()), made), (x[1, ...], x[1]), (xt.reshape(x[:1], ()), x[0])):
        same = target
        target += 5
        assert same is target and float(same) == float(seen) + 5 * (target is not made)
    assert x.tolist() == [5.0, 6.0, 2.0, 3.0]


def test_an_updated_value_keeps_its_dtype_where_that_fits() -> None:
    """The standard: an operator in place changes no dtype."""
    h = xt.ones(2, dtype=xt.float32)[0]
    h += xt.ones(2)[0]
    assert h.dtype == xt.float32 and float(h) == 2.0
    with pytest.raises(OverflowError, match="add"):
        h = xt.ones(2, dtype=xt.int8)[0]
        h += 300


@pytest.mark.parametrize("n", [2, 200_000])
@pytest.mark.parametrize("times", [1, 200])  # in Python, and in machine code
def test_an_updated_value_of_another_shape_or_kind(times: int, n: int) -> None:
    """NumPy's scalars have no operators in place: `x += y` is `x = x + y`, of any shape and dtype."""
    for _ in range(times):
        counts, x = xt.ones(n, dtype=xt.int64), xt.ones(n)
        total = held = xt.sum(counts)
        total /= 4
        assert total.dtype == xt.float64 and float(total) == n / 4 and int(held) == n
        total -= x
        assert total.shape == (n,) and float(total[-1]) == n / 4 - 1
        counts[0] *= 2.5
        assert counts[:2].tolist() == [2, 1] and counts.dtype == xt.int64


def test_an_updated_value_of_another_shape_with_a_gradient() -> None:
    def spread(x: xt.Tensor) -> xt.Tensor:
        total = xt.sum(x * x)
        total -= x
        return xt.sum(total)

    assert xt.grad(spread)(xt.asarray([1.0, 2.0])).tolist() == [3.0, 7.0]
    fused = xt.fuse(spread)
    assert [float(fused(xt.asarray([1.0, 2.0]))) for _ in range(3)] == [7.0] * 3


# ---- text

TEXTS = {
    "Tensor([1, 2, 3], dtype=int64)": lambda: xt.asarray([1, 2, 3]),
    "Tensor(2.5, dtype=float64)": lambda: xt.asarray(2.5),
    "Tensor([ True, False], dtype=bool)": lambda: xt.asarray([True, False]),
    "Tensor([1.+2.j, 3.+0.j], dtype=complex128)": lambda: xt.asarray([1 + 2j, 3]),
    "Tensor([nan, inf], dtype=float32)": lambda: xt.asarray([xt.nan, xt.inf], dtype=xt.float32),
    "Tensor([1.e-10, 1.e+00], dtype=float64)": lambda: xt.asarray([1e-10, 1]),
    "Tensor([], shape=(0, 3), dtype=uint8)": lambda: xt.zeros((0, 3), dtype=xt.uint8),
    "Tensor([   0,    1,    2, ..., 1997, 1998, 1999], dtype=int64)": lambda: xt.arange(2000),
    "Tensor([[1., 2.],\n        [3., 4.]], dtype=float64)": lambda: xt.asarray([[1.0, 2.0], [3.0, 4.0]]),
    "Tensor([[1., 3.],\n        [2., 4.]], dtype=float64)": lambda: xt.asarray([[1.0, 2.0], [3.0, 4.0]]).T,
}


@pytest.mark.parametrize(("text", "make"), TEXTS.items(), ids=TEXTS)
def test_repr(text: str, make: Any) -> None:
    """`repr` shows values as NumPy lays them out, and the dtype."""
    assert repr(make()) == text


@pytest.mark.parametrize("make", TEXTS.values(), ids=TEXTS)
def test_str_is_numpys(make: Any) -> None:
    """`str`, and formatting without a specification, are NumPy's."""
    x = make()
    assert str(x) == str(np.asarray(x))
    assert f"{x}" == str(np.asarray(x))


def test_printing_follows_numpys_options() -> None:
    """`np.set_printoptions` holds for tensors too."""
    with np.printoptions(precision=2):
        assert repr(xt.asarray([1.23456])) == "Tensor([1.23], dtype=float64)"


@pytest.mark.parametrize("spec", [".3f", "8.2e", ">10", "d", "+d", "x", "%"])
def test_format_of_scalars(spec: str) -> None:
    """A 0-d tensor is formatted as its element."""
    value = 42 if spec in ("d", "+d", "x") else 2.5
    assert format(xt.asarray(value), spec) == format(value, spec)
    with pytest.raises(TypeError, match="^format: "):
        format(xt.asarray([1.0, 2.0]), ".3f")


def test_printing_a_pending_value() -> None:
    """Printing computes what is needed to print."""
    with xt.options(lazy="always"):
        y = xt.asarray([1.0, 2.0]) + 1
        assert repr(y) == "Tensor([2., 3.], dtype=float64)"


# ---- pickles and copies

LAYOUTS = {
    "packed": lambda x: x,
    "transposed": lambda x: x.T,
    "reversed": lambda x: x[::-1, ::-1],
    "column": lambda x: x[:, 1],
    "broadcast": lambda x: xt.broadcast_to(x, (2, 2, 3)),
    "0-d": lambda x: x[0, 0],
    "empty": lambda x: x[:0],
}
every_layout = pytest.mark.parametrize("layout", LAYOUTS.values(), ids=LAYOUTS)


@every_layout
@pytest.mark.parametrize("protocol", range(2, pickle.HIGHEST_PROTOCOL + 1))
def test_pickle(layout: Any, protocol: int, x: Any) -> None:
    """Values, shape, dtype and device survive; the copy is independent and writable."""
    view = layout(x)
    found = pickle.loads(pickle.dumps(view, protocol))
    assert_same(found, np.asarray(view))
    assert found.shape == view.shape
    assert found.device == view.device
    found[...] = 0
    assert x[0, 0] == 1


def test_pickle_out_of_band() -> None:
    """Protocol 5 hands over the memory itself: nothing is copied into the stream."""
    x = xt.arange(10_000.0)
    buffers: list[pickle.PickleBuffer] = []
    stream = pickle.dumps(x, 5, buffer_callback=buffers.append)
    assert len(stream) < 1000
    assert [buffer.raw().nbytes for buffer in buffers] == [80_000]
    assert np.shares_memory(np.asarray(buffers[0].raw()), np.asarray(x).view(np.uint8))
    assert_same(pickle.loads(stream, buffers=buffers), np.asarray(x))


def test_pickle_out_of_band_keeps_what_was_sent() -> None:
    """A write after sending does not change pending readers of what is received, nor they the sender."""
    x = xt.arange(1000.0)
    buffers: list[pickle.PickleBuffer] = []
    stream = pickle.dumps(x, 5, buffer_callback=buffers.append)
    found = pickle.loads(stream, buffers=[bytearray(buffer.raw()) for buffer in buffers])
    found += 1
    assert x[0] == 0
    assert found[0] == 1


def test_pickled_views_are_compact() -> None:
    """A view of little takes little, however much memory lies behind it."""
    big = xt.ones((1000, 1000))
    assert len(pickle.dumps(big[:2, ::500], 5)) < 1000
    buffers: list[pickle.PickleBuffer] = []
    pickle.dumps(big[::100, ::100], 5, buffer_callback=buffers.append)
    assert sum(buffer.raw().nbytes for buffer in buffers) == 800


def test_pickle_of_pending_values() -> None:
    """What is not computed yet is computed."""
    with xt.options(lazy="always"):
        y = xt.asarray([1.0, 2.0]) + 1
        assert pickle.loads(pickle.dumps(y)).tolist() == [2.0, 3.0]


def test_truncated_pickles(x: Any) -> None:
    """A damaged stream is an error of pickle's own kind."""
    stream = pickle.dumps(x)
    for length in (0, 10, len(stream) // 2, len(stream) - 1):
        with pytest.raises((pickle.UnpicklingError, EOFError, ValueError, AttributeError)):
            pickle.loads(stream[:length])


@every_layout
@pytest.mark.parametrize("copied", [copy.copy, copy.deepcopy, lambda x: x.copy()], ids=["copy", "deepcopy", "method"])
def test_copies(layout: Any, copied: Any, x: Any) -> None:
    """A copy has the values and memory of its own, which can be written."""
    view = layout(x)
    found = copied(view)
    assert_same(found, np.asarray(view))
    found[...] = 0
    assert x[0, 0] == 1


def test_deepcopy_keeps_identities(x: Any) -> None:
    """What was one tensor in a structure stays one."""
    first, second = copy.deepcopy([x, x])
    assert first is second


# ---- dtypes, devices and the namespace


def test_dtypes_are_numpys(x: Any) -> None:
    """A dtype is a real numpy.dtype: hashable, comparable with names and types."""
    assert type(x.dtype) is type(np.dtype("float64"))
    assert x.dtype == "float64" == xt.float64 == np.float64
    assert {xt.float32: 1}[np.dtype("f4")] == 1
    assert x.dtype.kind == "f"
    assert np.dtype(xt.int8) == xt.int8
    assert xt.asarray(x, dtype="int32").dtype == xt.int32
    assert xt.zeros(2, dtype=float).dtype == xt.float64
    assert xt.result_type("float32", xt.int64, x) == xt.float64


def test_shape_is_a_plain_tuple(x: Any) -> None:
    """A hashable tuple of Python ints, from any kind of shape that was given."""
    for shape in ([2, 3], (np.int64(2), 3), xt.zeros((2, 3)).shape):
        made = xt.zeros(shape)
        assert made.shape == (2, 3)
        assert type(made.shape) is tuple
        assert {type(length) for length in made.shape} == {int}
    assert xt.reshape(x, [3, 2]).shape == (3, 2)
    assert xt.broadcast_to(x, [4, 2, 3]).shape == (4, 2, 3)
    assert len({x.shape, (2, 3)}) == 1
    assert np.broadcast_shapes(x.shape, (1, 3)) == (2, 3)
    assert (x.ndim, x.size) == (2, 6)


def test_devices(x: Any) -> None:
    """Devices equal their names and nothing else; comparing never fails."""
    assert x.device == "cpu"
    assert x.device != "cuda"
    assert x.device not in (None, 0, object())
    assert str(x.device) == "cpu"
    assert hash(x.device) == hash("cpu")
    assert pickle.loads(pickle.dumps(x.device)) == x.device
    for device in ("cpu", x.device, None):
        assert xt.asarray([1], device=device).device == x.device
        assert xt.zeros(2, device=device).device == x.device
    assert x.to_device("cpu") is x
    assert x.to_device(x.device, stream=None) is x


@pytest.mark.parametrize("device", ["gpu", "cpu:1", ""])
def test_unknown_devices(device: str, x: Any) -> None:
    """A device that is not there is a ValueError."""
    with pytest.raises(ValueError, match="device"):
        xt.zeros(2, device=device)
    with pytest.raises(ValueError, match="device"):
        x.to_device(device)


def test_namespace(x: Any) -> None:
    """The namespace is one module, whatever the version asked for."""
    for version in (None, "2021.12", "2022.12", "2023.12", "2024.12", "2025.12"):
        assert x.__array_namespace__(api_version=version) is xt
    assert xt.__name__ == "xtensor"
    assert xt.__array_api_version__ == "2025.12"
    with pytest.raises(ValueError, match="2026.12"):
        x.__array_namespace__(api_version="2026.12")


def test_namespace_info() -> None:
    """The inspection API, with devices as strings, objects and None."""
    info = xt.__array_namespace_info__()
    assert type(info.devices()) is tuple
    assert info.default_device() in info.devices()
    for device in ("cpu", info.default_device(), None):
        assert info.dtypes(device=device)["float64"] == xt.float64
        assert set(info.dtypes(device=device, kind="real floating")) == {"float32", "float64"}
        assert info.default_dtypes(device=device)["integral"] == xt.int64
    assert info.capabilities()["boolean indexing"] is True
    assert info.capabilities()["data-dependent shapes"] is True


def test_asarray_of_own_is_free(x: Any) -> None:
    """A tensor that is as wanted comes back itself."""
    assert xt.asarray(x) is x
    assert xt.asarray(x, dtype=xt.float64, device="cpu", copy=None) is x
    assert xt.asarray(x, copy=True) is not x


# ---- conveniences

METHODS: list[tuple[str, tuple[Any, ...], dict[str, Any]]] = [
    *((name, (), {}) for name in ["sum", "prod", "mean", "std", "var", "min", "max", "any", "all", "argmin", "argmax"]),
    *(
        (name, (0,), {})
        for name in ["sum", "prod", "mean", "std", "var", "min", "max", "any", "all", "argmin", "argmax"]
    ),
    *((name, (), {"axis": 1, "keepdims": True}) for name in ["sum", "mean", "std", "max", "any", "argmax"]),
    ("sum", (), {"dtype": "float32"}),
    ("reshape", (3, 2), {}),
    ("reshape", ((3, 2),), {}),
    ("reshape", ([-1],), {}),
    ("reshape", (-1,), {}),
    ("astype", ("int32",), {}),
    ("astype", (np.complex64,), {}),
    ("flatten", (), {}),
    ("ravel", (), {}),
    ("squeeze", (), {}),
    ("transpose", (), {}),
    ("transpose", (1, 0), {}),
    ("transpose", ((1, 0),), {}),
    ("clip", (2, 5), {}),
    ("clip", (), {"min": 2}),
    ("round", (), {}),
    ("conj", (), {}),
    ("copy", (), {}),
]


@pytest.mark.parametrize(("name", "args", "keywords"), METHODS)
def test_methods(name: str, args: Any, keywords: Any, x: Any) -> None:
    """The usual methods do what NumPy's do."""
    theirs = getattr(np.asarray(x).copy(), name)(*args, **keywords)
    assert_same(getattr(x, name)(*args, **keywords), theirs)


def test_methods_and_memory(x: Any) -> None:
    """`ravel`, `transpose` and `reshape` share memory, `flatten`, `copy` and `astype` do not."""
    for view in (x.ravel(), x.transpose(), x.reshape(3, 2), x[None].squeeze()):
        assert np.shares_memory(np.asarray(view), np.asarray(x))
    for copied in (x.flatten(), x.copy(), x.astype(x.dtype)):
        assert not np.shares_memory(np.asarray(copied), np.asarray(x))
    assert x.astype(x.dtype, copy=False) is x
    assert np.shares_memory(x.numpy(), np.asarray(x))


def test_dot(x: Any) -> None:
    """`dot` is NumPy's, of any number of axes."""
    n = np.asarray(x)
    assert_same(x.dot(x.T), n.dot(n.T))
    assert_same(x.dot(x[0]), n.dot(n[0]))
    assert_same(x[0].dot(x[0]), n[0].dot(n[0]))
    assert_same(x.dot(2), n.dot(2))


def test_shape_like_attributes(x: Any) -> None:
    """What NumPy users ask of an array."""
    n = np.asarray(x)
    for name in ("ndim", "size", "shape", "itemsize", "nbytes", "strides"):
        assert getattr(x.T, name) == getattr(n.T, name)
    assert_same(x.T, n.T)
    assert_same(x.mT, n.mT)
    assert_same((x * 1j).imag, (n * 1j).imag)
    assert_same((x * 1j).real, (n * 1j).real)
