"""Tiles transposed in registers: an operand that is contiguous along the second innermost axis becomes rows.

Read along the innermost axis, such an operand costs a load for each lane. Here as many vectors are read along its own
axis as a vector has lanes, transposed by shuffles, and stored as rows in scratch memory, from where the innermost loop
reads them like packed operands.
"""

from __future__ import annotations

from typing import NamedTuple

# At most so many columns are transposed at a time.
WIDTH = 256

# How many bytes ahead the operand is prefetched along its own axis.
AHEAD = 512


def width(lanes: int) -> int:
    """Return the elements of a row of scratch: a vector before the first column, and the columns."""
    return lanes + WIDTH


class Tile(NamedTuple):
    """A tile to transpose: an operand's place, the IR type of an element, its bytes, and the lanes of a vector.

    base: the address of the element in the corner of the first tile. columns: how many there are from there on.
    """

    place: int
    element: str
    itemsize: int
    lanes: int
    base: str
    columns: str

    @property
    def vector(self) -> str:
        return f"<{self.lanes} x {self.element}>"

    @property
    def mask(self) -> str:
        return f"<{self.lanes} x i1>"


def begin(row: str, rows: str, lanes: int) -> list[str]:
    """Write what all tiles share: the number of rows that are left, and their mask. Ends inside the block %turn."""
    counting = ", ".join(f"i64 {lane}" for lane in range(lanes))
    steps = f"<{lanes} x i64>"
    return [
        f"%in.tile = and i64 {row}, {lanes - 1}",
        "%begins = icmp eq i64 %in.tile, 0",
        "br i1 %begins, label %turn, label %turned",
        "turn:",
        f"%rows.left = sub i64 {rows}, {row}",
        f"%rows.fit = icmp uge i64 %rows.left, {lanes}",
        f"%rows.one = insertelement {steps} poison, i64 %rows.left, i32 0",
        f"%rows.all = shufflevector {steps} %rows.one, {steps} poison, <{lanes} x i32> zeroinitializer",
        f"%rows.mask = icmp ugt {steps} %rows.all, <{counting}>",
    ]


def turn(tile: Tile, before: str, after: str) -> list[str]:
    """Write the loop that transposes the tiles of an operand. before, after: the blocks around it.

    It begins at the column %tiles.start: 0, or a vector before if rows go on before their start.
    """
    name, lanes = f"turn{tile.place}", tile.lanes
    lines = [
        f"br label %{name}",
        f"{name}:",
        f"%{name}.j = phi i64 [%tiles.start, %{before}], [%{name}.next, %{name}.end]",
        f"%{name}.next = add i64 %{name}.j, {lanes}",
        f"%{name}.fit = icmp sle i64 %{name}.next, {tile.columns}",
        f"%{name}.whole = and i1 %{name}.fit, %rows.fit",
        f"%{name}.offset = mul i64 %{name}.j, %s{tile.place}",
        f"%{name}.at0 = getelementptr i8, ptr {tile.base}, i64 %{name}.offset",
    ]
    for k in range(1, lanes):
        lines.append(f"%{name}.at{k} = getelementptr i8, ptr %{name}.at{k - 1}, i64 %s{tile.place}")
    lines += [f"br i1 %{name}.whole, label %{name}.load, label %{name}.part", f"{name}.load:"]
    for k in range(lanes):
        lines += [
            f"%{name}.ahead{k} = getelementptr i8, ptr %{name}.at{k}, i64 {AHEAD}",
            f"call void @llvm.prefetch.p0(ptr %{name}.ahead{k}, i32 0, i32 3, i32 1)",
            f"%{name}.w{k} = load {tile.vector}, ptr %{name}.at{k}, align 1",
        ]
    lines += [f"br label %{name}.shuffle", f"{name}.part:", *_part(tile, name), f"br label %{name}.shuffle"]
    lines += [f"{name}.shuffle:"]
    for k in range(lanes):
        lines.append(f"%{name}.0.{k} = phi {tile.vector} [%{name}.w{k}, %{name}.load], [%{name}.p{k}, %{name}.part]")
    lines += _shuffles(tile, name)
    lines += [
        f"br label %{name}.end",
        f"{name}.end:",
        f"%{name}.more = icmp slt i64 %{name}.next, {tile.columns}",
        f"br i1 %{name}.more, label %{name}, label %{after}",
        f"{after}:",
    ]
    return lines


def _part(tile: Tile, name: str) -> list[str]:
    """Write the loads of a tile at an edge, under masks: only existing elements are read."""
    lines = []
    for k in range(tile.lanes):
        lines += [
            f"%{name}.j{k} = add i64 %{name}.j, {k}",
            f"%{name}.in{k} = icmp slt i64 %{name}.j{k}, {tile.columns}",
            f"%{name}.m{k} = select i1 %{name}.in{k}, {tile.mask} %rows.mask, {tile.mask} zeroinitializer",
            f"%{name}.p{k} = call {tile.vector} {masked_load(tile)}"
            f"(ptr align 1 %{name}.at{k}, {tile.mask} %{name}.m{k}, {tile.vector} zeroinitializer)",
        ]
    return lines


def masked_load(tile: Tile) -> str:
    """Return the name of the intrinsic that loads under a mask."""
    kind = {"float": "f32", "double": "f64"}.get(tile.element, tile.element)
    return f"@llvm.masked.load.v{tile.lanes}{kind}.p0"


def declarations(tile: Tile) -> list[str]:
    """Return the declarations of the intrinsics that turn() calls."""
    return [
        f"declare {tile.vector} {masked_load(tile)}(ptr, {tile.mask}, {tile.vector})",
        "declare void @llvm.prefetch.p0(ptr, i32, i32, i32)",
    ]


def _shuffles(tile: Tile, name: str) -> list[str]:
    """Write the transposition: each pass interleaves the elements of vectors k and k + half into 2 k and 2 k + 1."""
    lanes, half = tile.lanes, tile.lanes // 2
    halves = [
        ", ".join(f"i32 {at}" for lane in range(half) for at in (first + lane, first + lane + lanes))
        for first in (0, half)
    ]
    lines = []
    passes = lanes.bit_length() - 1
    for number in range(passes):
        for k in range(half):
            pair = f"{tile.vector} %{name}.{number}.{k}, {tile.vector} %{name}.{number}.{k + half}"
            for side in (0, 1):
                lines.append(
                    f"%{name}.{number + 1}.{2 * k + side} = shufflevector {pair}, <{lanes} x i32> <{halves[side]}>"
                )
    for k in range(lanes):
        lines += [
            f"%{name}.k{k} = add i64 %{name}.j, {k * width(lanes) + lanes}",
            f"%{name}.to{k} = getelementptr {tile.element}, ptr %tile{tile.place}, i64 %{name}.k{k}",
            f"store {tile.vector} %{name}.{passes}.{k}, ptr %{name}.to{k}, align {lanes * tile.itemsize}",
        ]
    return lines
