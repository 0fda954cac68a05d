"""The packing of a matrix whose columns are contiguous into the panels of the contraction kernel (gemm.py)."""

from __future__ import annotations

from functools import cache

from ...plan.costs import ROWS_AHEAD
from .compile import Code, handmade
from .forms import Form, first_lanes, loads, masked_load, suffix_of, vector_of

# The words of the packing of panels of B, whose columns are contiguous. tos: the offset of each term in the panel.
# wide: columns of a panel; missing ones become zeros. next: elements from panel to panel.
TURNING = (("b.0", "tos", "to.0"), ("columns", "depth", "b.step", "wide", "next"))


def turning_of(form: Form) -> Code:
    """Return the machine code that packs panels of a turned B: registers of several columns are transposed."""
    return _turning_of(form._replace(height=1, registers=1))


@cache
def _turning_of(form: Form) -> Code:
    return handmade(_turning_source(form))


def _turning_source(form: Form) -> str:
    """Return the IR of the packing of turned panels."""
    vector, suffix, mask = vector_of(form), suffix_of(form), f"<{form.lanes} x i1>"
    lanes, kind = form.lanes, form.kind
    names, shuffles = transposed(form, [f"%x{t}" for t in range(lanes)])
    lines = [
        f"declare {vector} @llvm.masked.load.{suffix}.p0(ptr, {mask}, {vector})",
        "declare void @llvm.prefetch.p0(ptr, i32, i32, i32)",
        "define void @kernel(ptr %table) {\nentry:",
        *loads(*TURNING),
        f"  %tile = alloca [{lanes * lanes} x {kind}], align 64\n  %b.next = mul i64 %wide, %b.step\n  br label %panel",
        "panel:\n  %column.count = phi i64 [%columns, %entry], [%columns.left, %panel.next]",
        *(f"  %{x} = phi ptr [%{x}.0, %entry], [%{x}.n, %panel.next]" for x in ("b", "to")),
        "  br label %register\nregister:\n  %j = phi i64 [0, %panel], [%j.n, %register.next]",
        f"  %out = getelementptr {kind}, ptr %to, i64 %j\n  br label %terms",
        "terms:\n  %k = phi i64 [0, %register], [%k.n, %terms.next]\n  %left = sub i64 %depth, %k",
        *first_lanes(form, "inside", "%left"),
        f"  %from = getelementptr {kind}, ptr %b, i64 %k",
    ]
    for t in range(lanes):
        lines += [
            f"  %j{t} = add i64 %j, {t}\n  %there{t} = icmp slt i64 %j{t}, %column.count",
            f"  %mask{t} = select i1 %there{t}, {mask} %inside, {mask} zeroinitializer",
            # Columns that are not there are read, under empty masks, at the first one: behind may be no memory.
            f"  %far{t} = mul i64 %j{t}, %b.step\n  %offset{t} = select i1 %there{t}, i64 %far{t}, i64 0",
            f"  %from{t} = getelementptr {kind}, ptr %from, i64 %offset{t}",
            masked_load(form, f"%x{t}", f"%from{t}", f"%mask{t}"),
            f"  %ahead{t} = getelementptr i8, ptr %from{t}, i64 {ROWS_AHEAD}",
            f"  call void @llvm.prefetch.p0(ptr %ahead{t}, i32 0, i32 3, i32 1)",
        ]
    lines += shuffles
    for t, name in enumerate(names):
        lines += [
            f"  %tile{t} = getelementptr {kind}, ptr %tile, i64 {t * lanes}\n  store {vector} {name}, ptr %tile{t}"
        ]
    lines += [
        f"  %count = call i64 @llvm.smin.i64(i64 %left, i64 {lanes})\n  br label %store",
        "store:\n  %t = phi i64 [0, %terms], [%t.n, %store]\n  %t.tile = mul i64 %t, " + str(lanes),
        f"  %t.from = getelementptr {kind}, ptr %tile, i64 %t.tile\n  %t.x = load {vector}, ptr %t.from",
        "  %t.k = add i64 %k, %t\n  %t.to = getelementptr i64, ptr %tos, i64 %t.k\n  %t.offset = load i64, ptr %t.to",
        f"  %t.out = getelementptr {kind}, ptr %out, i64 %t.offset",
        f"  store {vector} %t.x, ptr %t.out, align {form.itemsize}",
        "  %t.n = add i64 %t, 1\n  %t.more = icmp slt i64 %t.n, %count",
        "  br i1 %t.more, label %store, label %terms.next",
        f"terms.next:\n  %k.n = add i64 %k, {lanes}\n  %k.more = icmp slt i64 %k.n, %depth",
        "  br i1 %k.more, label %terms, label %register.next",
        f"register.next:\n  %j.n = add i64 %j, {lanes}\n  %j.more = icmp slt i64 %j.n, %wide",
        "  br i1 %j.more, label %register, label %panel.next\npanel.next:",
        *(f"  %{x}.n = getelementptr {kind}, ptr %{x}, i64 %{step}" for x, step in (("b", "b.next"), ("to", "next"))),
        "  %columns.left = sub i64 %column.count, %wide\n  %more.panels = icmp sgt i64 %columns.left, 0",
        "  br i1 %more.panels, label %panel, label %done\ndone:\n  ret void\n}",
    ]
    return "\n".join(["declare i64 @llvm.smin.i64(i64, i64)", *lines])


def transposed(form: Form, names: list[str], own: str = "turn") -> tuple[list[str], list[str]]:
    """Return the names of the columns of a square of registers, and the lines that make them: as in a fast Fourier
    transform, pairs of registers exchange halves of blocks, which get half as long in each pass. own: prefix of names.
    """
    lanes, lines, half = form.lanes, [], form.lanes // 2
    while half:
        made = list(names)
        for i in (i for i in range(lanes) if not i & half):
            pair = f"{vector_of(form)} {names[i]}, {vector_of(form)} {names[i + half]}"
            low = [lane if not lane & half else lanes + lane - half for lane in range(lanes)]
            high = [lane + half if not lane & half else lanes + lane for lane in range(lanes)]
            for place, which in ((i, low), (i + half, high)):
                made[place] = f"%{own}{half}.{place}"
                order = ", ".join(f"i32 {lane}" for lane in which)
                lines.append(f"  {made[place]} = shufflevector {pair}, <{lanes} x i32> <{order}>")
        names, half = made, half // 2
    return names, lines
