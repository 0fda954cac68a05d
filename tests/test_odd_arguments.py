"""Arguments that are rare and legal, and mistakes that look legal."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import xtensor as xt

UNARY = [n for n, op in xt.calls.op.REGISTRY.items() if len(op.parameters) == 1 and n != "clip" and hasattr(xt, n)]


@pytest.mark.parametrize("name", UNARY)
@pytest.mark.parametrize("value", [True, -3, 0.5, 1 + 2j])
def test_functions_of_one_python_scalar(name: str, value: complex) -> None:
    """A bare Python scalar is a 0-d array of its default dtype, or refused as that is."""
    function = getattr(xt, name)
    try:
        expected = function(xt.asarray(value))
    except TypeError:
        with pytest.raises(TypeError, match=f"^{name}: x must be"):
            function(value)
        return
    result = function(value)
    assert (result.shape, result.dtype) == ((), expected.dtype)
    np.testing.assert_array_equal(result.numpy(), expected.numpy())


@pytest.mark.parametrize("lazy", ["auto", "always", "never"])
def test_reductions_check_what_they_are_told(lazy: str) -> None:
    """keepdims, correction and dtype are checked at the call, recorded or not."""
    x = xt.ones(100_000)
    with xt.options(lazy=lazy):
        with pytest.raises(TypeError, match="^sum: keepdims must be True or False, got 'x'"):
            xt.sum(x, keepdims="x")
        with pytest.raises(TypeError, match="^var: correction must be a real number, got 'one'"):
            xt.var(x, correction="one")
        with pytest.raises(TypeError, match="^mean: dtype must be floating, got int64"):
            xt.mean(x, dtype=xt.int64)
        with pytest.raises(TypeError, match="^sum: x must be real to fit into float64, got complex"):
            xt.sum(x * 1j, dtype=xt.float64)
        assert float(xt.std(x, correction=np.int64(1))) == 0.0


LOSSY: list[Callable[[], Any]] = [
    lambda: xt.asarray(np.asarray([1j]), dtype=xt.float64),
    lambda: xt.asarray([1j], dtype=xt.float64),
    lambda: xt.linspace(0, 1j, 3, dtype=xt.float32),
    lambda: xt.full(2, 1j, dtype=xt.float64),
    lambda: xt.astype(xt.asarray([1j]), xt.float32),
]


@pytest.mark.parametrize("make", LOSSY)
def test_imaginary_parts_are_never_dropped(make: Callable[[], Any]) -> None:
    """Complex into real is a TypeError everywhere."""
    with pytest.raises(TypeError):
        make()


def test_casts_do_not_warn() -> None:
    """NaN into an integer and overflow into float32 are quiet (warnings are errors here)."""
    assert xt.asarray(np.asarray([np.nan]), dtype=xt.int64).dtype == xt.int64
    assert float(xt.asarray([1e300], dtype=xt.float32)[0]) == np.inf


class Guarded:
    """An object whose array is always a copy."""

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> Any:
        if copy is False:
            raise ValueError("cannot avoid a copy")
        return np.ones(3)


def test_copy_reaches_the_producer() -> None:
    """copy=False is passed on to objects with `__array__`."""
    assert xt.asarray(Guarded()).shape == (3,)
    with pytest.raises(ValueError, match="cannot avoid a copy"):
        xt.asarray(Guarded(), copy=False)


def test_floor_divide_by_a_huge_integer() -> None:
    """A Python integer beyond 64 bits divides floats, as it adds to them."""
    np.testing.assert_array_equal(xt.floor_divide(xt.asarray([1.0, 2.0]), 2**70).numpy(), [0.0, 0.0])


class Position:
    """An integer by its own account."""

    def __index__(self) -> int:
        return 2


def test_objects_with_index() -> None:
    """An object with `__index__` stands for its integer."""
    x = xt.arange(5)
    assert int(x[Position()]) == 2
    assert x[Position(), None].shape == (1,)


@pytest.mark.parametrize("function", [xt.expand_dims, xt.squeeze])
def test_none_is_no_axis(function: Callable[..., Any]) -> None:
    """Where the standard asks for axes, None does not mean all of them."""
    with pytest.raises(TypeError, match="axis must be an integer, got None"):
        function(xt.ones((1, 1)), None)


def test_rounding_to_decimals() -> None:
    """The method and Python's round() take decimals, as NumPy's do."""
    x = xt.asarray([1.25, -2.346])
    np.testing.assert_array_equal(x.round(2).numpy(), x.numpy().round(2))
    np.testing.assert_array_equal(round(x, 1).numpy(), x.numpy().round(1))


def test_internal_reading_does_not_export() -> None:
    """Stacking tensors, spacing between them and sample frequencies leave memory that can be read later."""
    a = xt.ones(80_000)
    xt.asarray([a, a])
    xt.linspace(a[0], 1.0, 3)
    assert not a.blob.owner.shared
    assert not xt.fft.fftfreq(8).blob.owner.shared
    with xt.options(lazy="auto"):
        assert (a + 1).is_pending


MISMATCHED: list[tuple[Any, type[Exception], str]] = [
    (1, ValueError, r"^tensordot: x1 \(2, 3\) and x2 \(2, 3\) do not match: \[3\] != \[2\]"),
    (3, ValueError, r"^tensordot: axes must be in \[0, 2\], got 3"),
    ("x", ValueError, "^tensordot: axes must be an integer or two sequences, got x"),
    (1.5, TypeError, "^tensordot: axes must be an integer, got 1.5"),
    (((5,), (0,)), IndexError, r"^tensordot: axes must be in \[-2, 2\), got 5"),
]


@pytest.mark.parametrize(("axes", "kind", "text"), MISMATCHED)
def test_tensordot_names_what_does_not_fit(axes: Any, kind: type[Exception], text: str) -> None:
    """Contracted axes are checked before the library is called."""
    with pytest.raises(kind, match=text):
        xt.tensordot(xt.ones((2, 3)), xt.ones((2, 3)), axes=axes)


@pytest.mark.parametrize("axes", [0, 2, ((0, 1), (0, 1)), ((-1,), (-1,)), (1, 1), ((), ())])
def test_tensordot_equals_numpy(axes: Any) -> None:
    """What fits gives NumPy's product."""
    x = np.arange(6.0).reshape(2, 3)
    np.testing.assert_array_equal(
        xt.tensordot(xt.asarray(x), xt.asarray(x), axes=axes).numpy(), np.tensordot(x, x, axes=axes)
    )


@pytest.mark.parametrize("fused", [False, True])
def test_ranges_are_indices(fused: bool) -> None:
    """A range selects what a list of its numbers does, read and written, as in NumPy."""

    def places(a: Any) -> Any:
        a[range(3), range(3)] = 5.0
        return a[range(2)] * 2, a[:, range(1, 3)], a[range(2, -1, -1), 1]

    plain, own = np.ones((3, 4)), xt.ones((3, 4))
    function = xt.fuse(places) if fused else places
    for _ in range(3):
        for found, expected in zip(function(own), places(plain), strict=True):
            np.testing.assert_array_equal(found.numpy(), expected)
        np.testing.assert_array_equal(own.numpy(), plain)
    with pytest.raises(IndexError, match="out of bounds"):
        own[range(3, 5)]


@pytest.mark.parametrize(
    "write",
    [
        lambda k: k.__setitem__(slice(3, 18), k[3:18][::-1]),
        lambda k: k.__setitem__(slice(None), k[::-1]),
        lambda k: k.__setitem__(slice(1, None, 2), k[:15]),
        lambda k: k.__setitem__([4, 2, 9], k[2:5]),
        lambda k: k.__setitem__(k > 20, k[: int((k > 20).sum())][::-1]),
    ],
)
@pytest.mark.parametrize("dtype", ["float64", "int32"])
def test_values_that_lie_where_they_are_written(write: Callable[[Any], None], dtype: str) -> None:
    """They are read before anything is written."""
    apart, own = np.arange(30).astype(dtype), xt.asarray(np.arange(30).astype(dtype), copy=True)
    for _ in range(3):
        write(own)
        before = apart.copy()
        write_from(write, apart, before)
        np.testing.assert_array_equal(own.numpy(), apart)


def write_from(write: Callable[[Any], None], target: Any, source: Any) -> None:
    """Write as a function does, what it reads being read from another array."""

    class Both:
        def __getitem__(self, key: Any) -> Any:
            return source[key]

        def __gt__(self, other: Any) -> Any:
            return source > other

        def __setitem__(self, key: Any, value: Any) -> None:
            target[key] = value

    write(Both())
