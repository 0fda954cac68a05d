"""Windows over spatial axes: what stride, padding, dilation and layout mean, and the resulting lengths.

Along one axis, window o begins at input position `o * stride - low`, and its element k lies `k * dilation` further;
positions outside the input count as nothing. `low` may be negative: then the first positions are left out.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import lru_cache
from itertools import pairwise, product
from math import gcd, prod
from typing import Any, NamedTuple

from ..base.errors import expected, one_of
from ..base.layout import Pairs, Shape, as_index, c_strides
from ..plan.costs import REGION_OUTPUTS, REGION_WORK, REGIONS_LARGEST, REGIONS_PAY

FIRST = ("NCW", "NCHW", "NCDHW")
LAST = ("NWC", "NHWC", "NDHWC")
PADDINGS = ("valid", "same", "same_lower", "full")


class Axis(NamedTuple):
    """One spatial axis: the lengths of input, output and window, and where the windows lie."""

    size: int
    out: int
    kernel: int
    stride: int
    dilation: int
    low: int

    @property
    def span(self) -> int:
        """The number of positions that a window covers, including the gaps of dilation."""
        return self.dilation * (self.kernel - 1) + 1

    def inside(self, k: int) -> tuple[slice, slice]:
        """Return the outputs whose element k lies inside the input, and the positions of that element."""
        shift = k * self.dilation - self.low
        first = max(0, -(shift // self.stride))
        last = min(self.out, (self.size - 1 - shift) // self.stride + 1)
        if first >= last:
            return slice(0, 0), slice(0, 0)
        start = first * self.stride + shift
        return slice(first, last), slice(start, start + (last - first - 1) * self.stride + 1, self.stride)


Axes = tuple[Axis, ...]
Places = tuple[Any, ...]  # slices


def taps(axes: Axes) -> Iterator[tuple[tuple[int, ...], Places, Places]]:
    """Yield each element of the window in C order: its index, the outputs for which it is inside, and its positions."""
    for tap in product(*([(k, *axis.inside(k)) for k in range(axis.kernel)] for axis in axes)):
        element, outputs, sources = zip(*tap, strict=True)
        yield element, outputs, sources


def phases(axis: Axis) -> list[tuple[slice, slice, Axis]]:
    """Return, for each residue of input positions modulo the stride, these positions, the elements of the window that
    reach them (in reverse), and the axis of those over the outputs.

    Position i meets output o with element k where i = o * stride + k * dilation - low.
    """
    found = []
    common = gcd(axis.stride, axis.dilation)
    step, apart = axis.stride // common, axis.dilation // common
    for start in range(min(axis.stride, axis.size)):
        places = slice(start, None, axis.stride)
        count = len(range(start, axis.size, axis.stride))
        first = next((k for k in range(step) if (start + axis.low - k * axis.dilation) % axis.stride == 0), axis.kernel)
        number = len(range(first, axis.kernel, step))
        last = first + (number - 1) * step
        elements = slice(last, None if first == 0 else first - 1, -step) if number else slice(0, 0)
        low = -((start + axis.low - last * axis.dilation) // axis.stride)
        found.append((places, elements, Axis(axis.out, count, number, 1, apart, low)))
    return found


def phases_back(w: Any, x: Any, axes: Axes) -> list[tuple[Any, Any, Axes]]:
    """Return the convolutions with stride 1 that compute inputs from outputs, one for each phase of the positions: its
    weights (..., *window), its inputs (..., *lengths), and its axes.
    """
    ways = (zip(*phase, strict=True) for phase in product(*map(phases, axes)))
    return [(w[(..., *elements)], x[(..., *places)], own) for places, elements, own in ways]


# ---- regions

# One axis of a region: its outputs, elements and positions, and the axis that they are.
Box = tuple[slice, slice, slice, Axis]


class Region(NamedTuple):
    """A box of outputs and elements of their windows: the positions of the input under them, and the axes of the
    convolution that they are.
    """

    outputs: Places
    elements: Places
    sources: Places
    axes: Axes


def regions(axes: Axes, work: int, lanes: int = 1, *, by_elements: bool = False) -> list[Region]:
    """Return regions of all outputs: several where it pays to leave out elements of windows that lie in the padding, as
    of dilated windows on small images; else a single one, whose windows may reach into the padding.

    work: multiplications for one output and one element of the window, over all images and channels. lanes: outputs of
    a row, along the last axis, that are computed together. by_elements: whether each element is in one region only,
    instead of each output.
    """
    divided = [_boxes(axis, lanes if n == len(axes) else 1, by_elements) for n, axis in enumerate(axes, 1)]
    number = prod(map(len, divided))
    taken = prod([sum([axis.out * axis.kernel for *_, axis in boxes]) for boxes in divided])
    if number > 1 and work * (prod(outs(axes)) * volume(axes) - taken) < number * REGION_WORK:
        divided = [[_whole(axis)] for axis in axes]
    return [Region(*zip(*boxes, strict=True)) for boxes in product(*divided)]


def _whole(axis: Axis) -> Box:
    return slice(None), slice(None), slice(None), axis


@lru_cache(1024)
def _boxes(axis: Axis, lanes: int, by_elements: bool) -> list[Box]:
    """Return the parts of one axis, a single one where dividing it does not pay."""
    if axis.kernel > REGIONS_LARGEST:
        return [_whole(axis)]
    inside = [axis.inside(k)[0] for k in range(axis.kernel)]
    if by_elements:
        parts = [(one, range(k, k + 1)) for k, one in enumerate(inside)]
    else:
        ends = sorted({0, axis.out, *[end for one in inside for end in (one.start, one.stop)]})
        parts = [(slice(*pair), _elements(inside, pair[0])) for pair in pairwise(ends)]
    found = [_box(axis, *part) for part in parts if part[0].stop > part[0].start and part[1]]
    if len(found) < len(parts):  # an output, or an element, with nothing inside
        return [_whole(axis)]
    taken = sum([_taken(own, lanes) for *_, own in found])
    return found if taken <= REGIONS_PAY[by_elements] * _taken(axis, lanes) else [_whole(axis)]


def _elements(inside: Sequence[slice], output: int) -> range:
    """Return the elements of an output's window that lie inside. inside: for each element, the outputs that have it."""
    own = [k for k, one in enumerate(inside) if one.start <= output < one.stop]
    return range(own[0], own[-1] + 1) if own else range(0)


def _box(axis: Axis, outputs: slice, elements: range) -> Box:
    """Return the part of an axis with some outputs, and elements of their windows that lie inside."""
    own = axis._replace(out=outputs.stop - outputs.start, kernel=len(elements), low=0)
    own = own._replace(size=(own.out - 1) * own.stride + own.span)
    start = outputs.start * axis.stride - axis.low + elements.start * axis.dilation
    return outputs, slice(elements.start, elements.stop), slice(start, start + own.size), own


def _taken(axis: Axis, lanes: int) -> int:
    """Return an estimate of the time that outputs along an axis take, in multiplications."""
    return (-(-axis.out // lanes) * lanes + REGION_OUTPUTS) * axis.kernel


# ---- arguments


def each(value: Any, rank: int, function: str, argument: str, *, least: int) -> tuple[int, ...]:
    """Return a number, or one per spatial axis, as one number per spatial axis; raises ValueError, TypeError."""
    values = tuple(value) if isinstance(value, (tuple, list)) else (value,) * rank
    if len(values) != rank:
        raise ValueError(expected(function, argument, f"be a number or {rank} of them", value))
    numbers = tuple(as_index(one, function, argument) for one in values)
    if any(one < least for one in numbers):
        raise ValueError(expected(function, argument, f"be at least {least}", value))
    return numbers


def as_pairs(value: Any, rank: int, function: str, argument: str = "padding") -> Pairs:
    """Return padding before and after each axis, given a number, one per axis, or a pair per axis."""
    if not isinstance(value, (tuple, list)):
        value = (value,) * rank
    if len(value) != rank:
        raise ValueError(expected(function, argument, f"be a number, {rank} numbers or {rank} pairs", value))
    return tuple(_pair(one, function, argument) for one in value)


def _pair(value: Any, function: str, argument: str) -> tuple[int, int]:
    pair = tuple(value) if isinstance(value, (tuple, list)) else (value, value)
    if len(pair) != 2:
        raise ValueError(expected(function, argument, "hold numbers or pairs (before, after)", value))
    return as_index(pair[0], function, argument), as_index(pair[1], function, argument)


def padding_of(padding: Any, sizes: Shape, spans: Sequence[int], strides: Sequence[int], function: str) -> Pairs:
    """Return the padding before and after each axis, which is given as a number, numbers, pairs or a word."""
    if not isinstance(padding, str):
        return as_pairs(padding, len(sizes), function)
    if padding not in PADDINGS:
        must = f"{one_of(PADDINGS)}, a number, numbers or pairs"
        raise ValueError(expected(function, "padding", must, repr(padding)))
    if padding == "valid":
        return ((0, 0),) * len(sizes)
    if padding == "full":
        return tuple((span - 1, span - 1) for span in spans)
    totals = [max((-(-n // s) - 1) * s + span - n, 0) for n, span, s in zip(sizes, spans, strides, strict=True)]
    return halves(totals, padding)


def halves(totals: Sequence[int], word: str) -> Pairs:
    """Return the padding along each axis divided as "same" does, with the larger part after; "same_lower": before."""
    pairs = tuple((total // 2, total - total // 2) for total in totals)
    return pairs if word == "same" else tuple((high, low) for low, high in pairs)


def axes_of(
    function: str, shape: Shape, sizes: Shape, kernel: Shape, stride: Any, padding: Any, dilation: Any
) -> tuple[Axes, Pairs]:
    """Return the spatial axes of windows over an input, and its padding; shape: the whole shape, for error messages."""
    rank = len(sizes)
    strides = each(stride, rank, function, "stride", least=1)
    dilations = each(dilation, rank, function, "dilation", least=1)
    spans = [d * (k - 1) + 1 for k, d in zip(kernel, dilations, strict=True)]
    pairs = padding_of(padding, sizes, spans, strides, function)
    padded = tuple(n + low + high for n, (low, high) in zip(sizes, pairs, strict=True))
    if any(span > n for span, n in zip(spans, padded, strict=True)):
        must = f"fit into the padded input {padded} of shape {shape}"
        raise ValueError(expected(function, "kernel", must, f"windows of {tuple(spans)}"))
    axes = tuple(
        Axis(n, (whole - span) // s + 1, k, s, d, low)
        for n, whole, span, k, s, d, (low, _) in zip(
            sizes, padded, spans, kernel, strides, dilations, pairs, strict=True
        )
    )
    return axes, pairs


_PLAIN = frozenset((int, str, type(None)))


def is_plain(kind: tuple[Any, ...]) -> bool:
    """Return whether equal arguments mean the same; booleans and floats do not: they equal integers, but are errors."""
    odd = [one for one in kind if type(one) not in _PLAIN]
    return not odd or all(type(one) is tuple and _PLAIN.issuperset(map(type, one)) for one in odd)


def channels_last(layout: Any, rank: int, function: str) -> tuple[bool, bool]:
    """Return whether channels are the last axis of the input and of the output, for a layout's name or a pair."""
    names = (layout, layout) if layout is None or isinstance(layout, str) else tuple(layout)
    known = (FIRST[rank - 1], LAST[rank - 1])
    if len(names) != 2 or any(name is not None and name not in known for name in names):
        raise ValueError(expected(function, "layout", f"{one_of(known)}, or a pair of them", repr(layout)))
    return names[0] == known[1], names[1] == known[1]


def spatial(shape: Shape, last: bool) -> Shape:
    """Return the spatial part of a shape."""
    return shape[1:-1] if last else shape[2:]


def batched(n: int, channels: int, sizes: Shape, last: bool) -> Shape:
    """Return the shape of a batch of channels over spatial sizes."""
    return (n, *sizes, channels) if last else (n, channels, *sizes)


def lies_last(shape: Shape, strides: Shape) -> bool:
    """Return whether the channels of (batch, channels, *lengths) are adjacent in memory."""
    steps = [abs(step) for n, step in zip(shape[2:], strides[2:], strict=True) if n > 1]
    return bool(steps) and shape[1] > 1 and 0 < abs(strides[1]) < min(steps)


def follows(shape: Shape, strides: Shape, last: bool, result_last: bool) -> bool:
    """Return whether the channels of a result are adjacent in memory although they are its second axis: they are if its
    operand also has them as second axis, adjacent in memory (PyTorch's rule).

    shape, strides: of the operand. last, result_last: whether channels are the last axis of the operand, of the result.
    """
    return not (last or result_last) and lies_last(shape, strides)


def result_strides(shape: Shape, itemsize: int, nearest: bool) -> Shape:
    """Return the strides of a packed result. nearest: whether channels are adjacent, as `follows` says."""
    if not nearest:
        return c_strides(shape, itemsize)
    first, *between, last = c_strides((shape[0], *shape[2:], shape[1]), itemsize)
    return (first, last, *between)


def outs(axes: Axes) -> Shape:
    """Return the output lengths."""
    return tuple(axis.out for axis in axes)


def sizes(axes: Axes) -> Shape:
    """Return the input lengths."""
    return tuple(axis.size for axis in axes)


def kernels(axes: Axes) -> Shape:
    """Return the window's lengths."""
    return tuple(axis.kernel for axis in axes)


def volume(axes: Axes) -> int:
    """Return the number of elements of a window."""
    return prod(axis.kernel for axis in axes)
