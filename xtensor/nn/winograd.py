"""Winograd's convolution of 3x3 windows with stride 1 or 2, also back to inputs, and its gradient of weights.

The algorithm is described in codegen/cpu/winograd.py. Here work is cut into chunks of tiles that stay in the cache of a
core. Outputs are the same sums in the same order wherever chunks are cut; how the sums of weight gradients are cut
depends only on shapes and the workspace. So results do not depend on the number of threads.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import lru_cache
from itertools import product
from math import ceil, prod
from typing import NamedTuple

import numpy as np

from ..base.dtypes import DType
from ..base.layout import Shape
from ..codegen.cpu.compile import Code
from ..codegen.cpu.finish import COLUMNS, ROWS, Finish
from ..codegen.cpu.forms import form_of
from ..codegen.cpu.winograd import CHUNK, WORDS, Scheme, Tiled, winograd_kernel
from ..codegen.cpu.winograd_weights import weights_back_kernel, weights_kernel
from ..plan.costs import (
    CONTRACTION_COMPILED,
    LANE_TILES,
    WINOGRAD_CHUNK,
    WINOGRAD_OF_WEIGHTS,
    products_seconds,
    winograd_seconds,
)
from ..run.contractions import steps, straight, worth_compiling
from ..run.joined import Ending
from ..run.launches import BIAS, FLAG, SLOTS, Keeper, Launches, Sheet, W, X, Y, begin_of, behind, shared
from ..run.native import Launch, Place, Word
from ..storage.blob import TBlob
from .contraction import LANES, Array, rounded
from .windows import Axes

# Algorithms by name: the outputs in a row of a tile; by these, the strides for which there are tiles.
TILES = {"winograd": 2, "winograd4": 4}
STRIDES = {2: (1, 2), 4: (1,)}

# A gradient of weights is cut as if for so many threads, whatever their number; the fewest tiles of a chunk of it.
SHARES, DEEP = 4, 128

# If outputs are cut too, because there are fewer chunks than threads, each part has at least so many outputs.
PART = 64

# Bytes of a row of the widest panel of a product, and a register more.
WIDEST = 6 * 64


class Geometry(NamedTuple):
    """What a convolution is, except its values: channels and outputs are those of a group, strides count elements.

    axes: going back, as `_turned` returns them. parts: into how many parts the outputs of a group are cut.
    """

    char: str
    scheme: Scheme
    images: int
    groups: int
    channels: int
    outputs: int
    axes: Axes
    of_x: Shape
    of_y: Shape
    gradient: bool = False
    parts: int = 1

    @property
    def itemsize(self) -> int:
        return np.dtype(self.char).itemsize

    @property
    def elements(self) -> int:
        """The elements of a transformed tile."""
        return self.scheme.side**2

    @property
    def tiles(self) -> Shape:
        """The rows of tiles of an image, and the tiles of a row."""
        return tiles_of(self.scheme, self.axes)

    @property
    def lows(self) -> tuple[int, ...]:
        """The positions before the array read where tiles begin, down and along; then before the array written.

        Going back, window o begins at position 2 o - low of the array written, and tiles follow each other from
        position -low on. Those before position 0 are left out: the first one begins low % 4 positions before it. A tile
        also reads the window before its own first one, which still reaches into it.
        """
        lows = tuple(axis.low for axis in self.axes)
        if not self.scheme.back:
            return (*lows, 0, 0)
        gives, takes = self.scheme.gives, self.scheme.takes
        return (*(1 - low // gives * takes for low in lows), *(low % gives for low in lows))


class Cut(NamedTuple):
    """The largest chunk: so many images, and rows of tiles of each."""

    images: int
    rows: int


class Tiling:
    """How a convolution is cut, and where its parts lie in scratch memory, of which each thread has `each` bytes.

    places: offsets, in elements, of products, of transposed inputs, and of transposed outputs; and the end of all.
    """

    def __init__(self, geometry: Geometry, cut: Cut) -> None:
        self.geometry, self.cut = geometry, cut
        self.tiles = cut.images * cut.rows * geometry.tiles[1]
        rows = geometry.channels if geometry.gradient else self.tiles
        form = form_of(geometry.char, rows, geometry.outputs)
        lasts = geometry.of_x[2] == 1, geometry.of_y[2] == 1
        self.tiled = Tiled(form, geometry.scheme, geometry.channels, geometry.outputs, *lasts, geometry.gradient)
        self.v_next, self.m_next = ((self.tiles + form.height) * n for n in (self.tiled.pitch_x, self.tiled.pitch_y))
        self.places = tuple(self._ends())
        self.each = rounded(self.places[-1] * geometry.itemsize)

    def _ends(self) -> Iterator[int]:
        tiled, along, end = self.tiled, self.geometry.axes[1], 0
        scheme, (images, rows) = tiled.scheme, self.cut
        taken = images * (rows * scheme.takes + scheme.length - scheme.takes) * along.size * (not tiled.x_last)
        given = images * rows * scheme.gives * along.out * (not tiled.y_last)
        transformed = (n * tiled.elements for n in (self.v_next, self.m_next))
        for size in (*transformed, taken * tiled.pitch_x, given * tiled.pitch_y):
            end += -(-size // tiled.form.lanes) * tiled.form.lanes
            yield end

    @property
    def u_next(self) -> int:
        """The numbers that transformed weights, or sums for their gradient, have for each element of a tile."""
        tiled = self.tiled
        return tiled.channels * (tiled.pitch_y if tiled.gradient else tiled.panels * tiled.form.width)

    @property
    def u_shape(self) -> Shape:
        return self.geometry.groups * self.geometry.parts, self.tiled.elements, self.u_next

    def chunks(self) -> Array:
        """Return the table of chunks, in which those of a group and part follow each other."""
        geometry, (images, rows) = self.geometry, self.cut
        of_x, of_y, u = geometry.of_x, geometry.of_y, 0 if geometry.gradient else self.tiled.elements * self.u_next
        counts = range(0, geometry.images, images), range(0, geometry.tiles[0], rows)
        found = []
        for g, p, n, r in product(range(geometry.groups), range(geometry.parts), *counts):
            output, part = p * geometry.outputs, g * geometry.parts + p
            place = output * of_y[2] + n * of_y[0]
            where = g * of_x[1] + n * of_x[0], g * of_y[1] + place, part * u, part * geometry.outputs
            sizes = min(images, geometry.images - n), r, min(rows, geometry.tiles[0] - r)
            found.append((*where, *sizes, g, place, output))
        assert len(found[0]) == len(CHUNK)
        return np.array(found)

    def told(self, places: tuple[Word, ...], first: int, last: int) -> tuple[Word, ...]:
        """Return the kernel's words for some chunks. places: the words of POINTERS."""
        geometry, tiled, (down, along) = self.geometry, self.tiled, self.geometry.axes
        numbers = [first, last]
        for of, axis, is_last in ((geometry.of_x, along.size, tiled.x_last), (geometry.of_y, along.out, tiled.y_last)):
            numbers += [of[0], of[3], of[4] if is_last else of[2], int(of[3] == axis and of[4] == 1)]
        numbers += [down.size, along.size, down.out, along.out, *geometry.lows, geometry.tiles[1]]
        numbers += [self.u_next, self.v_next, self.m_next, *self.places[:3]]
        assert len(places) + len(numbers) == WORDS
        return (*places, *numbers)


def geometry_of(x: Array, outputs: int, y: Array, axes: Axes, scheme: Scheme, gradient: bool = False) -> Geometry:
    """Return the geometry of arrays (batch, groups, channels, height, width)."""
    axes = _turned(axes) if scheme.back else axes
    of_x, of_y = (tuple(step // a.itemsize for step in a.strides) for a in (x, y))
    images, groups, channels = x.shape[:3]
    return Geometry(y.dtype.char, scheme, images, groups, channels, outputs, axes, of_x, of_y, gradient)


@lru_cache(256)
def tiling_of(geometry: Geometry, room: int, workers: int) -> tuple[Tiling, Array] | None:
    """Return how to cut a convolution, and its chunks: into about equal shares for so many threads, each of which fits
    a quarter of `room` bytes, or else all of them; None if none does.
    """
    per_tile = geometry.elements * (geometry.channels + geometry.outputs) * geometry.itemsize
    weights = geometry.elements * geometry.channels * geometry.outputs * geometry.itemsize
    wanted = max(int(max(WINOGRAD_CHUNK, weights * WINOGRAD_OF_WEIGHTS)) // per_tile, 1)
    if geometry.gradient:
        wanted = max(wanted, DEEP)
    while True:
        found = Tiling(geometry, _cut(geometry, wanted, workers))
        if found.each <= room // 4 or (wanted == 1 and found.each <= room):
            return found, found.chunks()
        if wanted == 1:
            return None
        wanted //= 2


def _cut(geometry: Geometry, wanted: int, workers: int) -> Cut:
    """Return the chunk of about so many tiles with which threads finish soonest."""
    rows, columns = geometry.tiles
    image = rows * columns
    whole = image <= wanted
    count, size = (geometry.images, image) if whole else (rows, columns)
    most = max(min(wanted // size, count), 1)
    others = geometry.groups * geometry.parts * (1 if whole else geometry.images)

    def longest(n: int) -> tuple[int, int]:
        return ceil(others * ceil(count / n) / workers) * n, -n

    best = min(range(1 if whole else most // 2 + 1, most + 1), key=longest)
    return Cut(best, rows) if whole else Cut(1, best)


def _turned(axes: Axes) -> Axes:
    """Return the axes of going back to inputs: outputs are read, and inputs are written."""
    return tuple(axis._replace(size=axis.out, out=axis.size) for axis in axes)


def tiles_of(scheme: Scheme, axes: Axes) -> Shape:
    """Return the tiles along each axis; axes: as a geometry has them."""
    befores = (axis.low % scheme.gives if scheme.back else 0 for axis in axes)
    return tuple(ceil((axis.out + before) / scheme.gives) for axis, before in zip(axes, befores, strict=True))


# ---- when it is taken


def unfit(axes: Axes, dtype: DType, m: int) -> str | None:
    """Return why there are no tiles of m outputs for such windows or dtypes, None if there are."""
    window = "x".join(str(axis.kernel) for axis in axes)
    if window != "3x3":
        return f"windows are {window}"
    strides = {axis.stride for axis in axes}
    if len(strides) > 1 or strides.isdisjoint(STRIDES[m]):
        return f"windows are 3x3 with strides {', '.join(str(axis.stride) for axis in axes)}"
    if any(axis.dilation != 1 for axis in axes):
        return "windows are 3x3, dilated"
    return None if dtype.char in "fd" else f"numbers are {dtype}"


def scheme_of(axes: Axes, m: int, *, back: bool = False) -> Scheme:
    """Return the scheme of tiles for such windows. back: to go from outputs to inputs."""
    return Scheme(m, axes[0].stride, back)


def unreadable(
    x: Array, w: Array, y: Array, axes: Axes, m: int, *, asked: bool = False, back: bool = False
) -> str | None:
    """Return why the kernel cannot compute these arrays (batch, groups, channels, height, width), None if it can.

    asked: whether to compile it even for little work. back: whether x are outputs, and y inputs.
    """
    found = unfit(axes, y.dtype, m)
    if found is not None:
        return found
    if not (x.size and y.size):
        return "there is no work"
    work = x.size * w[0, :, 0].size if back else y.size * w[0, 0].size
    if not worth_compiling(y, y.dtype, max(work, asked * CONTRACTION_COMPILED)):
        return "it is little work, or there is no generated code"
    for one in (x, w, y):
        if one.dtype != y.dtype or not one.flags.aligned or any(step % y.itemsize for step in one.strides):
            return "dtypes differ, or numbers are not aligned"
    if any(y.itemsize not in (one.strides[2], one.strides[4]) for one in (x, y)):
        return "neither channels nor columns follow each other in memory"
    if y.itemsize != y.strides[2] and y.strides[3] != y.itemsize * y.shape[4]:
        return "rows of outputs do not follow each other in memory"
    return None


def seconds(
    groups: int,
    channels: int,
    outputs: int,
    images: int,
    axes: Axes,
    itemsize: int,
    *,
    in_rows: bool,
    back: bool = False,
    gradient: bool = False,
) -> tuple[float, float]:
    """Estimate the time of one thread for a convolution of groups of so many channels and outputs by tiles of 2x2, and
    by products. in_rows: whether channels come first. back: from outputs, `channels` of them, to inputs. gradient: of
    weights.
    """
    scheme = scheme_of(axes, 2, back=back)
    tiles = images * prod(tiles_of(scheme, _turned(axes) if back else axes))
    sizes = groups, channels, outputs
    positions = images * axes[0].out * axes[1].out
    products = products_seconds(*sizes, positions, 9, itemsize, in_rows=in_rows and not back)
    return winograd_seconds(*sizes, tiles, scheme.side**2, itemsize, gradient=gradient), products


def cheaper(
    x: Array, outputs: int, y: Array, axes: Axes, *, back: bool = False, gradient: bool = False
) -> tuple[str, str]:
    """Return the algorithm with the lower estimated time, and that estimate in words; it depends on shapes, and on
    whether channels come first.
    """
    sizes, in_rows = (x.shape[1], x.shape[2], outputs, x.shape[0]), x.strides[-1] == y.strides[-1] == y.itemsize
    ours, products = seconds(*sizes, axes, y.itemsize, in_rows=in_rows, back=back, gradient=gradient)
    estimate = "an estimated {:.3g} ms of one thread against {:.3g} by {}"
    if ours < products:
        return "winograd", estimate.format(1e3 * ours, 1e3 * products, "im2col")
    return "im2col", estimate.format(1e3 * products, 1e3 * ours, "winograd")


# ---- outputs


class ByTiles(NamedTuple):
    """Launches that write outputs, or the gradient of weights, for arrays that lie like those they were made for."""

    launches: Launches

    def run(self, x: Array, w: Array, y: Array, bias: Array | None = None, *slots: Array) -> bool:
        """Write the results, and return whether all are finite. bias: (groups, outputs) numbers; slots: of the steps
        that follow.
        """
        shift = None if bias is None else np.ascontiguousarray(bias, y.dtype)
        return self.run_at([0 if one is None else begin_of(one) for one in (x, w, y, shift, *slots)])

    def run_at(self, words: Sequence[int], keeper: Keeper | None = None) -> bool:
        """Do the same for arrays at these addresses. keeper: as of `Launches`."""
        flag = np.zeros(1, np.int64)
        self.launches.run_at([*words, *[0] * (FLAG - len(words)), begin_of(flag)], keeper)
        return not flag[0]

    def kept(self, weights: TBlob) -> Keeper | None:
        """Return the keeper of weights: see `Launches.kept`."""
        return self.launches.kept(weights)


def convolve(x: Array, w: Array, y: Array, bias: Array | None, axes: Axes, scheme: Scheme, budget: int) -> bool | None:
    """Write the outputs of x (batch, groups, channels, height, width) into y, and return whether all are finite.

    w: (groups, outputs, channels, 3, 3). bias: (groups, outputs). If the scheme goes back, x are outputs of windows
    with these axes, and y inputs. Returns None, with nothing written, if `budget` bytes of scratch memory are too few.
    An element that is not finite makes all outputs of its tile so.
    """
    w = w if _is_square(w) else np.ascontiguousarray(w)
    found = outputs_of(x, w, y, axes, scheme, budget, is_biased=bias is not None)
    return None if found is None else found.run(x, w, y, bias)


def outputs_of(
    x: Array,
    w: Array,
    y: Array,
    axes: Axes,
    scheme: Scheme,
    budget: int,
    *,
    is_biased: bool,
    begin: int = 0,
    ending: Ending | None = None,
) -> ByTiles | None:
    """Return what `convolve` runs, None if scratch memory is too small or the elements of windows are not contiguous.

    begin: bytes from the start of the given weights to the start of w. ending: the steps that follow, in registers.
    """
    if not _is_square(w):
        return None
    geometry = geometry_of(x, w.shape[1], y, axes, scheme)
    finish = None if ending is None else ending.along(COLUMNS if geometry.of_y[2] == 1 else ROWS)
    launches = _outputs_of(geometry, _steps(w), begin, is_biased, budget, finish)
    return None if launches is None else ByTiles(launches)


def _is_square(w: Array) -> bool:
    """Return whether a window's elements are contiguous, forwards or backwards, in either order of its axes."""
    return sorted(abs(step) for step in w.strides[3:]) == [w.itemsize, 3 * w.itemsize]


@lru_cache(256)
def _outputs_of(
    geometry: Geometry, of_w: Shape, begin: int, is_biased: bool, budget: int, finish: Finish | None
) -> Launches | None:
    """Return launches that write outputs, and what follows, for arrays like these; of_w: strides of weights."""
    if tiling_of(geometry, budget - _room(geometry), 1) is None:
        return None

    def make(sheet: Sheet) -> list[Launch]:
        found = tiling_of(geometry, budget - _room(geometry), sheet.threads)
        assert found is not None  # as for one thread
        tiling, chunks = found
        tiling, chunks = _in_parts(tiling, chunks, len(chunks), sheet.threads)
        tiled, registers = tiling.tiled, tiling.tiled.form.registers
        u, nbytes = sheet.pack(prod(tiling.u_shape), np.dtype(geometry.char)), prod(tiling.u_shape) * geometry.itemsize
        code = weights_kernel(tiled.form._replace(height=1, registers=1), geometry.scheme)
        places, more = (Place(W, begin), u), (tiling.u_next, registers)
        sheet.packing.append(_over_outputs(code, tiling, of_w, places, tiled.panels * registers, more, sheet))
        workers = max(min(sheet.threads, len(chunks), (budget - nbytes) // tiling.each), 1)
        ranges = [(len(chunks) * n // workers, len(chunks) * (n + 1) // workers) for n in range(workers)]
        calls = [(*one, u) for one in ranges]
        return [_over_chunks(tiling, chunks, calls, workers, sheet, is_biased=is_biased, finish=finish)]

    return Launches([make], FLAG + 1, _seconds(geometry))


def _steps(a: Array) -> Shape:
    return tuple(step // a.itemsize for step in a.strides)


def _seconds(geometry: Geometry) -> float:
    """Estimate the time of one thread."""
    tiles = geometry.images * prod(geometry.tiles)
    sizes = geometry.groups, geometry.channels, geometry.outputs
    return winograd_seconds(*sizes, tiles, geometry.elements, geometry.itemsize, gradient=geometry.gradient)


def _room(geometry: Geometry) -> int:
    """Return the most bytes that transformed weights can take, for any width of panels."""
    widest = geometry.outputs + WIDEST // geometry.itemsize
    return geometry.groups * geometry.elements * geometry.channels * widest * geometry.itemsize


def _over_chunks(
    tiling: Tiling,
    chunks: Array,
    calls: Sequence[tuple[int, int, Word]],
    workers: int,
    sheet: Sheet,
    *,
    is_biased: bool = False,
    finish: Finish | None = None,
) -> Launch:
    """Return the launch over chunks. calls: ranges of chunks, each with the weights or sums that it works on."""
    tiled, rows, dtype = tiling.tiled, tiling.tiles + tiling.tiled.form.height, np.dtype(tiling.geometry.char)
    longest = max(tiled.pitch_x, tiled.pitch_y, rows, tiling.u_shape[0] * tiled.outputs)
    columns = straight(tiled.panels * tiled.form.width, 1, tiled.form)
    targets = steps(tiled.channels if tiled.gradient else rows, tiled.pitch_y)
    zeros = sheet.keep(np.zeros(longest, dtype))
    tables = [sheet.keep(a) for a in (chunks, targets, columns.pieces, columns.panels)]
    rooms = [sheet.take(tiling.places[-1], dtype) for _ in range(workers)]
    arrays = Place(X), Place(Y)
    others = Place(BIAS) if is_biased else zeros, zeros
    slots: Word = 0 if finish is None else Place(SLOTS)
    told = [
        tiling.told((*arrays, u, *others, rooms[n % workers], *tables, Place(FLAG), slots), first, last)
        for n, (first, last, u) in enumerate(calls)
    ]
    return shared(winograd_kernel(tiled, finish), told, workers)


def _over_outputs(
    code: Code,
    tiling: Tiling,
    of_w: Shape,
    places: tuple[Place, Place],
    registers: int,
    more: tuple[int, ...],
    sheet: Sheet,
    flags: tuple[Place, ...] = (),
) -> Launch:
    """Return the launch that transforms weights (groups, outputs, channels, 3, 3), or sums of them.

    Threads share the registers of outputs. places: of the weights, and of the transformed ones. flags: where the way
    back reports that something is not finite.
    """
    by_group, by_output, by_channel, *window = of_w
    geometry, item = tiling.geometry, tiling.geometry.itemsize
    taps = np.add.outer(np.arange(3) * window[0], np.arange(3) * window[1]).ravel()
    first = int(taps.min())
    table, workers, calls = sheet.keep(taps - first), min(sheet.threads, registers), list[tuple[Word, ...]]()
    for k, n in product(range(tiling.u_shape[0]), range(workers)):
        g, part = divmod(k, geometry.parts)
        share = registers * n // workers, registers * (n + 1) // workers
        numbers = (*share, geometry.outputs, geometry.channels, by_output, by_channel, *more)
        far = (g * by_group + part * geometry.outputs * by_output + first) * item, k * prod(tiling.u_shape[1:]) * item
        calls.append((*[behind(*one) for one in zip(places, far, strict=True)], table, *flags, *numbers))
    return shared(code, calls, workers)


# ---- the gradient of weights


def weights_of(x: Array, y: Array, w: Array, axes: Axes, scheme: Scheme, budget: int) -> ByTiles | None:
    """Return what writes the sums over positions of y times the windows of x there into w, None if scratch memory is
    too small.

    Chunks are distributed over lanes, each lane adds up its own chunks in order, and the lanes are added in order.
    """
    launches = _weights_of(geometry_of(x, w.shape[1], y, axes, scheme, gradient=True), _steps(w), budget)
    return None if launches is None else ByTiles(launches)


@lru_cache(256)
def _weights_of(geometry: Geometry, of_w: Shape, budget: int) -> Launches | None:
    """Return launches that write the gradient for arrays like these; of_w: strides of weights."""
    one = _room(geometry)
    found = tiling_of(geometry, budget - one, SHARES)
    if found is None:
        return None
    whole, all_chunks = found
    groups, dtype = geometry.groups, np.dtype(geometry.char)
    each = len(all_chunks) // groups
    fewest = LANE_TILES[geometry.outputs < 2 * PART]
    most = min(LANES, geometry.images * prod(geometry.tiles) // fewest, each)
    lanes = max(min(most, budget // (4 * one), (budget - whole.each) // one), 1)

    def make(sheet: Sheet) -> list[Launch]:
        tiling, chunks = _in_parts(whole, all_chunks, lanes * groups, sheet.threads)
        lane_size, group_size = prod(tiling.u_shape), prod(tiling.u_shape[1:])
        sums = sheet.take(lanes * lane_size, dtype)
        calls = list[tuple[int, int, Word]]()
        for lane, g in product(range(lanes), range(tiling.u_shape[0])):
            own = behind(sums, (lane * lane_size + g * group_size) * dtype.itemsize)
            calls.append((g * each + each * lane // lanes, g * each + each * (lane + 1) // lanes, own))
        room = budget - lanes * lane_size * dtype.itemsize
        workers = max(min(sheet.threads, len(calls), room // tiling.each), 1)
        adding = _over_chunks(tiling, chunks, calls, workers, sheet)
        form = tiling.tiled.form
        code = weights_back_kernel(form._replace(height=1, registers=1), geometry.scheme)
        more = tiling.u_next, form.registers, tiling.tiled.pitch_y, lanes, lane_size
        registers = -(-tiling.geometry.outputs // form.lanes)
        places, flags = (Place(W), sums), (Place(FLAG),)
        return [adding, _over_outputs(code, tiling, of_w, places, registers, more, sheet, flags)]

    return Launches([make], FLAG + 1, _seconds(geometry))


def _in_parts(tiling: Tiling, chunks: Array, others: int, workers: int) -> tuple[Tiling, Array]:
    """Return how to cut a convolution, and its chunks, with outputs cut as well where the `others`, all other parts,
    are too few for the threads.
    """
    geometry, wanted = tiling.geometry, ceil(workers / others)
    outputs = geometry.outputs
    parts = next((n for n in range(wanted, outputs // PART + 1) if outputs % n == 0), 1) if wanted > 1 else 1
    if parts == 1:
        return tiling, chunks
    tiling = Tiling(geometry._replace(outputs=outputs // parts, parts=parts), tiling.cut)
    return tiling, tiling.chunks()
