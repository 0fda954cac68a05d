"""`x[mask] = f(x[mask])` inside captured functions, which is computed of all elements: what it equals, and when not."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

import xtensor as xt
from xtensor.codegen.cpu.compile import host

Array = Any

ENGINES = ["interpret", *(["llvm"] if host() is not None else [])]


@pytest.fixture(autouse=True, params=ENGINES)
def engine(request: pytest.FixtureRequest) -> Iterator[None]:
    with xt.options(engine=request.param, cache_dir=""):
        yield


def arrays(call: int) -> list[Array]:
    """Return other elements for each call, with zeros of both signs, infinities and NaN, and integers."""
    rng = np.random.default_rng(call)
    x, y = rng.standard_normal((2, 40, 50))
    x[::7, ::3], x[1::7, ::3], x[2, :5], x[3, :5], y[3, 3:9] = 0.0, -0.0, np.inf, np.nan, np.nan
    return [x, y, rng.integers(-5, 6, (40, 50)), (x + 1j * y)[:, :20].copy()]


def same(function: Callable[..., Any], *, captured: bool = True) -> str:
    """Call a function again and again, and compare results and arguments with NumPy's; return why it is called."""
    fused = xt.fuse(function)
    for call in range(4):
        theirs, given = arrays(call), [xt.asarray(one, copy=True) for one in arrays(call)]
        with np.errstate(all="ignore"):
            right, found = function(np, *theirs), fused(xt, *given)
        for one, other in zip((*theirs, right), (*given, found), strict=True):
            if other is not None:
                np.testing.assert_array_equal(np.asarray(one), np.asarray(other))
                assert other.dtype == one.dtype
    why = fused.why(xt, *given)
    assert (why == "") is captured, why
    return why


def by_one_mask(xp: Any, x: Any, y: Any, k: Any, c: Any) -> None:
    mask = x > 0
    x[mask] = x[mask] * 2.0 + y[mask] / xp.abs(x[mask])
    y[mask] = x[mask]


def by_equal_masks(xp: Any, x: Any, y: Any, k: Any, c: Any) -> None:
    x[x > 0] = 1.0 / x[x > 0]
    y[xp.logical_and(x > 0, y < 0)] = x[xp.logical_and(x > 0, y < 0)] - 1


def by_updates(xp: Any, x: Any, y: Any, k: Any, c: Any) -> None:
    x[x < y] *= 0.5
    k[k > 2] -= 3
    k[k < 0] <<= 1
    view = y[::2, 1::3]
    view[view > 0] += 1


def of_other_dtypes(xp: Any, x: Any, y: Any, k: Any, c: Any) -> None:
    x[k > 0] = k[k > 0] + 1
    c[c.real > 0] = c[c.real > 0] + x[:, :20][c.real > 0]
    k[k > 0] = xp.sign(x[k > 0]) > 0


def with_numbers_of_arrays(xp: Any, x: Any, y: Any, k: Any, c: Any) -> None:
    low = xp.min(k)
    k[k > 0] = k[k > 0] * low + k[0, 0]


def of_what_is_made_inside(xp: Any, x: Any, y: Any, k: Any, c: Any) -> Any:
    made = x * x + y
    made[made > 1] = made[made > 1] - 1
    return made


def taken_before_it_is_written(xp: Any, x: Any, y: Any, k: Any, c: Any) -> None:
    mask = y > 0
    taken = x[mask]
    x[...] = 0.0
    taken *= 3.0
    y[mask] = taken


def by_numbers(xp: Any, x: Any, y: Any, k: Any, c: Any) -> None:
    x[x > 0] = 7
    y[xp.isnan(y)] = k[0, 0]
    k[x == 7] = -2.5
    c[xp.abs(c) < 1] = 2j
    mask = y > 0
    mask[mask] = False
    x[mask] = 1.0
    view = y[::-2, ::3]
    view[view < 0] = 0.0


def counted(xp: Any, x: Any, y: Any, k: Any, c: Any) -> Any:
    k[0, 0] = xp.count_nonzero(x[y > 0])
    k[0, 1] = k[k > 0].sum()
    k[0, 2] = (k[k < 0] * 2).prod()
    k[0, 3] = k[k > 99].sum() + k[k > 99].prod()
    k[0, 4] = xp.any(x[y > 0] > 2) + 2 * xp.all(y[y > 0] > 0, axis=0) + 4 * (x > 9)[x > 9].any()
    return xp.sum((k > 1)[k > 0], axis=(0,))


CAPTURED = [by_numbers, counted, by_one_mask, by_equal_masks, by_updates, of_other_dtypes, with_numbers_of_arrays]
CAPTURED += [of_what_is_made_inside, taken_before_it_is_written]


@pytest.mark.parametrize("function", CAPTURED)
def test_what_is_captured(function: Callable[..., Any]) -> None:
    """Values, signs of zeros and NaN are NumPy's in each call."""
    same(function)


EMPTY = {"sum": 0.0, "prod": 1.0, "mean": np.nan, "any": False, "all": True, "count_nonzero": 0}


@pytest.mark.parametrize("dtype", ["bool", "int8", "uint32", "float32", "float64", "complex64", "complex128"])
@pytest.mark.parametrize("name", EMPTY)
def test_reductions_of_selections(name: str, dtype: str) -> None:
    """They are those of a plain call, sums within the stated bound, of no elements as well; so are their dtypes."""

    def reduce(x: Any, mask: Any) -> Any:
        return getattr(xt, name)(x[mask])

    fused = xt.fuse(reduce)
    for call in range(4):
        rng = np.random.default_rng(call)
        x = (rng.integers(0, 4, (70, 30)) if np.dtype(dtype).kind in "biu" else rng.standard_normal((70, 30))).astype(
            dtype
        )
        if dtype.startswith("complex"):
            x += 1j * x[::-1]
        mask = rng.random(x.shape) < (0.3 if call != 2 else 0)
        if call == 3:
            mask[:, :] = x == x[0, 0]
        given = xt.asarray(x, copy=True), xt.asarray(mask, copy=True)
        with np.errstate(all="ignore"):
            plain = np.asarray(reduce(*given))
        found = fused(*given).numpy()
        assert found.dtype == plain.dtype and found.shape == ()
        if call == 2:
            assert np.array_equal(found, EMPTY[name], equal_nan=True) and np.array_equal(found, plain, equal_nan=True)
        elif plain.dtype.kind in "fc" and name != "prod":
            terms = np.abs(x[mask]) / (mask.sum() if name == "mean" else 1)
            assert abs(found - plain) <= 16 * np.finfo(plain.dtype).eps * terms.sum()
        else:
            np.testing.assert_allclose(found, plain, rtol=1e-3 if dtype in ("float32", "complex64") else 1e-11)
    captured = not (name == "prod" and dtype.startswith("complex"))
    assert (fused.why(*given) == "") is captured


def test_special_values_of_selections() -> None:
    """What is not selected has no say, whatever it is; what is has its own."""

    def reduce(xp: Any, x: Any, mask: Any) -> Any:
        return xp.sum(x[mask]), xp.mean(x[mask]), xp.any(x[mask]), xp.prod(x[mask], dtype=xp.float64)

    fused = xt.fuse(reduce)
    for values, mask in (
        ([np.nan, 1.0, np.inf], [False, True, False]),
        ([np.nan, 1.0, 2.0], [True, True, False]),
        ([-np.inf, np.inf, 2.0], [True, False, True]),
        ([-0.0, np.nan, -0.0], [True, False, True]),
    ):
        x, m = np.asarray(values * 50), np.asarray(mask * 50)
        given = xt.asarray(x, copy=True), xt.asarray(m, copy=True)
        for found, right in zip(fused(xt, *given), reduce(np, x, m), strict=True):
            assert repr(float(found)) == repr(float(right))


def mask_is_written(xp: Any, x: Any, y: Any, k: Any, c: Any) -> None:
    mask = x > 0
    taken = x[mask] + 1.0
    mask[...] = mask[:, ::-1]
    x[mask] = taken


def mask_of_what_is_written(xp: Any, x: Any, y: Any, k: Any, c: Any) -> None:
    taken = x[x > 0] + 1.0
    x[...] = x[:, ::-1]
    x[x > 0] = taken


def masks_of_both_zeros(xp: Any, x: Any, y: Any, k: Any, c: Any) -> None:
    y[...] = 1.0
    x[xp.copysign(y, 0.0) > 0] = x[xp.copysign(y, -0.0) < 0] * 2


def another_mask(xp: Any, x: Any, y: Any, k: Any, c: Any) -> None:
    x[:, ::-1][x > 0] = x[x > 0] * 2
    x[x[:, ::-1] > 0] = x[x > 0] * 2


def how_many(xp: Any, x: Any, y: Any, k: Any, c: Any) -> None:
    y[0, 0] = x[x > 0].shape[0]


def beside_a_vector(xp: Any, x: Any, y: Any, k: Any, c: Any) -> None:
    x[x > 9] = x[x > 9] * xp.ones(1)


def summed(xp: Any, x: Any, y: Any, k: Any, c: Any) -> Any:
    return xp.max(k[k > 0] * 2)


def returned(xp: Any, x: Any, y: Any, k: Any, c: Any) -> Any:
    return x[x > 0] * 2


def of_rows(xp: Any, x: Any, y: Any, k: Any, c: Any) -> None:
    mask = k[:, 0] > 0
    x[mask] = x[mask] * 2


PLAIN = [mask_is_written, mask_of_what_is_written, masks_of_both_zeros, how_many]
PLAIN += [beside_a_vector, summed, returned, of_rows]


@pytest.mark.parametrize("function", PLAIN)
def test_what_depends_on_how_many_there_are(function: Callable[..., Any]) -> None:
    """Such a call is a plain one, and as right as that."""
    assert "[values]" in same(function, captured=False)


def test_two_masks_that_select_as_many() -> None:
    """A mask over the same memory in another order is another mask."""
    assert "[values]" in same(another_mask, captured=False)


def test_errors_are_those_of_a_plain_call() -> None:
    """They depend on the elements that are selected alone, and on dtypes."""
    k = xt.asarray(np.arange(-3, 4))

    def powers(k: Any) -> None:
        k[k > 0] = 2 ** k[k > 0]

    fused = xt.fuse(powers)
    for _ in range(3):
        given = xt.asarray(k, copy=True)
        fused(given)
        np.testing.assert_array_equal(given.numpy(), [-3, -2, -1, 0, 2, 4, 8])

    def floats(k: Any) -> None:
        k[k > 0] *= 1.5

    with pytest.raises(TypeError, match="multiply: the result's dtype must fit into x1's int64, got float64"):
        xt.fuse(floats)(k)

    def complexes(x: Any) -> None:
        x[x > 0] = x[x > 0] * 1j

    with pytest.raises(TypeError, match="complex"):
        xt.fuse(complexes)(xt.ones(3))


def test_a_read_only_argument() -> None:
    x = xt.broadcast_to(xt.ones(1), (3,))

    def double(x: Any) -> None:
        x[x > 0] *= 2

    with pytest.raises(ValueError, match="writable"):
        xt.fuse(double)(x)


def test_a_selection_that_outlives_the_call() -> None:
    """It has the elements that there were."""
    kept: list[Any] = []

    def keep(x: Any) -> Any:
        kept.append(x[x > 0] * 2)
        return x + 1

    x = np.asarray([1.0, -1.0, 3.0])
    given = xt.asarray(x, copy=True)
    xt.fuse(keep)(given)
    given[...] = 7.0
    np.testing.assert_array_equal(kept[0].numpy(), [2.0, 6.0])


def test_a_gradient_goes_through() -> None:
    """Inside a captured gradient selections are what they were."""

    def loss(x: Any) -> Any:
        y = x * 1.0
        y[y > 0] = y[y > 0] ** 2
        return xt.sum(y)

    x = xt.asarray(np.asarray([1.0, -1.0, 3.0]))
    gradient = xt.fuse(xt.grad(loss))
    for _ in range(3):
        np.testing.assert_array_equal(gradient(x).numpy(), [2.0, 1.0, 6.0])


def scaled(x: Any) -> Any:
    z = x * 2.0
    z[z > 0] *= 3.0
    return xt.sum(z**2)


def rooted(x: Any) -> Any:
    z = x * 1.0
    z[z > 0] = xt.sqrt(z[z > 0])
    return xt.sum(z)


def sum_of_roots(x: Any) -> Any:
    return xt.sum(xt.sqrt(x[x > 0]))


def mean_of_reciprocals(x: Any) -> Any:
    return xt.mean(1.0 / x[x != 0])


def squared_slopes(x: Any) -> Any:
    return xt.sum(xt.grad(rooted)(x) ** 2)


def held_apart(x: Any) -> Any:
    with xt.no_grad():
        part = x[x > 0]
    z = x * 1.0
    z[x > 0] = z[x > 0] * part
    return xt.sum(z)


GRADIENTS = {
    scaled: lambda x: np.where(x > 0, 72.0 * x, 8.0 * x),
    rooted: lambda x: np.where(x > 0, 0.5 / np.sqrt(x), 1.0),
    sum_of_roots: lambda x: np.where(x > 0, 0.5 / np.sqrt(x), 0.0),
    mean_of_reciprocals: lambda x: np.where(x != 0, -1.0 / x**2, 0.0) / np.count_nonzero(x),
    squared_slopes: lambda x: np.where(x > 0, -0.25 / x**2, 0.0),
    held_apart: lambda x: np.where(x > 0, x, 1.0),
}


@pytest.mark.parametrize("function", GRADIENTS, ids=lambda function: function.__name__)
def test_selections_have_a_gradient(function: Callable[[Any], Any]) -> None:
    """Elements that are not selected have no part in it, though all are computed: the root of 0 has no derivative."""
    gradient = xt.fuse(xt.grad(function))
    for call in range(4):
        x = np.random.default_rng(call).standard_normal(300)
        x[::7] = 0.0
        with np.errstate(all="ignore"):
            wanted = GRADIENTS[function](x)
        np.testing.assert_allclose(gradient(xt.asarray(x)).numpy(), wanted, rtol=1e-13)
    assert gradient.why(xt.asarray(x)) == ""


def test_a_selection_that_is_asked_for_keeps_its_gradient() -> None:
    """Sorting asks for the elements: such calls are plain ones."""
    gradient = xt.fuse(xt.grad(lambda x: xt.sum(xt.sort(x[x > 0] * 2.0)[1:] ** 2)))
    for call in range(3):
        x = np.random.default_rng(call).standard_normal(300)
        smallest = np.min(x[x > 0])
        wanted = np.where(x > smallest, 8.0 * x, 0.0)
        np.testing.assert_allclose(gradient(xt.asarray(x)).numpy(), wanted, rtol=1e-13)
    assert gradient.why(xt.asarray(x)).startswith("[values]")


def test_rows_at_a_mask() -> None:
    """One row, one number, or a part of a row, for each place that a mask of the first axes selects."""

    def rows(xp: Any, x: Any, y: Any, k: Any, c: Any) -> None:
        cube = xp.reshape(x, (20, 2, 50))
        mask = cube[:, :, 0] > 0
        cube[mask] = y[0]
        cube[mask[:, 0]] = y[1:3]
        cube[mask, 3] = 5.0
        cube[mask, -2] = y[4, 5]
        cube[mask, 7:9] = y[0, :2][None]
        k[k[:, 0] > 0] = [3]
        y[y[:, 1] < 0] = 0

    same(rows)


@pytest.mark.parametrize("value", [np.ones(4), np.ones((7, 3)), np.ones((1, 1, 3)), np.ones((2, 3))])
def test_rows_of_other_lengths(value: Array) -> None:
    """They are refused, and taken, as by NumPy."""
    mask = np.arange(30).reshape(6, 5) % 15 == 0

    def function(x: Any) -> Any:
        x[xt.asarray(mask) if isinstance(x, xt.Tensor) else mask] = (
            value if isinstance(x, np.ndarray) else xt.asarray(value)
        )
        return x * 2

    fused, right = xt.fuse(function), None
    try:
        right = function(np.zeros((6, 5, 3)))
    except ValueError:
        right = None
    for _ in range(3):
        if right is None:
            with pytest.raises(ValueError, match="setitem"):
                fused(xt.zeros((6, 5, 3)))
        else:
            np.testing.assert_array_equal(np.asarray(fused(xt.zeros((6, 5, 3)))), right)
