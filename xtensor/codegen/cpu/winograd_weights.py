"""The transforms of weights for Winograd's convolution (see winograd.py), there and back from their gradient."""

from __future__ import annotations

from collections.abc import Iterator
from functools import lru_cache
from itertools import chain

from .compile import Code, handmade
from .forms import Form, loads, suffix_of, vector_of
from .winograd import Scheme, _at, _cells, _grid, _loop, _mapped, _said, _seen, _turn, matrices

# The words of the transforms of weights, which go over registers of outputs. taps: offsets of the elements of a window,
# which are contiguous from w on, in any order. next: elements of u, as in winograd.py; pitch: from channel to channel
# of it; lanes, lane.next: of sums to be added up; flag: as there, of the gradient.
WEIGHTS = (
    ("w", "u", "taps"),
    ("first", "last", "outputs", "channels", "by.output", "by.channel", "u.next", "registers"),
)
BACK = ((*WEIGHTS[0], "flag"), (*WEIGHTS[1], "pitch", "lanes", "lane.next"))

# How many channels ahead sums are prefetched, whose elements lie far apart.
CHANNELS_AHEAD = 16


@lru_cache(256)
def weights_kernel(form: Form, scheme: Scheme) -> Code:
    """Return the code that transforms weights into panels of the product: (elements, panels, channels, width)."""
    return handmade("\n".join(_weights(form, scheme)))


@lru_cache(256)
def weights_back_kernel(form: Form, scheme: Scheme) -> Code:
    """Return the code that adds up sums (lanes, elements, channels, outputs), and transforms them to a gradient."""
    return handmade("\n".join(_weights_back(form, scheme)))


def _weights(form: Form, scheme: Scheme) -> Iterator[str]:
    """Yield the transform of weights: registers of outputs, made from a transposed square of rows of windows."""
    lanes, vector, mask = form.lanes, vector_of(form), f"<{form.lanes} x i1>"
    yield f"declare {vector} @llvm.masked.load.{suffix_of(form)}.p0(ptr, {mask}, {vector})"
    yield f"declare void @llvm.masked.store.{suffix_of(form)}.p0({vector}, ptr, {mask})"
    yield f"declare {vector} @llvm.fma.{suffix_of(form)}({vector}, {vector}, {vector})"
    yield "declare void @llvm.prefetch.p0(ptr, i32, i32, i32)"
    yield from _turn(form)
    yield "define void @kernel(ptr %table) {\nentry:"
    yield from loads(*WEIGHTS)
    yield f"  %square = alloca [9 x {vector}], align 64\n  store [9 x {vector}] zeroinitializer, ptr %square"
    for t in range(9):
        yield f"  %tap{t}.p = getelementptr i64, ptr %taps, i64 {t}\n  %tap{t} = load i64, ptr %tap{t}.p"
        yield f"  %tap{t}.at = getelementptr {vector}, ptr %square, i64 %tap{t}"
    yield "  %count = sub i64 %last, %first"
    channel = [
        "  %c.at = mul i64 %c, %by.channel\n  %c.to = mul i64 %c, %panel.width",
        *(_at(form, "%w.c", "%w.o", "%c.at"), _at(form, "%u0", "%u.o", "%c.to")),
        f"  call void @turn(ptr %w.c, i64 %by.output, ptr %square, i64 {lanes}, i64 %left, i64 9)",
        *(f"  %g{t} = load {vector}, ptr %tap{t}.at" for t in range(9)),
    ]
    lines, found = _mapped(
        form, matrices[scheme].weights, [[f"%g{3 * i + j}" for j in range(3)] for i in range(3)], "u"
    )
    channel += lines
    for number, name in enumerate(chain.from_iterable(found)):
        channel += [
            f"  store {vector} {name}, ptr %u{number}, align {form.itemsize}",
            _at(form, f"%u{number + 1}", f"%u{number}", "%u.next"),
        ]
    register = [
        f"  %v = add i64 %first, %f\n  %o = mul i64 %v, {lanes}\n  %o.at = mul i64 %o, %by.output",
        "  %panel = sdiv i64 %v, %registers\n  %within = srem i64 %v, %registers",
        f"  %panel.width = mul i64 %registers, {lanes}\n  %panel.size = mul i64 %panel.width, %channels",
        f"  %panel.at = mul i64 %panel, %panel.size\n  %within.at = mul i64 %within, {lanes}",
        "  %o.to = add i64 %panel.at, %within.at\n  %all.left = sub i64 %outputs, %o",
        f"  %left = call i64 @llvm.smin.i64(i64 %all.left, i64 {lanes})",
        *(_at(form, "%w.o", "%w", "%o.at"), _at(form, "%u.o", "%u", "%o.to")),
        *_loop("c", "%channels", channel),
    ]
    yield from _loop("f", "%count", register)
    yield "  ret void\n}\ndeclare i64 @llvm.smin.i64(i64, i64)"


def _weights_back(form: Form, scheme: Scheme) -> Iterator[str]:
    """Yield the transform back: registers of outputs, summed over lanes, whose columns become rows of windows. (Windows
    scattered element by element took 1.4 times as long.)
    """
    lanes, vector, side = form.lanes, vector_of(form), scheme.side
    mask = f"<{form.lanes} x i1>"
    yield f"declare {vector} @llvm.masked.load.{suffix_of(form)}.p0(ptr, {mask}, {vector})"
    yield f"declare void @llvm.masked.store.{suffix_of(form)}.p0({vector}, ptr, {mask})"
    yield f"declare {vector} @llvm.fma.{suffix_of(form)}({vector}, {vector}, {vector})"
    yield "declare void @llvm.prefetch.p0(ptr, i32, i32, i32)\ndeclare i64 @llvm.smin.i64(i64, i64)"
    yield from _turn(form)
    yield "define void @kernel(ptr %table) {\nentry:"
    yield from loads(*BACK)
    yield f"  %square = alloca [9 x {vector}], align 64"
    for t in range(9):
        yield f"  %tap{t}.p = getelementptr i64, ptr %taps, i64 {t}\n  %tap{t} = load i64, ptr %tap{t}.p"
        yield f"  %tap{t}.at = getelementptr {vector}, ptr %square, i64 %tap{t}"
    yield f"  %sums = alloca [{side**2} x {vector}], align 64\n  %count = sub i64 %last, %first"
    yield f"  %finite = alloca {vector}, align 64\n  store {vector} zeroinitializer, ptr %finite"
    yield f"  %later = mul i64 %pitch, {CHANNELS_AHEAD}"
    element = [
        "  %e.at = mul i64 %e, %u.next\n  %l.at = mul i64 %l, %lane.next",
        *(_at(form, "%u.e", "%u.c", "%e.at"), _at(form, "%u.l", "%u.e", "%l.at")),
        f"  %sum.at = getelementptr {vector}, ptr %sums, i64 %e",
        f"  %more = load {vector}, ptr %u.l, align {form.itemsize}",
        f"  %old = load {vector}, ptr %sum.at\n  %is.first = icmp eq i64 %l, 0",
        f"  %before = select i1 %is.first, {vector} zeroinitializer, {vector} %old",
        f"  %sum = fadd {vector} %before, %more\n  store {vector} %sum, ptr %sum.at",
        _at(form, "%u.later", "%u.l", "%later"),
        "  call void @llvm.prefetch.p0(ptr %u.later, i32 0, i32 3, i32 1)",
    ]
    channel = [
        "  %c.at = mul i64 %c, %by.channel\n  %c.to = mul i64 %c, %pitch",
        *(_at(form, "%w.c", "%w.o", "%c.at"), _at(form, "%u.c", "%u.o", "%c.to")),
        *_loop("l", "%lanes", _loop("e", side**2, element)),
    ]
    for number, (i, j) in enumerate(_cells(side)):
        channel += [
            f"  %sum{number}.at = getelementptr {vector}, ptr %sums, i64 {number}",
            f"  %d{i}.{j} = load {vector}, ptr %sum{number}.at",
        ]
    turned = tuple(zip(*matrices[scheme].weights, strict=True))
    lines, found = _mapped(form, turned, _grid("d", side), "g")
    channel += [*lines, *_seen(form, chain.from_iterable(found))]
    channel += [f"  store {vector} {name}, ptr %tap{t}.at" for t, name in enumerate(chain.from_iterable(found))]
    channel += [f"  call void @turn(ptr %square, i64 {lanes}, ptr %w.c, i64 %by.output, i64 9, i64 %left)"]
    register = [
        f"  %v = add i64 %first, %f\n  %o = mul i64 %v, {lanes}\n  %o.at = mul i64 %o, %by.output",
        f"  %all.left = sub i64 %outputs, %o\n  %left = call i64 @llvm.smin.i64(i64 %all.left, i64 {lanes})",
        *(_at(form, "%w.o", "%w", "%o.at"), _at(form, "%u.o", "%u", "%o")),
        *_loop("c", "%channels", channel),
    ]
    yield from _loop("f", "%count", register)
    yield from _said(form)
