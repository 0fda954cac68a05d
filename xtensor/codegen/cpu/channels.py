"""Depthwise convolution where channels come last: registers of neighbouring channels, one position after the other.

The gradient of its weights is of the same kind: of neighbouring channels, or of neighbouring columns where these lie
together, products of inputs and outputs are added up row by row.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import lru_cache, partial

from .compile import Code, handmade
from .gemm import Form, _masked_load, _masked_store, declared, first_lanes, loads

# What the kernel is told. taps: offsets of the elements of a window from its first; rows of positions begin at places.
POINTERS = ("x", "w", "y", "bias", "taps", "x.rows", "y.rows")
NUMBERS = ("channels", "row.count", "positions", "x.step", "y.step")


@lru_cache(256)
def channels_kernel(char: str, lanes: int, taps: int) -> Code:
    """Return the code for windows of so many elements. It is given weights (taps, channels)."""
    return handmade("\n".join(_source(char, lanes, taps)))


def _source(char: str, lanes: int, taps: int) -> Iterator[str]:
    form = Form(char, lanes, 1, 1)
    kind, vector = form.kind, f"<{lanes} x {form.kind}>"
    suffix, masked = f"v{lanes}f{8 * form.itemsize}", partial(_masked_load, form, mask="%mask")
    yield from _begun(form, (POINTERS, NUMBERS), taps, "%channels")
    yield f"  %bias.at = getelementptr {kind}, ptr %bias, i64 %c"
    yield masked("%b", "%bias.at")
    for t in range(taps):
        yield f"  %w{t}.row = mul i64 %channels, {t}\n  %w{t}.c = add i64 %w{t}.row, %c"
        yield f"  %w{t}.at = getelementptr {kind}, ptr %w, i64 %w{t}.c"
        yield masked(f"%w{t}", f"%w{t}.at")
    yield "  br label %row\nrow:\n  %r = phi i64 [0, %some], [%r.n, %row.next]"
    for name in "xy":
        yield f"  %{name}.row.at = getelementptr i64, ptr %{name}.rows, i64 %r"
        yield f"  %{name}.row = load i64, ptr %{name}.row.at"
        yield f"  %{name}.c = add i64 %{name}.row, %c\n  %{name}.r = getelementptr {kind}, ptr %{name}, i64 %{name}.c"
    for t in range(taps):
        yield f"  %x{t}.r = getelementptr {kind}, ptr %x.r, i64 %tap{t}"
    yield "  br label %position\nposition:\n  %p = phi i64 [0, %row], [%p.n, %position]"
    yield "  %x.p = phi i64 [0, %row], [%x.n, %position]\n  %y.p = phi i64 [0, %row], [%y.n, %position]"
    for t in range(taps):
        yield f"  %x{t}.at = getelementptr {kind}, ptr %x{t}.r, i64 %x.p"
        yield masked(f"%x{t}", f"%x{t}.at")
        given = f"{vector} %x{t}, {vector} %w{t}, {vector} " + (f"%sum{t - 1}" if t else "%b")
        yield f"  %sum{t} = call {vector} @llvm.fma.{suffix}({given})"
    yield f"  %y.at = getelementptr {kind}, ptr %y.r, i64 %y.p"
    yield _masked_store(form, f"%sum{taps - 1}", "%y.at", "%mask")
    yield "  %x.n = add i64 %x.p, %x.step\n  %y.n = add i64 %y.p, %y.step"
    for name, count, then in (("p", "positions", "row.next"), ("r", "row.count", "some.next")):
        where = {"p": "position", "r": "row"}[name]
        yield f"  %{name}.n = add i64 %{name}, 1\n  %{name}.more = icmp slt i64 %{name}.n, %{count}"
        yield f"  br i1 %{name}.more, label %{where}, label %{then}\n{then}:"
    yield f"  %c.n = add i64 %c, {lanes}\n  %c.more = icmp slt i64 %c.n, %channels"
    yield "  br i1 %c.more, label %some, label %done\ndone:\n  ret void\n}"


# What the gradient of weights is told. neighbours: how many sums there are of each element of the window, in rows of
# `sums` that lie `pitch` apart; they are added to.
SUMMING = (
    ("x", "y", "sums", "taps", "x.rows", "y.rows"),
    ("neighbours", "row.count", "positions", "x.step", "y.step", "pitch"),
)


@lru_cache(256)
def channels_weights_kernel(char: str, lanes: int, taps: int) -> Code:
    """Return the code for the gradient of windows of so many elements."""
    return handmade("\n".join(_summing_source(char, lanes, taps)))


def _begun(form: Form, given: tuple[tuple[str, ...], tuple[str, ...]], taps: int, channels: str) -> Iterator[str]:
    """Yield what both kernels begin with: the offsets of a window, and the loop over registers of channels."""
    yield from sorted(declared(form))
    yield "define void @kernel(ptr %table) {\nentry:"
    yield from loads(*given)
    for t in range(taps):
        yield f"  %tap{t}.at = getelementptr i64, ptr %taps, i64 {t}\n  %tap{t} = load i64, ptr %tap{t}.at"
    yield "  br label %some\nsome:\n  %c = phi i64 [0, %entry], [%c.n, %some.next]"
    yield f"  %left = sub i64 {channels}, %c"
    yield from first_lanes(form, "mask", "%left")


def _summing_source(char: str, lanes: int, taps: int) -> Iterator[str]:
    form = Form(char, lanes, 1, 1)
    kind, vector = form.kind, f"<{lanes} x {form.kind}>"
    suffix, masked = f"v{lanes}f{8 * form.itemsize}", partial(_masked_load, form, mask="%mask")
    yield from _begun(form, SUMMING, taps, "%neighbours")
    for t in range(taps):
        yield f"  %s{t}.row = mul i64 %pitch, {t}\n  %s{t}.c = add i64 %s{t}.row, %c"
        yield f"  %s{t}.at = getelementptr {kind}, ptr %sums, i64 %s{t}.c"
        yield masked(f"%s{t}", f"%s{t}.at")
    yield "  br label %row\nrow:\n  %r = phi i64 [0, %some], [%r.n, %row.next]"
    for t in range(taps):
        yield f"  %total{t} = phi {vector} [%s{t}, %some], [%total{t}.n, %row.next]"
    for name in "xy":
        yield f"  %{name}.row.at = getelementptr i64, ptr %{name}.rows, i64 %r"
        yield f"  %{name}.row = load i64, ptr %{name}.row.at"
        yield f"  %{name}.c = add i64 %{name}.row, %c\n  %{name}.r = getelementptr {kind}, ptr %{name}, i64 %{name}.c"
    yield "  br label %position\nposition:\n  %p = phi i64 [0, %row], [%p.n, %position]"
    yield "  %x.p = phi i64 [0, %row], [%x.n, %position]\n  %y.p = phi i64 [0, %row], [%y.n, %position]"
    for t in range(taps):
        yield f"  %acc{t} = phi {vector} [zeroinitializer, %row], [%sum{t}, %position]"
    yield f"  %y.at = getelementptr {kind}, ptr %y.r, i64 %y.p\n  %x.at = getelementptr {kind}, ptr %x.r, i64 %x.p"
    yield masked("%g", "%y.at")
    for t in range(taps):
        yield f"  %x{t}.at = getelementptr {kind}, ptr %x.at, i64 %tap{t}"
        yield masked(f"%x{t}", f"%x{t}.at")
        yield f"  %sum{t} = call {vector} @llvm.fma.{suffix}({vector} %x{t}, {vector} %g, {vector} %acc{t})"
    yield "  %x.n = add i64 %x.p, %x.step\n  %y.n = add i64 %y.p, %y.step\n  %p.n = add i64 %p, 1"
    yield "  %p.more = icmp slt i64 %p.n, %positions\n  br i1 %p.more, label %position, label %row.next\nrow.next:"
    for t in range(taps):
        yield f"  %total{t}.n = fadd {vector} %total{t}, %sum{t}"
    yield "  %r.n = add i64 %r, 1\n  %r.more = icmp slt i64 %r.n, %row.count"
    yield "  br i1 %r.more, label %row, label %some.next\nsome.next:"
    for t in range(taps):
        yield _masked_store(form, f"%total{t}.n", f"%s{t}.at", "%mask")
    yield f"  %c.n = add i64 %c, {lanes}\n  %c.more = icmp slt i64 %c.n, %neighbours"
    yield "  br i1 %c.more, label %some, label %done\ndone:\n  ret void\n}"
