"""Elements at indices inside captured functions: machine code gathers and scatters them as NumPy does."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy
import numpy as np
import pytest
from test_dispatch import at_once, known  # noqa: F401 - at_once is a fixture

import xtensor as xt
import xtensor.numpy as xnp
from xtensor import nn
from xtensor.codegen.cpu.compile import host
from xtensor.devices.cpu_keys import add_at
from xtensor.plan.costs import NATIVE_INDEXED
from xtensor.run.added_rows import added_rows

pytestmark = pytest.mark.skipif(host() is None, reason="needs llvmlite")

RNG = np.random.default_rng(7)
SHAPE = 4, 5, 6
DTYPES = ["float64", "float32", "complex128", "int64", "int16", "uint8", "bool"]


@pytest.fixture
def compiled() -> Iterator[None]:
    with xt.options(engine="llvm"):
        yield


def indices(length: int, *shape: int) -> Any:
    return RNG.integers(-length, length, shape)


FIRST, MIDDLE, LAST = indices(4, 3), indices(5, 3), indices(6, 2, 1)
ROWS, ONE = indices(4, 2, 3), np.asarray(2)

# Keys by their arrays of indices; what else is in them is fixed.
KEYS: dict[str, tuple[Callable[..., Any], tuple[Any, ...]]] = {
    "rows": (lambda i: i, (FIRST,)),
    "rows of more axes": (lambda i: (i,), (ROWS,)),
    "columns": (lambda j: (slice(None), j), (MIDDLE,)),
    "last axis": (lambda k: (..., k), (LAST,)),
    "pairs": (lambda i, j: (i, j), (FIRST, MIDDLE)),
    "pairs that broadcast": (lambda i, k: (i, slice(None), k), (FIRST, LAST)),
    "all axes": (lambda i, j, k: (i, j, k), (FIRST, MIDDLE, LAST)),
    "with a number": (lambda i: (i, 2), (FIRST,)),
    "with a number apart": (lambda i: (i, slice(None), -1), (FIRST,)),
    "with a slice": (lambda j: (slice(1, None, 2), j, slice(None, None, -1)), (MIDDLE,)),
    "with new axes": (lambda i: (None, i, None), (FIRST,)),
    "apart by a new axis": (lambda i, j: (i, None, j), (FIRST, MIDDLE)),
    "apart by nothing": (lambda i, j, k: (i, j, ..., k), (FIRST, MIDDLE, LAST)),
    "one index": (lambda i: (i, slice(None)), (ONE,)),
    "one element": (lambda i, j, k: (i, j, k), (ONE, ONE, ONE)),
}


def layouts(dtype: str) -> dict[str, Any]:
    x = (9 * RNG.standard_normal(SHAPE)).astype(dtype)
    return {"C": x, "F": np.asfortranarray(x), "backwards": x[::-1, :, ::-1], "a row": np.broadcast_to(x[0, 0], SHAPE)}


@pytest.mark.usefixtures("compiled")
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("name", KEYS)
def test_gathered_as_numpy_does(name: str, dtype: str) -> None:
    key, arrays = KEYS[name]
    fused = xt.fuse(lambda x, *given: xt.where(x[key(*given)] != 0, x[key(*given)], x[key(*given)]), strict=True)
    for x in layouts(dtype).values():
        for _ in range(3):
            given = [RNG.permutation(one.ravel()).reshape(one.shape) for one in arrays]
            found = fused(xt.asarray(x), *map(xt.asarray, given))
            np.testing.assert_array_equal(np.asarray(found), x[key(*given)])
    assert ("library:" in fused.explained()) == (name == "apart by nothing")


@pytest.mark.usefixtures("compiled")
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("name", KEYS)
def test_scattered_as_numpy_does(name: str, dtype: str) -> None:
    """The last one of what is written to one place stays; values broadcast."""
    key, arrays = KEYS[name]
    whole = np.zeros(SHAPE)[key(*arrays)].shape

    def function(x: Any, value: Any, *given: Any) -> Any:
        y = xt.astype(x, x.dtype, copy=True)
        y[key(*given)] = value
        return y

    fused = xt.fuse(function, strict=True)
    for shape in (whole, whole[1:], tuple([1] * len(whole))):
        value = (9 * RNG.standard_normal(shape)).astype(dtype)
        for x in layouts(dtype).values():
            for _ in range(3):
                found, right = fused(xt.asarray(x), xt.asarray(value), *map(xt.asarray, arrays)), x.copy()
                right[key(*arrays)] = value
                np.testing.assert_array_equal(np.asarray(found), right)
    assert ("library:" in fused.explained()) == (name == "apart by nothing")


@pytest.mark.usefixtures("at_once")
@pytest.mark.parametrize("dtype", ["int64", "int32", "int8", "uint8", "uint16"])
def test_machine_code_answers_and_indices_outside_are_errors(dtype: str) -> None:
    """A call with one is made by the function, which says what is wrong; the next ones are answered again."""
    x, y = RNG.random((20, 3)), RNG.integers(0, 3, 20).astype(dtype)
    rows = np.arange(20)

    def back(x: Any, y: Any) -> Any:
        d = xt.astype(x, x.dtype, copy=True)
        d[xt.arange(20), y] -= 1.0
        return d[y] / 20.0

    right = x.copy()
    right[rows, y] -= 1.0
    fused = xt.fuse(back)
    for call in range(12):
        given = xt.asarray(x)
        if call % 4 == 3:
            outside = y.copy()
            outside[call] = 3
            with pytest.raises(IndexError, match=r"index 3 is out of bounds for axis 1 with size 3"):
                fused(given, xt.asarray(outside))
        found = np.asarray(fused(given, xt.asarray(y)))
        np.testing.assert_array_equal(found, right[y] / 20.0)
        np.testing.assert_array_equal(np.asarray(given), x)
    answered = sum(one.dispatched for one in fused._known.values())
    assert answered > 5


@pytest.mark.usefixtures("at_once")
def test_a_function_that_writes_to_its_arguments() -> None:
    """Statements before the one that fails are done, as in a plain call."""
    results = []
    for wrap in (xt.fuse, lambda f: f):

        def update(x: Any, total: Any, rows: Any) -> None:
            total += 1.0
            x[rows] += 2.0
            total += 1.0

        call = wrap(update)
        x, total = xt.zeros((6, 2)), xt.zeros(())
        for step in range(8):
            rows = xt.asarray([0, 2, step if step == 6 else 1])
            try:
                call(x, total, rows)
            except IndexError:
                assert step == 6
        results.append((np.asarray(x).copy(), float(total)))
    np.testing.assert_array_equal(results[0][0], results[1][0])
    assert results[0][1] == results[1][1] == 15.0


def batches(np: Any) -> tuple[Callable[..., Any], Any]:
    """Return a step of gradient descent over some rows, and its weights."""
    rng = numpy.random.default_rng(1)
    x, y, w = np.asarray(rng.random((50, 4))), np.asarray(rng.random(50)), np.zeros(4)

    def step(rows: Any) -> Any:
        batch = x[rows]
        off = batch @ w - y[rows]
        w[...] = w - 0.1 * (batch.T @ off) / len(rows)
        return (off * off).mean()

    return step, w


def embeddings(np: Any) -> tuple[Callable[..., Any], Any]:
    """Return a step that changes some rows of a table and reads them again, and the table."""
    table = np.asarray(numpy.random.default_rng(2).random((50, 3)))

    def step(rows: Any) -> Any:
        table[rows] -= 0.1 * table[rows[::-1]]
        return table[rows].sum()

    return step, table


def counts(np: Any) -> tuple[Callable[..., Any], Any]:
    """Return a step that has written before it comes to indices, and what it writes."""
    seen = np.zeros(51)

    def step(rows: Any) -> Any:
        seen[50:] += 1.0
        seen[rows] = seen[rows] + 1.0
        return seen.sum()

    return step, seen


@pytest.mark.usefixtures("at_once")
@pytest.mark.parametrize("make", [batches, embeddings, counts])
def test_steps_that_write_to_what_they_are_given(make: Any) -> None:
    """Indices outside are found before anything is written, or by the library; the state is that of plain calls."""
    (plain, right), (function, state) = make(numpy), make(xnp)
    fused = xt.fuse(function)
    for call in range(30):
        rows = numpy.random.default_rng(call).integers(0, 40, 6)
        rows[call % 6] = 50 + (call % 7 == 6) * 9 - (call % 7 != 6) * 5
        errors = []
        for step, given in ((plain, rows), (fused, xt.asarray(rows))):
            try:
                step(given)
            except IndexError as error:
                errors.append(str(error))
        assert len(errors) == 2 * (call % 7 == 6)
        np.testing.assert_allclose(np.asarray(state), right, rtol=1e-12)
    assert sum(one.dispatched for one in fused._known.values()) > 15


@pytest.mark.usefixtures("at_once")
def test_what_lies_in_one_memory() -> None:
    """A value that is a view of what is written is read as it was before."""

    def shifted(x: Any, i: Any) -> Any:
        y = xt.astype(x, x.dtype, copy=True)
        y[i] = y[:3]
        y[i] += y[i]
        return y

    fused = xt.fuse(shifted)
    for seed in range(8):
        rng = np.random.default_rng(seed)
        x, i = rng.random((8, 2)), rng.permutation(8)[:3]
        right = x.copy()
        right[i] = right[:3].copy()
        right[i] += right[i]
        np.testing.assert_array_equal(np.asarray(fused(xt.asarray(x), xt.asarray(i))), right)


@pytest.mark.usefixtures("compiled")
def test_indices_that_are_overwritten() -> None:
    """An array that is written at places which it holds itself: these are those before."""

    def written(x: Any, v: Any) -> Any:
        y = x + 0
        y[y] = v
        return y

    fused = xt.fuse(written, strict=True)
    for seed in range(4):
        x, v = np.random.default_rng(seed).permutation(500), np.full(500, 10**14 + seed)
        right = x.copy()
        right[x] = v
        np.testing.assert_array_equal(np.asarray(fused(xt.asarray(x), xt.asarray(v))), right)


@pytest.mark.usefixtures("at_once")
def test_arguments_in_one_memory() -> None:
    """Indices, and values, that lie in the array that is written, or not, as they come as arguments of their own."""

    def written(x: Any, rows: Any, value: Any) -> Any:
        x[rows] = value
        x[rows] += 1
        return xt.sum(x)

    fused = xt.fuse(written)
    for call in range(24):
        memory = numpy.random.default_rng(call).permutation(12)
        others = numpy.random.default_rng(call + 50).permutation(12)
        results = []
        for step, wrap in ((written, lambda x: x), (fused, xt.asarray)):
            own, apart = memory.copy(), others.copy()
            rows = (own[6:], apart[6:])[call % 2]
            value = (own[3:9], apart[:6])[call // 2 % 2]
            try:
                total = int(step(wrap(own), wrap(rows), wrap(value)))
            except IndexError:
                total = -1
            results.append((total, own.tolist()))
        assert results[0] == results[1], call


@pytest.mark.usefixtures("compiled")
def test_many_single_elements_are_left_to_the_library() -> None:
    """Which takes less time for them; rows of many elements are machine code, however many there are."""
    x = np.random.default_rng(0).random((1000, 32))
    for count, shape, is_native in ((10_000, 1, True), (40_000, 1, False), (40_000, 32, True)):
        rows = np.random.default_rng(count).integers(0, 1000, count)
        given = x[:, 0].copy() if shape == 1 else x
        fused = xt.fuse(lambda x, i: x[i] * 2.0, strict=True)
        for _ in range(3):
            found = fused(xt.asarray(given), xt.asarray(rows))
        np.testing.assert_array_equal(np.asarray(found), given[rows] * 2.0)
        assert ("library:" not in fused.explained()) == (is_native and found.nbytes <= NATIVE_INDEXED)


@pytest.mark.usefixtures("at_once")
def test_masks_without_axes() -> None:
    """They take none of an array's axes, and are left to the library."""

    def masked(x: Any) -> Any:
        y = xt.astype(x, x.dtype, copy=True)
        y[xt.asarray(True)] = x * 2.0
        y[None, xt.asarray(False)] = 1.0
        return y

    fused = xt.fuse(masked)
    for _ in range(4):
        assert float(fused(xt.asarray(3.0))) == 6.0


@pytest.mark.usefixtures("at_once")
def test_steps_of_classifiers() -> None:
    """Losses and gradients by labels, and batches of rows: all of it is answered by machine code."""
    p, y, i = RNG.random((30, 4)) + 0.1, RNG.integers(0, 4, 30), RNG.integers(0, 30, 8)

    def loss(p: Any, y: Any, i: Any) -> Any:
        batch, labels = p[i], y[i]
        return -xnp.log(batch[xnp.arange(8), labels]).mean() + xnp.take(p, labels, axis=1).sum()

    fused = known(loss, *map(xt.asarray, (p, y, i)))
    picked = p[i]
    right = -np.log(picked[np.arange(8), y[i]]).mean() + p.take(y[i], axis=1).sum()
    np.testing.assert_allclose(float(fused(*map(xt.asarray, (p, y, i)))), right, rtol=1e-14)


@pytest.mark.parametrize("dtype", ["float32", "float64", "complex128", "int64"])
@pytest.mark.parametrize(
    ("shape", "count", "length"),
    [((128,), 300, 50), ((33,), 400, 7), ((3, 17), 200, 900), ((5,), 400, 10), ((40,), 1, 5), ((40,), 0, 5)],
)
def test_added_rows(shape: tuple[int, ...], count: int, length: int, dtype: str, compiled: None) -> None:
    """Rows are added in their order, the same bits as NumPy's, whatever the number of threads and the strides."""
    rows = (10 * RNG.standard_normal((count, *shape))).astype(dtype)
    places = RNG.integers(0, length, count)
    expected = np.zeros((length, *shape), dtype)
    np.add.at(expected, places, rows)
    for threads in (1, 2, 3):
        with xt.options(threads=threads):
            np.testing.assert_array_equal(added_rows(rows, places, length), expected)
            np.testing.assert_array_equal(added_rows(np.asfortranarray(rows), places.astype("i4"), length), expected)


@pytest.mark.parametrize("wide", [2, 3, 4, 8, 16, 32, 33, 48])
def test_rows_of_whole_registers(wide: int, compiled: None) -> None:
    """Rows that lie side by side are moved a register at a time, where they fill it; others by elements."""
    x, i = RNG.standard_normal((50, 3, wide)).astype("float32"), indices(50, 20)

    def both(x: Any, y: Any, i: Any) -> Any:
        y[i] = y[i] + 1.0
        return x[i], x[i, 1], x[:, :, ::2][i], y

    fused = xt.fuse(both)
    expected = x.copy()
    for _ in range(4):
        found = fused(xt.asarray(x), xt.asarray(x, copy=True), xt.asarray(i))
        expected[...] = x
        expected[i] = expected[i] + np.float32(1.0)
        for one, other in zip(found, (x[i], x[i, 1], x[:, :, ::2][i], expected), strict=True):
            np.testing.assert_array_equal(one.numpy(), other)


@pytest.mark.parametrize("dtype", ["int8", "uint8", "int16", "int32"])
@pytest.mark.parametrize(("length", "wide"), [(1000, 64), (300, 8), (40_000, 3)])
def test_gradients_at_narrow_indices(length: int, wide: int, dtype: str) -> None:
    """Lengths, and places of elements, that do not fit into the indices' dtype."""
    where = RNG.integers(0, min(length, np.iinfo(dtype).max), 60).astype(dtype)
    x, g, expected = RNG.normal(size=(length, wide)), RNG.normal(size=(60, wide)), np.zeros((length, wide))
    np.add.at(expected, where, g)
    for call in (lambda x: xt.take(x, xt.asarray(where), axis=0), lambda x: x[xt.asarray(where)]):
        np.testing.assert_array_equal(xt.vjp(call, xt.asarray(x))[1](xt.asarray(g))[0].numpy(), expected)


@pytest.mark.parametrize("seed", range(12))
def test_sums_at_the_elements_of_a_key(seed: int) -> None:
    """Values are added as by NumPy, the same bits: places of any integers, from either end, that broadcast."""
    rng = np.random.default_rng(seed)
    shape = tuple(int(n) for n in rng.integers(1, 6, 2 + seed % 2))
    kind = ("int64", "int8", "uint16", "int32")[seed % 4]
    lengths = [(7, 1), (1, 9), (7, 9)]
    key = tuple(
        rng.integers(0 if kind[0] == "u" else -n, n, lengths[(seed + at) % 3]).astype(kind)
        for at, n in enumerate(shape)
    )
    count = np.broadcast_shapes(*[one.shape for one in key])
    values = rng.normal(size=count).astype(("float32", "complex128", "float16")[seed % 3])
    found, expected = np.zeros((2, *shape), values.dtype)
    add_at(found, key, values)
    np.add.at(expected, key, values)
    np.testing.assert_array_equal(found, expected)
    with pytest.raises(IndexError):
        add_at(found, (key[0], np.full(count, shape[1]), *key[2:]), values)
    np.testing.assert_array_equal(found, expected)


@pytest.mark.usefixtures("compiled")
@pytest.mark.parametrize("axis", [0, 1, 2, -1])
@pytest.mark.parametrize("dtype", DTYPES)
def test_elements_along_an_axis(dtype: str, axis: int) -> None:
    """Machine code takes them where its two loops reach all indices; however it is done, as NumPy does it."""
    shape = list(SHAPE)
    shape[axis] = 3
    places = RNG.integers(-SHAPE[axis], SHAPE[axis], shape)
    wide = RNG.integers(0, SHAPE[axis], [*shape[:-1], 2 * shape[-1]]).astype("uint8")
    for own in (places, np.asfortranarray(places), places.astype("int16"), wide[..., ::2]):
        for x in (*layouts(dtype).values(), layouts(dtype)["C"][:, :1]):
            if x.shape[axis] != SHAPE[axis]:
                continue
            fused = xt.fuse(lambda x, i: xt.take_along_axis(x, i, axis=axis), strict=True)
            expected = np.take_along_axis(x, own, axis=axis)
            for _ in range(3):
                found = fused(xt.asarray(x), xt.asarray(own))
            np.testing.assert_array_equal(np.asarray(found), expected)
            assert found.dtype == expected.dtype


@pytest.mark.usefixtures("compiled")
def test_an_index_along_an_axis_that_does_not_exist() -> None:
    fused = xt.fuse(lambda x, i: xt.take_along_axis(x * 2, i, axis=1) + 1, strict=True)
    x = np.arange(12.0).reshape(3, 4)
    for place in (0, -4, 3, 4, 2, -5, 1):
        i = np.full((3, 1), place)
        if -4 <= place < 4:
            np.testing.assert_array_equal(np.asarray(fused(xt.asarray(x), xt.asarray(i))), 2 * x[:, [place]] + 1)
        else:
            with pytest.raises(IndexError):
                fused(xt.asarray(x), xt.asarray(i))
    assert "library" not in fused.explained()


@pytest.mark.usefixtures("compiled")
@pytest.mark.parametrize("dtype", ["int64", "int32", "int16", "int8", "uint8", "uint16", "uint64"])
@pytest.mark.parametrize("shape", [(5, 7), (3, 7, 4), (2, 7, 3, 2)])
def test_classes_are_checked_in_machine_code(shape: tuple[int, ...], dtype: str) -> None:
    """A step of a classifier is one call; a class that does not exist raises, the ignored one does not."""
    x, own = RNG.standard_normal(shape), (shape[0], *shape[2:])
    step = xt.fuse(xt.value_and_grad(lambda x, t: nn.cross_entropy(x, t)), strict=True)
    plain = xt.value_and_grad(lambda x, t: nn.cross_entropy(x, t))
    good = RNG.integers(0, 7, (*own[:-1], 2 * own[-1])).astype(dtype)
    for target in (
        good[..., ::2],
        good[..., : own[-1]],
        np.ascontiguousarray(good[..., ::2]),
        good[..., ::2].T.copy().T,
    ):
        for _ in range(3):
            found = step(xt.asarray(x), xt.asarray(target))
        for one, other in zip(found, plain(xt.asarray(x), xt.asarray(target)), strict=True):
            np.testing.assert_allclose(np.asarray(one), np.asarray(other), rtol=1e-12, atol=1e-15)
    if dtype[0] == "i" and len(own) < 3:  # two loops reach all targets
        assert "library" not in step.explained()
    for wrong in (7, 100, -1, -100):
        if wrong < 0 and dtype[0] == "u":
            continue
        target = good[..., ::2].copy()
        target.flat[-1] = wrong
        if wrong == -100:
            right = plain(xt.asarray(x), xt.asarray(target))
            np.testing.assert_allclose(float(step(xt.asarray(x), xt.asarray(target))[0]), float(right[0]), rtol=1e-12)
            continue
        with pytest.raises(IndexError, match=f"target must hold integers from 0 to 6, got {wrong}"):
            step(xt.asarray(x), xt.asarray(target))


@pytest.mark.usefixtures("compiled")
def test_a_class_that_does_not_exist_after_a_write() -> None:
    """What the function has written by then stays written, as in a plain call."""

    def step(w: Any, x: Any, t: Any) -> Any:
        w += 1.0
        return nn.cross_entropy(x * w, t)

    fused, x = xt.fuse(step), xt.asarray(RNG.standard_normal((4, 3)))
    w = xt.zeros(3)
    for n in range(4):
        found = fused(w, x, xt.asarray([0, 1, 2, 0]))
        np.testing.assert_allclose(float(found), float(nn.cross_entropy(x * (n + 1.0), xt.asarray([0, 1, 2, 0]))))
    with pytest.raises(IndexError, match="got 3"):
        fused(w, x, xt.asarray([0, 1, 3, 0]))
    np.testing.assert_array_equal(np.asarray(w), 5.0)


@pytest.mark.usefixtures("compiled")
def test_rows_of_an_embedding_are_checked() -> None:
    weight = RNG.standard_normal((6, 3))
    fused = xt.fuse(lambda i, w: nn.embedding(i, w) * 2, strict=True)
    for _ in range(3):
        np.testing.assert_array_equal(
            np.asarray(fused(xt.asarray([[0, 5], [2, 2]]), xt.asarray(weight))), 2 * weight[[[0, 5], [2, 2]]]
        )
    for wrong in (-1, 6):
        with pytest.raises(IndexError, match=f"got {wrong}"):
            fused(xt.asarray([[0, 5], [2, wrong]]), xt.asarray(weight))


@pytest.mark.usefixtures("compiled")
@pytest.mark.parametrize("ignored", [2**63, -(2**63) - 1, 2**62, -(2**63)])
def test_an_ignored_class_of_any_size(ignored: int) -> None:
    x, t = xt.asarray(RNG.standard_normal((4, 3))), xt.asarray([0, 2, 1, 0])
    fused = xt.fuse(lambda x, t: nn.cross_entropy(x, t, ignore_index=ignored), strict=True)
    for _ in range(3):
        np.testing.assert_allclose(float(fused(x, t)), float(nn.cross_entropy(x, t)), rtol=1e-12)
    assert "is prepared with the next call" not in fused.explained()
