"""The kernels of library.cuh, compiled by NVRTC and emulated, against NumPy and the CPU.

No GPU takes part: PTX is interpreted (tests/ptx) over host memory, with every access checked, and races in shared
memory found. That each of them was launched is seen from the texts.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from typing import Any

import emulated
import numpy as np
import pytest

import xtensor as xt
from benchmarks import gpu_layers
from xtensor.codegen.cuda import library
from xtensor.devices import cuda_kernels as kernels

if emulated.MISSING:
    pytest.skip(emulated.MISSING, allow_module_level=True)

Array = np.ndarray[Any, Any]


@pytest.fixture(scope="module")
def cuda() -> Iterator[emulated.Launches]:
    with emulated.device() as launches:
        yield launches


def there(array: Any) -> xt.Tensor:
    return xt.asarray(array, device="cuda:0")


def host(x: Any) -> Array:
    return np.asarray(x.to_device("cpu"))


def numbers(*shape: int, dtype: Any = np.float32, seed: int = 0) -> Array:
    """Return numbers of a dtype, among floats zeros of both signs, infinities and NaN, and several times the same."""
    rng = np.random.default_rng(seed)
    found = rng.integers(-40, 40, shape)
    if np.dtype(dtype).kind == "u":
        found = abs(found)
    with np.errstate(all="ignore"):
        found = found.astype(dtype)
    if np.dtype(dtype).kind == "f":
        special = [np.nan, -np.nan, np.inf, -np.inf, 0.0, -0.0]
        at = rng.random(shape) < 0.2
        found[at] = rng.choice(special, at.sum())
    return found


def identical(found: Array, wanted: Any) -> None:
    """Compare values, zeros with their signs."""
    wanted = np.asarray(wanted)
    assert (found.dtype, found.shape) == (wanted.dtype, wanted.shape)
    np.testing.assert_array_equal(found, wanted)
    if found.dtype.kind == "f":
        known = ~np.isnan(found)
        np.testing.assert_array_equal(np.signbit(found[known]), np.signbit(wanted[known]))


def launched(launches: emulated.Launches, before: int) -> set[str]:
    """Return the names of the sections that were launched since there were `before` texts."""
    texts, sections = launches.texts[before:], library._sections()
    return {name for name in library.names() if any(sections[name] in text for text in texts)}


# ---- elements at indices

ROWS, COLUMNS = np.array([3, -1, 0, 3, 12, -13, 5]), np.array([6, 0, -7, 2, 2, 1, 0])
READS: dict[str, Callable[[Any, Any, Any], Any]] = {
    "rows": lambda x, i, j: x[i],
    "columns": lambda x, i, j: x[:, j],
    "last": lambda x, i, j: x[..., j],
    "pairs": lambda x, i, j: x[i, j],
    "pairs apart": lambda x, i, j: x[i, :, j],
    "outer": lambda x, i, j: x[i[:, None], j],
    "of a view": lambda x, i, j: x[::-1, 1:, ::2][i, j % 6],
    "with a slice": lambda x, i, j: x[1:, j, ::2],
}


def test_indices_of_much_are_looked_at_ahead(cuda: emulated.Launches, monkeypatch: Any) -> None:
    """By a kernel before the one that moves elements, whose mark is all that is waited for."""
    monkeypatch.setattr(kernels, "AHEAD", 0)
    x, before = numbers(13, 7, 8), len(cuda.texts)
    for read in READS.values():
        identical(host(read(there(x), there(ROWS), there(COLUMNS))), read(x, ROWS, COLUMNS))
    assert launched(cuda, before) == {"check", "gather"}
    for bad in (13, -14, 1 << 40):
        with pytest.raises(IndexError, match=rf"index {bad} is out of bounds for axis 0 with size 13"):
            there(x)[there(np.array([0, bad, 1]))]


@pytest.mark.parametrize("dtype", [np.int8, np.float16, np.float32, np.float64, np.complex128, bool])
@pytest.mark.parametrize("read", READS.values(), ids=READS)
def test_elements_at_indices(cuda: emulated.Launches, read: Any, dtype: Any) -> None:
    x = numbers(13, 7, 8, dtype=dtype)
    before = len(cuda.texts)
    found = read(there(x), there(ROWS), there(COLUMNS))
    identical(host(found), read(x, ROWS, COLUMNS))
    assert "gather" in launched(cuda, before)


@pytest.mark.parametrize("axis", [0, 1, 2])
def test_take(cuda: emulated.Launches, axis: int) -> None:
    x, before = numbers(7, 8, 16), len(cuda.texts)
    i, each = np.array([[3, -1], [0, -7]]), np.random.default_rng(1).integers(-7, 7, (7, 8, 16))
    identical(host(xt.take(there(x), there(i[0]), axis=axis)), np.take(x, i[0], axis=axis))
    shape = [slice(None)] * 3
    shape[axis] = slice(0, 5)
    each = each[tuple(shape)]
    identical(host(xt.take_along_axis(there(x), there(each), axis=axis)), np.take_along_axis(x, each, axis=axis))
    assert launched(cuda, before) == {"gather"}


def test_rows_move_by_sixteen_bytes(cuda: emulated.Launches) -> None:
    """Where rows and addresses are multiples of that; else by the largest unit that fits."""
    i = there(np.array([2, 0, 1]))
    for width, kind in ((8, "uint4"), (6, "u64"), (5, "u32")):
        x = numbers(3, width)
        identical(host(there(x)[i]), x[[2, 0, 1]])
        assert f"typedef {kind} T;" in cuda.texts[-1]
    x = numbers(3, 12)
    identical(host(there(x)[:, 1:9][i]), x[:, 1:9][[2, 0, 1]])  # begins between vectors
    assert "typedef u32 T;" in cuda.texts[-1]


@pytest.mark.parametrize("bad", [13, -14, 1 << 40])
def test_what_is_outside_raises(cuda: emulated.Launches, bad: int) -> None:
    """With the index and its axis, and nothing written."""
    x, i = numbers(13, 7), np.array([0, bad, 1])
    ours = there(x)
    says = rf"index {bad} is out of bounds for axis 0 with size 13"
    with pytest.raises(IndexError, match=says):
        xt.take(ours, there(i), axis=0)
    with pytest.raises(IndexError, match=says):
        ours[there(i)]
    with pytest.raises(IndexError, match=says):
        ours[there(i), 2] = 5.0
    with pytest.raises(IndexError, match=says):
        xt.take_along_axis(ours, there(np.full((1, 7), bad)), axis=0)
    identical(host(ours), x)


def written(x: Any, i: Any, j: Any, key: Callable[[Any, Any], Any], value: Any) -> Any:
    x = x.copy()
    x[key(i, j)] = value
    return x


WRITES: dict[str, tuple[Callable[[Any, Any], Any], tuple[int, ...]]] = {
    "rows": (lambda i, j: i, (7, 7, 8)),
    "one row": (lambda i, j: i, (7, 8)),
    "a number each": (lambda i, j: i, (7, 1, 1)),
    "pairs": (lambda i, j: (i, j), (7, 8)),
    "pairs apart": (lambda i, j: (i, slice(None), j), (7, 7)),
    "outer": (lambda i, j: (i[:, None], j), (7, 7, 8)),
    "columns": (lambda i, j: (slice(None), j), (13, 7, 8)),
    "columns of one": (lambda i, j: (slice(None), j), (7, 1)),
}


@pytest.mark.parametrize("name", WRITES)
def test_writes_at_indices(cuda: emulated.Launches, name: str) -> None:
    """Places are named several times: the last value stays."""
    key, shape = WRITES[name]
    x, value, before = numbers(13, 7, 8), numbers(*shape, seed=1), len(cuda.texts)
    found = written(there(x), there(ROWS), there(COLUMNS), key, there(value))
    identical(host(found), written(x, ROWS, COLUMNS, key, value))
    assert launched(cuda, before) >= {"check", "scatter"}


def test_few_writes_into_much(cuda: emulated.Launches, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without marks for all places: in another way, with the same result."""
    monkeypatch.setattr(kernels, "PLACES", 4)
    monkeypatch.setattr(kernels, "PLACES_EACH", 1)
    x, value, before = numbers(13, 7, 8), numbers(7, 7, 8, seed=1), len(cuda.texts)
    found = written(there(x), there(ROWS), there(COLUMNS), lambda i, j: i, there(value))
    identical(host(found), written(x, ROWS, COLUMNS, lambda i, j: i, value))
    assert "scatter" not in launched(cuda, before)


@pytest.mark.parametrize("dtype", [np.int32, np.float32, np.float64, np.complex64])
def test_adding_at_indices(cuda: emulated.Launches, dtype: Any) -> None:
    """Whole numbers, whose sums are exact; as many at one place as go through several chunks, and through a part."""
    rng, before = np.random.default_rng(12), len(cuda.texts)
    x = rng.integers(-9, 9, (11, 3, 4)).astype(dtype)
    for i in (rng.integers(-11, 11, 150), np.repeat([3, -8, 0], [100, 1, 40]), np.full(65, 10), np.array([1, 1])):
        value = rng.integers(-9, 9, (i.size, 3, 4)).astype(dtype)
        ours, theirs = there(x), x.copy()
        add_at(ours, (there(i),), there(value))
        np.add.at(theirs, i, value)
        identical(host(ours), theirs)
        j = rng.integers(-4, 4, i.size)
        add_at(ours, (there(i), slice(None), there(j)), there(value[:, :, 0]))
        np.add.at(theirs, (i, slice(None), j), value[:, :, 0])
        identical(host(ours), theirs)
    assert launched(cuda, before) == {"check", "add"}
    with pytest.raises(IndexError, match="index 11 is out of bounds for axis 0 with size 11"):
        add_at(ours, (there(np.array([0, 11])),), there(value[:2]))
    identical(host(ours), theirs)


def add_at(x: xt.Tensor, key: tuple[Any, ...], value: xt.Tensor) -> None:
    """Add in place, as gradients of `take` and of indexing do."""
    natives = tuple(one.native() if isinstance(one, xt.Tensor) else one for one in key)
    x.device.backend.add_at(x.native(), natives, value.native())


# ---- masks


@pytest.mark.parametrize(
    ("dtype", "share"),
    [(np.uint8, 0.5), (np.int16, 0.0), (np.float32, 0.03), (np.complex64, 0.5), (np.complex128, 1.0)],
)
def test_masks(cuda: emulated.Launches, dtype: Any, share: float) -> None:
    """Over all axes and over the first ones, of more than one block."""
    x = numbers(131, 5, 7, dtype=dtype)
    whole, rows = (np.random.default_rng(2).random(shape) < share for shape in (x.shape, x.shape[:2]))
    before = len(cuda.texts)
    identical(host(there(x)[there(whole)]), x[whole])
    identical(host(there(x)[there(rows)]), x[rows])
    identical(host(there(x).mT[there(np.ascontiguousarray(whole.mT))]), x.mT[whole.mT])
    assert launched(cuda, before) >= {"mark", "select"}


def test_writes_at_masks(cuda: emulated.Launches) -> None:
    x, mask = numbers(131, 5, 7), np.random.default_rng(2).random((131, 5, 7)) < 0.3
    for where, value in ((mask, np.float32(-0.0)), (mask, numbers(mask.sum())), (mask[:, 0, 0], numbers(5, 7))):
        ours, theirs = there(x), x.copy()
        ours[there(where)] = there(value)
        theirs[where] = value
        identical(host(ours), theirs)


# ---- running results

LENGTHS = [(3, 5), (2, 1100), (70, 33), (3, 65, 5), (1, 1), (2, 6, 1)]
SUMMED = [bool, np.uint8, np.int32, np.float32, np.float64, np.complex64]


@pytest.mark.parametrize(
    ("shape", "dtype"),
    [*((shape, np.float32) for shape in LENGTHS), *(((3, 9, 2), dtype) for dtype in SUMMED)],
    ids=str,
)
def test_running_results(cuda: emulated.Launches, shape: tuple[int, ...], dtype: Any) -> None:
    """Along every axis, of more than one step of a block; whole numbers, whose sums are exact."""
    x = np.random.default_rng(3).integers(0, 2 if dtype is bool else 9, shape).astype(dtype)
    factors = (x != 0).astype(dtype)
    for axis in range(len(shape)):
        before = len(cuda.texts)
        found = xt.cumulative_sum(there(x), axis=axis, include_initial=axis == 0)
        identical(host(found), np.cumulative_sum(x, axis=axis, include_initial=axis == 0))
        identical(host(xt.cumulative_prod(there(factors), axis=axis)), np.cumprod(factors, axis=axis))
        assert launched(cuda, before) & {"scan rows", "scan columns"}


def test_running_results_of_special_values(cuda: emulated.Launches) -> None:
    """An infinity and NaN count for what comes after them, and for that alone."""
    x = np.ones((3, 1100), np.float32)
    x[0, 1050], x[1, 7], x[2, 30], x[2, 700] = np.inf, np.nan, np.inf, -np.inf
    with np.errstate(invalid="ignore"):
        for axis in (0, 1):
            identical(host(xt.cumulative_sum(there(x), axis=axis)), np.cumsum(x, axis=axis))
    small = np.full((2, 9), 100, np.int8)
    identical(host(xt.cumulative_sum(there(small), axis=1, dtype=xt.int8)), np.cumsum(small, axis=1, dtype=np.int8))


def test_few_long_rows_are_cupys(cuda: emulated.Launches) -> None:
    x, before = np.ones(kernels.SHORT + 1, np.int32), len(cuda.texts)
    identical(host(xt.cumulative_sum(there(x))), np.cumsum(x))
    assert not launched(cuda, before)


# ---- sort


@pytest.mark.parametrize("dtype", [bool, np.int8, np.uint16, np.int32, np.int64, np.uint64, np.float32, np.float64])
@pytest.mark.parametrize("shape", [(2, 1), (3, 17), (2, 40, 2)], ids=str)
def test_sort(cuda: emulated.Launches, shape: tuple[int, ...], dtype: Any) -> None:
    """Stable in both orders; zeros of both signs are equal, NaN last, or first where the order is descending."""
    x = numbers(*shape, dtype=dtype, seed=4)
    if np.dtype(dtype).kind in "iu":
        x[0, 0] = np.iinfo(dtype).min
        x[-1, -1] = np.iinfo(dtype).max
    for axis in range(len(shape)):
        before = len(cuda.texts)
        for descending in (False, True):
            ours = there(x)
            identical(host(xt.argsort(ours, axis=axis, descending=descending)), order(x, axis, descending))
            wanted = np.take_along_axis(x, order(x, axis, descending), axis)
            identical(host(xt.sort(ours, axis=axis, descending=descending)), wanted)
        assert "sort" in launched(cuda, before)


def order(x: Array, axis: int, descending: bool) -> Array:
    """Return the indices that sort x, by Python's sort."""
    keys = [(np.isnan(one), 0 if np.isnan(one) else one) for one in x.reshape(-1).tolist()]
    places = np.moveaxis(np.arange(x.size).reshape(x.shape), axis, -1)
    found = [
        sorted(range(len(row)), key=lambda k: keys[row[k]], reverse=descending)
        for row in places.reshape(-1, places.shape[-1])
    ]
    return np.moveaxis(np.array(found, np.int64).reshape(places.shape), -1, axis)


@pytest.mark.parametrize("dtype", [np.int8, np.uint32, np.float32, np.float64])
def test_rows_too_long_for_a_block(cuda: emulated.Launches, monkeypatch: pytest.MonkeyPatch, dtype: Any) -> None:
    """By one sort of all rows, whose numbers go with the keys; of eight bytes by CuPy."""
    monkeypatch.setattr(kernels, "SORTED", 16)
    x, before = numbers(3, 2, 37, dtype=dtype, seed=4), len(cuda.texts)
    for axis in (0, 2):
        places = order(x, axis, False)
        identical(host(xt.argsort(there(x), axis=axis)), places)
        identical(host(xt.sort(there(x), axis=axis)), np.take_along_axis(x, places, axis))
    assert launched(cuda, before) == ({"sort", "number"} if dtype != np.float64 else {"sort"})


# ---- copies

TURNED: dict[str, Callable[[Any], Any]] = {
    "turned": lambda x: x[:, 0, :].T,
    "two axes": lambda x: x.transpose(1, 0, 2) if isinstance(x, np.ndarray) else xt.permute_dims(x, (1, 0, 2)),
    "last two": lambda x: (
        x[:, :2, :].transpose(1, 2, 0) if isinstance(x, np.ndarray) else xt.permute_dims(x[:, :2, :], (1, 2, 0))
    ),
    "part": lambda x: x[1:, 1, 2:][:, ::-1].T,
}


@pytest.mark.parametrize(
    ("turn", "dtype"),
    [*((turn, np.float32) for turn in TURNED), *(("turned", dtype) for dtype in (np.uint8, np.float16, np.complex128))],
)
def test_transposed_copies(cuda: emulated.Launches, turn: str, dtype: Any) -> None:
    """Tiles that are whole and tiles that are not."""
    x, before = numbers(33, 3, 40, dtype=dtype), len(cuda.texts)
    named, turn = turn, TURNED[turn]
    ours = turn(there(x))
    identical(host(ours.copy()), turn(x).copy())
    identical(host(xt.reshape(ours, (-1,))), turn(x).reshape(-1))
    into = xt.zeros(ours.shape, dtype=ours.dtype, device="cuda:0")
    into[...] = ours
    identical(host(into), turn(x))
    assert launched(cuda, before) == ({"turn"} if named != "two axes" else set())


# ---- how much they do


class Cost:
    """What kernels took, for each of some elements: instructions of emulated threads, and bytes moved."""

    def __init__(self, cuda: emulated.Launches, monkeypatch: pytest.MonkeyPatch) -> None:
        self._cuda, self._before = cuda, cuda.instructions
        self._traffic = emulated.Traffic(monkeypatch)

    def each(self, elements: int) -> tuple[float, float, float]:
        """Return instructions, bytes read and bytes written."""
        instructions = self._cuda.instructions - self._before
        return instructions / elements, self._traffic.read / elements, self._traffic.written / elements


# Calls of x, 4 x 8192 float32, beside which m says where it is above 0, and i are its rows in another order. Their
# kernels, and for each element at most so many instructions, bytes read and bytes written. Half of x is above 0.
COSTS: dict[str, tuple[Callable[..., Any], set[str], tuple[float, float, float]]] = {
    "sort": (lambda x, m, i: xt.sort(x), {"sort"}, (1940, 8, 4)),
    "argsort": (lambda x, m, i: xt.argsort(x), {"sort"}, (1940, 4, 8)),
    "cumulative sum": (lambda x, m, i: xt.cumulative_sum(x[:, :4096], axis=1), {"scan rows"}, (38, 4, 4)),
    "of columns": (lambda x, m, i: xt.cumulative_sum(xt.reshape(x, (128, 256)), axis=0), {"scan columns"}, (28, 4, 4)),
    "mask": (lambda x, m, i: x[m], {"mark", "select"}, (46, 4.5, 2)),
    "rows at indices": (lambda x, m, i: x[i], {"gather"}, (12, 6, 4)),
}


@pytest.mark.parametrize("name", COSTS)
def test_what_a_call_takes(name: str, cuda: emulated.Launches, monkeypatch: pytest.MonkeyPatch) -> None:
    call, kernels, most = COSTS[name]
    rows = np.random.default_rng(0).standard_normal((4, 8192)).astype(np.float32)
    x, m, i = there(rows), there(rows > 0), there(np.array([2, 0, 3, 1]))
    monkeypatch.setattr(library, "most_shared", lambda like: emulated.MOST_SHARED)
    before, cost = len(cuda.texts), Cost(cuda, monkeypatch)
    found = call(x, m, i).evaluate()
    assert launched(cuda, before) == kernels
    elements = rows.size if name == "mask" else found.size
    assert all(one <= limit for one, limit in zip(cost.each(elements), most, strict=True)), cost.each(elements)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_what_a_transposed_copy_takes(dtype: Any, cuda: emulated.Launches, monkeypatch: pytest.MonkeyPatch) -> None:
    """Every element is read once and written once."""
    x = there(np.arange(64 * 96, dtype=dtype).reshape(64, 96)).T
    before = len(cuda.grids)
    cost = Cost(cuda, monkeypatch)
    x.copy()
    assert len(cuda.grids) == before + 1
    instructions, read, written = cost.each(64 * 96)
    assert (read, written) == (x.itemsize, x.itemsize)
    assert instructions <= 48


@pytest.mark.parametrize("layout", ["NCHW", "NHWC"])
def test_what_a_depthwise_convolution_takes(
    layout: str, cuda: emulated.Launches, monkeypatch: pytest.MonkeyPatch
) -> None:
    """For each of 9 products an element and a weight are read, which all but the first time lie in a cache."""
    shape = (1, 8, 16, 16) if layout == "NCHW" else (1, 16, 16, 8)
    x, w = there(np.ones(shape, np.float32)), there(np.ones((8, 1, 3, 3), np.float32))
    before = len(cuda.texts), len(cuda.grids)
    cost = Cost(cuda, monkeypatch)
    y = xt.nn.conv(x, w, padding=1, groups=8, layout=layout).evaluate()
    assert launched(cuda, before[0]) == {"direct"} and len(cuda.grids) == before[1] + 1
    instructions, read, written = cost.each(y.size)
    assert written == 4 and read <= 9 * (4 + 4)
    assert instructions / 9 <= 29


# ---- which of them are taken


def test_a_kernel_that_cannot_be_built(cuda: emulated.Launches, monkeypatch: pytest.MonkeyPatch) -> None:
    """Is said once, and done without; others are not."""
    x, other = numbers(5, 6), numbers(5, 6, dtype=np.int16)  # of which no row is sorted elsewhere
    monkeypatch.setitem(library._sections(), "sort", library._sections()["sort"].replace("__syncthreads", "no_such"))
    monkeypatch.setattr(library, "_without", set())
    with pytest.warns(RuntimeWarning, match="no code that NVRTC takes.*\n.*no_such"):
        identical(host(xt.sort(there(other))), np.sort(other))
    before = len(cuda.texts)
    identical(host(xt.sort(there(x))), np.sort(x, stable=True))
    assert not launched(cuda, before)
    identical(host(there(x)[there(x > 0)]), x[x > 0])
    assert launched(cuda, before) == {"mark", "select"}


def test_direct_is_cupys(cuda: emulated.Launches) -> None:
    x, before = numbers(5, 6), len(cuda.texts)
    with xt.options(engine="direct"):
        identical(host(xt.sort(there(x))), np.sort(x, stable=True))
        identical(host(there(x)[there(np.array([1, -1]))]), x[[1, -1]])
        identical(host(xt.cumulative_sum(there(x), axis=0)), np.cumsum(x, axis=0))
    assert not launched(cuda, before)


@pytest.mark.parametrize("row", gpu_layers.ROWS, ids=lambda row: row.name)
def test_what_the_benchmark_times(cuda: emulated.Launches, row: gpu_layers.Row) -> None:
    """Each line by a kernel, and right."""
    x = (np.random.default_rng(14).permutation(1600) - 800).reshape(40, 40).astype(np.float32)  # none is there twice
    i = np.arange(40)[::-1].copy()
    before = len(cuda.texts)
    identical(host(row.xtensor(xt, there(x), there(i))), row.cupy(np, x, i))
    assert launched(cuda, before)


def test_layers_that_the_benchmark_times(cuda: emulated.Launches) -> None:
    x, w = (np.random.default_rng(15).normal(size=shape) for shape in ((1, 2, 4, 4), (2, 1, 3, 3)))
    ways = {"stride": 1, "padding": 1, "groups": 2}
    for of in (gpu_layers._forward, gpu_layers._gradients):
        ours, theirs = (of("xtensor", xt, [xt.asarray(a, device=d) for a in (x, w)], ways)() for d in ("cuda:0", "cpu"))
        np.testing.assert_allclose(host(ours), host(theirs), rtol=1e-10)


# ---- both widths of indices


def test_wide_indices(cuda: emulated.Launches, monkeypatch: pytest.MonkeyPatch) -> None:
    """The texts with 64-bit indices, taken for small arrays as if 32 bits did not reach them."""
    monkeypatch.setattr(library, "REACH", 200)
    x, before = numbers(13, 7, 8), len(cuda.texts)
    identical(host(there(x)[there(ROWS), there(COLUMNS)]), x[ROWS, COLUMNS])
    identical(host(there(x)[there(x > 0)]), x[x > 0])
    identical(host(xt.sort(there(x))), np.sort(x, stable=True))
    image = numbers(2, 3, 9, 9, dtype=np.int32)
    wanted = host(xt.nn.max_pool(xt.asarray(image), 2))
    identical(host(xt.nn.max_pool(there(image), 2)), wanted)
    texts = [text for text in cuda.texts[before:] if re.search("struct Length", text)]
    assert len(texts) >= 5 and all("#define WIDE 1" in text for text in texts)


# ---- convolution and pooling

VIEWS: dict[str, Callable[[Any], Any]] = {
    "packed": lambda x: x,
    "every other": lambda x: x[:, :, ::-2, 1:],
    "turned": lambda x: xt.permute_dims(x, (0, 1, 3, 2)),
}


def agrees(function: Callable[..., Any], *arrays: Array) -> None:
    """Compare a function's result, and its gradients for random cotangents, with the CPU's."""
    found = []
    for name in ("cuda:0", "cpu"):
        y, back = xt.vjp(function, *(xt.asarray(a, device=name) for a in arrays))
        g = np.random.default_rng(5).normal(size=y.shape).astype(arrays[0].dtype)
        found.append([host(one) for one in (y, *back(xt.asarray(g, device=name)))])
    for a, b in zip(*found, strict=True):
        assert a.dtype == b.dtype
        np.testing.assert_allclose(a, b, rtol=1e-10, atol=1e-10)


@pytest.mark.parametrize(
    ("view", "layout"),
    [
        ("packed", "NCHW"),
        ("packed", ("NCHW", "NHWC")),
        ("every other", ("NHWC", "NCHW")),
        ("turned", "NHWC"),
    ],
    ids=str,
)
def test_convolutions(cuda: emulated.Launches, view: str, layout: Any) -> None:
    """By columns and directly, strided, padded, dilated, grouped, transposed, forward and backward."""
    taken = layout if isinstance(layout, str) else layout[0]

    def laid(x: Any) -> Any:
        x = VIEWS[view](x)
        return xt.permute_dims(x, (0, 2, 3, 1)) if taken == "NHWC" else x

    rng, before = np.random.default_rng(6), len(cuda.texts)
    x, bias = rng.normal(size=(2, 4, 7, 6)), rng.normal(size=8)
    for groups in (1, 2, 4):
        w = rng.normal(size=(8, 4 // groups, 3, 2))
        ways: dict[str, Any] = {"layout": layout, "groups": groups, "stride": (2, 1), "padding": 1}
        agrees(lambda a, k, b, ways=ways: xt.nn.conv(laid(a), k, b, **ways), x, w, bias)
    agrees(
        lambda a, k, ways=ways: xt.nn.conv_transpose(laid(a), k, dilation=2, **ways), x, rng.normal(size=(4, 1, 3, 2))
    )
    assert launched(cuda, before) >= {"columns", "direct", "weights"}


@pytest.mark.parametrize("layout", ["NCHW", "NHWC"])
@pytest.mark.parametrize("workspace", [0.004, None])
def test_workspace(cuda: emulated.Launches, workspace: float | None, layout: str) -> None:
    """In steps of few positions, and in one."""
    rng = np.random.default_rng(7)
    x, w = rng.normal(size=(2, 3, 8, 7) if layout == "NCHW" else (2, 8, 7, 3)), rng.normal(size=(5, 3, 3, 3))
    before = len(cuda.texts)

    def call(a: Any, k: Any) -> Any:
        given = workspace if a.device == "cuda:0" else None  # the CPU's own needs more
        return xt.nn.conv(a, k, padding=1, layout=layout, workspace_mb=given)

    agrees(call, x, w)
    steps = sum(library._sections()["columns"] in text for text in cuda.texts[before:])
    assert steps > 8 if workspace else steps == 3


@pytest.mark.parametrize("dtype", [np.int32, np.float16, np.complex128])
@pytest.mark.parametrize("groups", [1, 4])
def test_other_dtypes(cuda: emulated.Launches, groups: int, dtype: Any) -> None:
    """Whole numbers, whose sums are exact; by columns, and directly where kernels compute with the dtype."""
    x, w = (
        np.random.default_rng(13).integers(-4, 5, shape).astype(dtype)
        for shape in ((2, 4, 5, 4), (4, 4 // groups, 3, 2))
    )
    before = len(cuda.texts)
    ours, theirs = (
        xt.nn.conv(xt.asarray(x, device=d), xt.asarray(w, device=d), groups=groups) for d in ("cuda:0", "cpu")
    )
    identical(host(ours), host(theirs))
    assert launched(cuda, before) <= {"columns", "direct"}
    assert ("direct" in launched(cuda, before)) == (groups == 4 and dtype is np.int32)


def test_windows_of_one_element_are_not_laid_out(cuda: emulated.Launches) -> None:
    rng, before = np.random.default_rng(8), len(cuda.texts)
    agrees(lambda a, k: xt.nn.conv(a, k), rng.normal(size=(2, 3, 4, 5)), rng.normal(size=(6, 3, 1, 1)))
    agrees(lambda a, k: xt.nn.conv(a, k, layout="NHWC"), rng.normal(size=(2, 4, 5, 3)), rng.normal(size=(6, 3, 1, 1)))
    assert "columns" not in launched(cuda, before)


@pytest.mark.parametrize("rank", [1, 3])
def test_other_ranks(cuda: emulated.Launches, rank: int) -> None:
    rng = np.random.default_rng(9)
    x, w = rng.normal(size=(2, 4, *[5, 4, 3][:rank])), rng.normal(size=(4, 1, *[3, 2, 2][:rank]))
    agrees(lambda a, k: xt.nn.conv(a, k, groups=4, padding=1), x, w)
    agrees(lambda a, k: xt.nn.conv(a, k, padding=1, stride=2), x, rng.normal(size=(3, 4, *[3, 2, 2][:rank])))
    agrees(lambda a: xt.nn.max_pool(a, 2, padding=1), x)
    agrees(lambda a: xt.nn.avg_pool(a, 2, padding=1, stride=1), x)


@pytest.mark.parametrize(("view", "layout"), [("packed", "NCHW"), ("every other", "NHWC"), ("turned", "NHWC")])
def test_pools(cuda: emulated.Launches, view: str, layout: str) -> None:
    """Windows that overlap and reach into the padding; several largest elements."""

    def laid(x: Any) -> Any:
        x = VIEWS[view](x)
        return xt.permute_dims(x, (0, 2, 3, 1)) if layout == "NHWC" else x

    x, before = np.random.default_rng(10).integers(-3, 3, (2, 3, 7, 6)).astype(np.float64), len(cuda.texts)
    ways: dict[str, Any] = {"stride": (2, 1), "padding": (1, 0), "layout": layout}
    agrees(lambda a: xt.nn.max_pool(laid(a), (3, 2), **ways), x)
    agrees(lambda a: xt.nn.max_pool(laid(a), (2, 2), dilation=2, layout=layout), x)
    agrees(lambda a: xt.nn.avg_pool(laid(a), (3, 2), **ways), x)
    assert launched(cuda, before) == {"pool", "spread"}


def test_places_of_special_values(cuda: emulated.Launches) -> None:
    """NaN is the largest; of windows of the lowest value, and of nothing but padding, the place is the CPU's too."""
    x = numbers(2, 3, 7, 9, seed=11)
    x[0, 0] = -np.inf
    for ways in ({"padding": 1}, {"padding": (1, 0), "dilation": 3, "stride": 1}, {"ceil_mode": True, "stride": 3}):
        for one in (x, np.full((1, 1, 5, 5), -128, np.int8)):
            ours = xt.nn.max_pool_with_indices(there(one), 2, **ways)
            theirs = xt.nn.max_pool_with_indices(xt.asarray(one), 2, **ways)
            for a, b in zip(ours, theirs, strict=True):
                np.testing.assert_array_equal(host(a), host(b))
