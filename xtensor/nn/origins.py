"""The positions of the largest elements of windows, and adding gradients there, as LLVM code for one to three axes.

Places are found for a register of neighbouring windows at a time, or of channels; elements are added one by one.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache, lru_cache
from itertools import product
from typing import Any, NamedTuple

import numpy as np

from ..base.layout import Shape
from ..codegen.cpu.compile import Code, handmade, host
from ..codegen.cpu.forms import (
    TYPES,
    declared,
    first_lanes,
    loads,
    masked_load,
    masked_store,
    splat,
    suffix_of,
    vector_of,
)
from ..codegen.cpu.forms import Form as Registers
from ..run.launches import Launches, Sheet, shared
from ..run.native import Launch, Place, Word
from .contraction import pays
from .planes import LARGEST
from .windows import Axes, Axis, outs, sizes, volume

Array = Any  # NumPy's, in whose types views of unknown rank cannot be written

# Elements of windows that one thread examines per second; how much longer other ways take for one than for a product.
SPEED, SLOWER = 1e9, 1000

# Elements of adjacent windows up to which these are sent to at once; larger ones are found, and then added to.
SENT = 9

PLACES = np.dtype(np.int32)

# How an array lies: the lengths of its first two axes, the steps of all in elements, and the bytes of one.
Lies = tuple[Shape, Shape, int]

_STEPS = ("image", "plane", "slab", "row", "column")
_COUNTS = ("images", "planes", "out.d", "out.h", "out.w")


class Form(NamedTuple):
    """What code is made for: window, stride, dilation and low padding of each of three axes. by_channels: whether a
    register holds windows of neighbouring channels, else of neighbouring columns, which lie side by side.
    """

    char: str
    window: tuple[int, ...]
    stride: tuple[int, ...]
    dilation: tuple[int, ...]
    low: tuple[int, ...]
    by_channels: bool


def find(x: Array, places: Array, axes: Axes) -> bool:
    """Write into places, int32, the position, over the spatial axes, of the first of the largest elements of each
    window of x, where NaN counts as largest; -1 for a window of nothing but padding. Return whether that was done.

    x, places: (batch, channels, *lengths), of any strides.
    """
    fits = volume(axes) <= LARGEST and _is_worth(x, places, axes)
    if not fits or places.dtype != PLACES:
        return False
    x, places, axes = _deep(x), _deep(places), _three(axes)
    window, stride, dilation, low = zip(*[(a.kernel, a.stride, a.dilation, a.low) for a in axes], strict=True)
    steps, machine = [[step // one.itemsize for step in one.strides] for one in (x, places)], host()
    by_channels = steps[0][1] == steps[1][1] == 1
    if machine is None or not (by_channels or steps[0][4] == steps[1][4] == 1):
        return False
    lanes = machine.vector_bytes // x.itemsize
    code = _finding(Form(x.dtype.char, window, stride, dilation, low, by_channels), lanes)
    (*others, wide), limit = outs(axes), x.shape[1] if by_channels else axes[2].out
    out = (*others, wide) if by_channels else (*others, -(-wide // lanes))
    seconds = places.size * volume(axes) / SPEED / lanes
    _made(code, (x, places), out, [*sizes(axes), limit], seconds, lanes if by_channels else 1).run(x, places)
    return True


def add(g: Array, places: Array, x: Array, axes: Axes) -> bool:
    """Add the elements of g to those of x at the places that `find` found; return whether that was done.

    g, places: (batch, channels, *outputs). x: (batch, channels, *lengths); its spatial axes must be strided like one.
    """
    fits = g.dtype == x.dtype and places.dtype == PLACES and _is_worth(g, places, axes)
    g, places, x, axes = _deep(g), _deep(places), _deep(x), _three(axes)
    if not fits or any(
        n > 1 and x.strides[a] != x.shape[a + 1] * x.strides[a + 1] for a, n in enumerate(x.shape[2:4], 2)
    ):
        return False
    arrays = g, places, x
    _made(_adding(x.dtype.char), arrays, outs(axes), [], g.size / SPEED).run(*arrays)
    return True


def sending_of(g: Array, x: Array, to: Array, axes: Axes, *, often: bool = False) -> Launches | None:
    """Return launches that write into `to` the elements of g, each where its window of x has the first of its largest
    elements, and zeros elsewhere; None unless windows cover x without overlap, and rows are contiguous.
    """
    side_by_side = all(axis == Axis(axis.size, axis.out, axis.kernel, axis.kernel, 1, 0) for axis in axes)
    if not side_by_side or any(axis.out * axis.kernel != axis.size for axis in axes):
        return None
    if not g.dtype == x.dtype == to.dtype or volume(axes) > SENT or not _is_worth(x, g, axes, often):
        return None
    g, x, to, (deep, high, wide) = _deep(g), _deep(x), _deep(to), _three(axes)
    machine = host()
    lanes = machine.vector_bytes // x.itemsize if machine is not None else 0
    if wide.kernel > lanes or any(one.strides[4] != x.itemsize or not one.flags.aligned for one in (g, x, to)):
        return None
    code = _sending(x.dtype.char, lanes, (deep.kernel, high.kernel, wide.kernel))
    blocks = -(-wide.out // (lanes // wide.kernel))
    return _made(code, (g, x, to), (deep.out, high.out, blocks), [wide.out], x.size / SPEED / lanes)


def _is_worth(x: Array, places: Array, axes: Axes, often: bool = False) -> bool:
    fits = x.size and x.ndim <= 5 and pays(x, SLOWER * places.size * volume(axes), often)
    return bool(fits and x.flags.aligned and places.flags.aligned)  # flags that other libraries' arrays lack


def _deep(x: Array) -> Array:
    """Return (batch, channels, *lengths) as slabs of rows."""
    return x[(slice(None), slice(None), *[None] * (5 - x.ndim))]


def _three(axes: Axes) -> tuple[Axis, Axis, Axis]:
    every = (*[Axis(1, 1, 1, 1, 1, 0)] * (3 - len(axes)), *axes)
    return every[0], every[1], every[2]


def _made(
    code: Code, arrays: Sequence[Array], out: Sequence[int], more: Sequence[int], seconds: float, block: int = 1
) -> Launches:
    """Return launches of code over images, or over channels if there is one image. seconds: for one thread; block:
    channels in a register, of which the last word says how many there are.
    """
    lies = [(x.shape[:2], tuple([stride // x.itemsize for stride in x.strides]), x.itemsize) for x in arrays]
    return _launches(code, tuple(lies), tuple(out), tuple(more), seconds, block)


@lru_cache(256)
def _launches(code: Code, lies: Sequence[Lies], out: Shape, more: Shape, seconds: float, block: int) -> Launches:
    """Return launches of code for arrays that lie like this."""
    counts = lies[0][0][0], -(-lies[0][0][1] // block)
    along = int(counts[0] == 1)

    def make(sheet: Sheet) -> list[Launch]:
        calls, step = list[tuple[Word, ...]](), -(-counts[along] // sheet.threads)
        for first in range(0, counts[along], step):
            own = list(counts)
            own[along] = min(step, counts[along] - first)
            far = first * (block if along else 1)
            places = [Place(at, far * steps[along] * size) for at, (_, steps, size) in enumerate(lies)]
            last = (*more[:-1], more[-1] - far) if block > 1 and along else more
            calls.append((*places, *own, *out, *[step for _, steps, _ in lies for step in steps], *last))
        return [shared(code, calls, sheet.threads)]

    return Launches([make], len(lies), seconds)


# ---- the text


@cache
def _finding(form: Form, lanes: int) -> Code:
    """Return the code of `find`: registers hold neighbouring windows of a row, or of channels that lie side by side."""
    (deep, high, wide), of = form.window, Registers(form.char, lanes, 1, 1)
    numbers = [*_COUNTS, *_steps("x", "p"), "size.d", "size.h", "size.w", "limit"]
    by, channel = ("c", "first") if form.by_channels else ("w", "c")
    others = ("n", channel, None, None, None)
    where = ("n", channel, "d", "h", "w" if form.by_channels else "first")
    inner = [
        f"  %first = mul i64 %{by}, {lanes}\n  %left = sub i64 %limit, %first",
        *first_lanes(of, "there", "%left"),
        *_at("x", *others),
        *_at("p", *where),
        f"  %s.by = mul i64 %d, {form.stride[0]}\n  %r.by = mul i64 %h, {form.stride[1]}",
        f"  %q.by = mul i64 %{'w' if by == 'c' else 'first'}, {form.stride[2]}",
    ]
    for m, (i, j) in enumerate(product(range(deep), range(high))):
        inner += _row_of(form, m, i, j)
    for j in range(wide):
        inner += _column_of(form, j, lanes)
    best, place = "", ""
    for k, (i, j) in enumerate(product(range(deep * high), range(wide))):
        inner += _looked_at(form, k, i, j, of)
        inner += _taken(form, k, best, place, of)
        best, place = f"%best{k}", f"%found{k}"
    ints = Registers("i", lanes, 1, 1)
    inner.append(masked_store(ints, place, "%p.at", "%there"))
    gather = f"declare {_gather(of)}(<{lanes} x ptr>, i32, <{lanes} x i1>, {vector_of(of)})"
    text = _function(("x", "p"), numbers, inner, {"x": TYPES[form.char], "p": "i32"})
    return handmade("\n".join([*sorted(declared(of) | declared(ints)), gather, text]))


def _gather(of: Registers) -> str:
    return f"{vector_of(of)} @llvm.masked.gather.{suffix_of(of)}.v{of.lanes}p0"


def _row_of(form: Form, m: int, i: int, j: int) -> list[str]:
    """Return the lines that make a row of windows, of those of their slab i the one j: whether it is %in.h, and where
    it, or the first one, begins.
    """
    return [
        f"  %s{m} = add i64 %s.by, {i * form.dilation[0] - form.low[0]}\n  %in.d{m} = icmp ult i64 %s{m}, %size.d",
        f"  %r{m} = add i64 %r.by, {j * form.dilation[1] - form.low[1]}\n  %in.r{m} = icmp ult i64 %r{m}, %size.h",
        f"  %in.h{m} = and i1 %in.d{m}, %in.r{m}",
        f"  %s.some{m} = select i1 %in.h{m}, i64 %s{m}, i64 0\n  %r.some{m} = select i1 %in.h{m}, i64 %r{m}, i64 0",
        f"  %down.s{m} = mul i64 %s.some{m}, %x.slab\n  %down.r{m} = mul i64 %r.some{m}, %x.row",
        f"  %down{m} = add i64 %down.s{m}, %down.r{m}\n  %line.s{m} = mul i64 %s.some{m}, %size.h",
        f"  %line.r{m} = add i64 %line.s{m}, %r.some{m}\n  %line{m} = mul i64 %line.r{m}, %size.w",
        f"  %line.small{m} = trunc i64 %line{m} to i32",
    ]


def _column_of(form: Form, j: int, lanes: int) -> list[str]:
    """Return the lines that make the columns of an element of all windows of a register: %q, the first of them; %qs,
    all, as 32 bits; and whether they are %in.w.
    """
    ints, step = f"<{lanes} x i32>", 0 if form.by_channels else form.stride[2]
    counting = ", ".join(f"i32 {lane * step}" for lane in range(lanes))
    return [
        f"  %q{j} = add i64 %q.by, {j * form.dilation[2] - form.low[2]}\n  %q.small{j} = trunc i64 %q{j} to i32",
        *splat(f"q{j}", "i32", ints, lanes, f"q.small{j}"),
        f"  %qs{j} = add {ints} %q{j}.all, <{counting}>\n  %size.small{j} = trunc i64 %size.w to i32",
        *splat(f"size{j}", "i32", ints, lanes, f"size.small{j}"),
        f"  %in.w{j} = icmp ult {ints} %qs{j}, %size{j}.all",
    ]


def _looked_at(form: Form, k: int, i: int, j: int, of: Registers) -> list[str]:
    """Return the lines that load an element of the windows of a register: %v, their %place, and whether it is %in."""
    lanes, vector, kind = of.lanes, vector_of(of), TYPES[form.char]
    mask, ints = f"<{lanes} x i1>", f"<{lanes} x i32>"
    lines = [
        f"  %own{k} = and {mask} %there, %in.w{j}",
        f"  %in{k} = select i1 %in.h{i}, {mask} %own{k}, {mask} zeroinitializer",
        *splat(f"line{k}", "i32", ints, lanes, f"line.small{i}"),
        f"  %place{k} = add {ints} %line{k}.all, %qs{j}",
    ]
    if form.by_channels:  # a column outside is read as column 0
        lines += [
            f"  %any{k} = icmp ult i64 %q{j}, %size.w\n  %some{k} = select i1 %any{k}, i64 %q{j}, i64 0",
            f"  %along{k} = mul i64 %some{k}, %x.column\n  %off{k} = add i64 %down{i}, %along{k}",
            f"  %at{k} = getelementptr {kind}, ptr %x.at, i64 %off{k}",
            masked_load(of, f"%v{k}", f"%at{k}", f"%in{k}"),
        ]
        return lines
    lines += [f"  %along{k} = mul i64 %q{j}, %x.column\n  %off{k} = add i64 %down{i}, %along{k}"]
    lines += [f"  %at{k} = getelementptr {kind}, ptr %x.at, i64 %off{k}"]
    if form.stride[2] == 1:
        return [*lines, masked_load(of, f"%v{k}", f"%at{k}", f"%in{k}")]
    places = ", ".join(f"i64 {lane * form.stride[2]}" for lane in range(lanes))
    given = f"<{lanes} x ptr> %each{k}, i32 {of.itemsize}, {mask} %in{k}, {vector} zeroinitializer"
    return [
        *lines,
        f"  %each{k} = getelementptr {kind}, ptr %at{k}, <{lanes} x i64> <{places}>",
        f"  %v{k} = call {_gather(of)}({given})",
    ]


def _taken(form: Form, k: int, best: str, place: str, of: Registers) -> list[str]:
    """Return the lines that make %best and %found of those before and the element k."""
    lanes, vector = of.lanes, vector_of(of)
    mask, ints = f"<{lanes} x i1>", f"<{lanes} x i32>"
    if not best:
        return [
            f"  %best{k} = select {mask} %in{k}, {vector} %v{k}, {vector} zeroinitializer",
            f"  %found{k} = select {mask} %in{k}, {ints} %place{k}, {ints} {_lanes('i32', [-1] * lanes)}",
        ]
    return [
        f"  %more{k} = fcmp ult {vector} {best}, %v{k}\n  %number{k} = fcmp ord {vector} {best}, {best}",
        f"  %better{k} = and {mask} %more{k}, %number{k}\n  %none{k} = icmp slt {ints} {place}, zeroinitializer",
        f"  %want{k} = or {mask} %none{k}, %better{k}\n  %take{k} = and {mask} %in{k}, %want{k}",
        f"  %best{k} = select {mask} %take{k}, {vector} %v{k}, {vector} {best}",
        f"  %found{k} = select {mask} %take{k}, {ints} %place{k}, {ints} {place}",
    ]


@cache
def _adding(char: str) -> Code:
    """Return the code of `add`."""
    kind = TYPES[char]
    inner = [
        *(line for name in ("g", "p") for line in _at(name, "n", "c", "d", "h", "w")),
        *_at("x", "n", "c", None, None, None),
        "  %small = load i32, ptr %p.at\n  %place = sext i32 %small to i64",
        "  %there = icmp sge i64 %place, 0\n  br i1 %there, label %take, label %past\ntake:",
        f"  %off = mul i64 %place, %x.column\n  %to = getelementptr {kind}, ptr %x.at, i64 %off",
        f"  %own = load {kind}, ptr %g.at\n  %old = load {kind}, ptr %to\n  %sum = fadd {kind} %old, %own",
        f"  store {kind} %sum, ptr %to\n  br label %past\npast:",
    ]
    numbers = [*_COUNTS, *_steps("g", "p", "x")]
    return handmade(_function(("g", "p", "x"), numbers, inner, {"g": kind, "p": "i32", "x": kind}))


@cache
def _sending(char: str, lanes: int, window: tuple[int, int, int]) -> Code:
    """Return the code of `sending_of`: a register holds windows of a row; all lanes of one find its largest."""
    deep, high, wide = window
    form, kind, some = Registers(char, lanes, 1, 1), TYPES[char], lanes // wide
    vector, ints, mask = f"<{lanes} x {kind}>", f"<{lanes} x i32>", f"<{lanes} x i1>"
    windows, every = [lane // wide for lane in range(lanes)], range(lanes)
    inner = [
        f"  %first = mul i64 %w, {some}\n  %left = sub i64 %windows, %first",
        *first_lanes(form, "there", "%left"),
        f"  %few = and {mask} %there, {_lanes('i1', [n < some for n in every])}",
        f"  %spread = shufflevector {mask} %few, {mask} poison, {ints} {_lanes('i32', windows)}",
        f"  %own = and {mask} %spread, {_lanes('i1', [n < some * wide for n in every])}",
        f"  %front = mul i64 %d, {deep}\n  %top = mul i64 %h, {high}\n  %begin = mul i64 %first, {wide}",
        *_at("g", "n", "c", "d", "h", None),
        *(line for name in ("x", "to") for line in _at(name, "n", "c", None, None, None)),
        f"  %g.from = getelementptr {kind}, ptr %g.at, i64 %first",
        masked_load(form, "%g.few", "%g.from", "%few"),
        f"  %g.all = shufflevector {vector} %g.few, {vector} poison, {ints} {_lanes('i32', windows)}",
    ]
    best, place = "", ""
    for i, (slab, row) in enumerate(product(range(deep), range(high))):
        inner += [f"  %slab{i} = add i64 %front, {slab}\n  %row{i} = add i64 %top, {row}"]
        for name in ("x", "to"):
            inner += [f"  %{name}.by.s{i} = mul i64 %slab{i}, %{name}.slab"]
            inner += [f"  %{name}.by.r{i} = mul i64 %row{i}, %{name}.row"]
            inner += [f"  %{name}.far{i} = add i64 %{name}.by.s{i}, %{name}.by.r{i}"]
            inner += [f"  %{name}.off{i} = add i64 %{name}.far{i}, %begin"]
            inner += [f"  %{name}.at{i} = getelementptr {kind}, ptr %{name}.at, i64 %{name}.off{i}"]
        inner += [masked_load(form, f"%line{i}", f"%x.at{i}", "%own")]
        for j, k in enumerate(range(i * wide, (i + 1) * wide)):
            mine = _lanes("i32", [min(n * wide + j, lanes - 1) for n in windows])
            inner += [f"  %v{k} = shufflevector {vector} %line{i}, {vector} poison, {ints} {mine}"]
            inner += _taken_by_lanes(k, best, place, vector, lanes) if k else []
            best, place = (f"%best{k}", f"%place{k}") if k else ("%v0", "zeroinitializer")
    for i in range(deep * high):
        inner += [
            f"  %is{i} = icmp eq {ints} {place}, {_lanes('i32', [i * wide + n % wide for n in every])}",
            f"  %out{i} = select {mask} %is{i}, {vector} %g.all, {vector} zeroinitializer",
            masked_store(form, f"%out{i}", f"%to.at{i}", "%own"),
        ]
    numbers = [*_COUNTS, *_steps("g", "x", "to"), "windows"]
    text = _function(("g", "x", "to"), numbers, inner, dict.fromkeys(("g", "x", "to"), kind))
    return handmade("\n".join([*sorted(declared(form)), text]))


def _lanes(kind: str, numbers: Sequence[int]) -> str:
    """Return a constant vector."""
    return f"<{', '.join([f'{kind} {int(n)}' for n in numbers])}>"


def _taken_by_lanes(k: int, best: str, place: str, vector: str, lanes: int) -> list[str]:
    """Return the lines that make %best, and its number %place, of those before and the element k of all windows."""
    mask, ints = f"<{lanes} x i1>", f"<{lanes} x i32>"
    return [
        f"  %more{k} = fcmp ult {vector} {best}, %v{k}\n  %number{k} = fcmp ord {vector} {best}, {best}",
        f"  %better{k} = and {mask} %more{k}, %number{k}",
        f"  %best{k} = select {mask} %better{k}, {vector} %v{k}, {vector} {best}",
        f"  %place{k} = select {mask} %better{k}, {ints} {_lanes('i32', [k] * lanes)}, {ints} {place}",
    ]


def _steps(*names: str) -> list[str]:
    return [f"{name}.{step}" for name in names for step in _STEPS]


def _at(name: str, *counters: str | None) -> list[str]:
    """Return the lines that make the pointer %name.at from counters of images, planes, rows and columns."""
    lines, offset = [], "0"
    for counter, step in zip(counters, _STEPS, strict=True):
        if counter is not None:
            lines.append(f"  %{name}.by.{step} = mul i64 %{counter}, %{name}.{step}")
            lines.append(f"  %{name}.to.{step} = add i64 {offset}, %{name}.by.{step}")
            offset = f"%{name}.to.{step}"
    return [*lines, f"  %{name}.at = getelementptr KIND.{name}, ptr %{name}, i64 {offset}"]


def _function(pointers: Sequence[str], numbers: Sequence[str], inner: list[str], kinds: dict[str, str]) -> str:
    """Return a kernel of loops over images, planes, rows and columns of windows."""
    loops = list(zip("ncdhw", _COUNTS, strict=True))
    lines = ["define void @kernel(ptr %table) {\nentry:", *loads(pointers, numbers)]
    before = "entry"
    for name, count in loops:
        lines += [
            f"  br label %{name}.head\n{name}.head:",
            f"  %{name} = phi i64 [0, %{before}], [%{name}.next, %{name}.latch]",
            f"  %{name}.more = icmp slt i64 %{name}, %{count}",
            f"  br i1 %{name}.more, label %{name}.body, label %{name}.done\n{name}.body:",
        ]
        before = f"{name}.body"
    lines += inner
    for name, _ in reversed(loops):
        lines += [
            f"  br label %{name}.latch\n{name}.latch:\n  %{name}.next = add i64 %{name}, 1",
            f"  br label %{name}.head\n{name}.done:",
        ]
    text = "\n".join([*lines, "  ret void\n}"])
    for name, kind in kinds.items():
        text = text.replace(f"KIND.{name},", f"{kind},")
    return text
