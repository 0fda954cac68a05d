"""The machine code that takes strips of columns through all passes of a column program (see columns.py).

It knows nothing of what kernels compute: a table tells it which of them run when, over what.
"""

from __future__ import annotations

# When an item of the table runs: before the rows of a strip, over each block of rows, after each piece of rows but the
# last, after all rows.
BEFORE, BLOCK, PIECE, AFTER = range(4)

# What the driver is given: addresses of a table and of scratch memory, those of values, then scalars. The table:
# strips, steps (strips and what passes lag behind), blocks of rows, blocks of a piece, columns of a strip and of the
# last one; for each time that items run, their address and number; address, number and place in scratch memory of the
# slots that all items begin with. An item: its kernel, the place of its slots in scratch memory, by how many strips it
# lags behind, its rows in a block and in the last one, whether it is told that rows go on, its moves, their number, and
# how many of them go on from block to block: the first ones, at least one. A move: a slot, a word of what the driver is
# given, what is added to it, more of it for each strip, and more for each block.
HEAD, ITEM, MOVE = 17, 9, 5
_LOADS = "\n".join(
    f"  %{name}.at = getelementptr i64, ptr %item, i64 {place}\n  %{name} = load {kind}, ptr %{name}.at"
    for place, (name, kind) in enumerate(
        [("code", "ptr"), ("place", "i64"), ("lag", "i64"), ("rows.all", "i64"), ("rows.last", "i64")]
        + [("streams", "i64"), ("moves", "ptr"), ("count", "i64"), ("moving", "i64")]
    )
)
_MOVE = "\n".join(
    f"  %{name}.at = getelementptr i64, ptr %move, i64 {place}\n  %{name} = load i64, ptr %{name}.at"
    for place, name in enumerate(("slot", "given", "offset", "by.strip", "by.block"))
)
_HEAD = "\n".join(
    f"  %{name}.at = getelementptr i64, ptr %table, i64 {place}\n  %{name} = load {kind}, ptr %{name}.at"
    for place, name, kind in [(1, "steps", "i64"), (2, "blocks", "i64"), (3, "piece", "i64")]
    + [(14, "first", "ptr"), (15, "words", "i64"), (16, "begin", "i64")]
)
DRIVER = f"""
define internal void @items(ptr %args, ptr %table, ptr %scratch, i64 %which, i64 %step, i64 %block, i1 %last) {{
entry:
  %strips = load i64, ptr %table
  %width.at = getelementptr i64, ptr %table, i64 4
  %width.all = load i64, ptr %width.at
  %end.at = getelementptr i64, ptr %table, i64 5
  %width.end = load i64, ptr %end.at
  %twice = mul i64 %which, 2
  %list.at = getelementptr i64, ptr %width.at, i64 %twice
  %items.at = getelementptr i64, ptr %list.at, i64 2
  %number.at = getelementptr i64, ptr %list.at, i64 3
  %items = load ptr, ptr %items.at
  %number = load i64, ptr %number.at
  br label %next
next:
  %i = phi i64 [0, %entry], [%i.next, %done]
  %item = phi ptr [%items, %entry], [%item.next, %done]
  %more = icmp ult i64 %i, %number
  br i1 %more, label %look, label %end
look:
{_LOADS}
  %strip = sub i64 %step, %lag
  %inside = icmp ult i64 %strip, %strips
  %rows = select i1 %last, i64 %rows.last, i64 %rows.all
  %any = icmp ne i64 %rows, 0
  %runs = and i1 %inside, %any
  br i1 %runs, label %fill, label %done
fill:
  %slots = getelementptr i8, ptr %scratch, i64 %place
  store i64 %rows, ptr %slots
  %later = icmp ne i64 %block, 0
  br i1 %later, label %on, label %begin
on:
  %o = phi i64 [0, %fill], [%o.next, %on]
  %moved = phi ptr [%moves, %fill], [%moved.next, %on]
  %moved.slot = load i64, ptr %moved
  %moved.by.at = getelementptr i64, ptr %moved, i64 4
  %moved.by = load i64, ptr %moved.by.at
  %moved.into = getelementptr i64, ptr %slots, i64 %moved.slot
  %old = load i64, ptr %moved.into
  %new = add i64 %old, %moved.by
  store i64 %new, ptr %moved.into
  %o.next = add i64 %o, 1
  %moved.next = getelementptr i64, ptr %moved, i64 5
  %o.more = icmp ult i64 %o.next, %moving
  br i1 %o.more, label %on, label %call
begin:
  %after = add i64 %strip, 1
  %goes.on = icmp ult i64 %after, %strips
  %width = select i1 %goes.on, i64 %width.all, i64 %width.end
  %columns.at = getelementptr i64, ptr %slots, i64 1
  store i64 %width, ptr %columns.at
  %told = icmp ne i64 %streams, 0
  br i1 %told, label %tell, label %move.first
tell:
  %began = icmp ne i64 %strip, 0
  %early = sext i1 %began to i64
  %late = sext i1 %goes.on to i64
  %early.at = getelementptr i64, ptr %slots, i64 2
  %late.at = getelementptr i64, ptr %slots, i64 3
  store i64 %early, ptr %early.at
  store i64 %late, ptr %late.at
  br label %move.first
move.first:
  br label %move.one
move.one:
  %m = phi i64 [0, %move.first], [%m.next, %move.one]
  %move = phi ptr [%moves, %move.first], [%move.next, %move.one]
{_MOVE}
  %base.at = getelementptr i64, ptr %args, i64 %given
  %base = load i64, ptr %base.at
  %across = mul i64 %by.strip, %strip
  %sum = add i64 %base, %offset
  %word = add i64 %sum, %across
  %into = getelementptr i64, ptr %slots, i64 %slot
  store i64 %word, ptr %into
  %m.next = add i64 %m, 1
  %move.next = getelementptr i64, ptr %move, i64 {MOVE}
  %m.more = icmp ult i64 %m.next, %count
  br i1 %m.more, label %move.one, label %call
call:
  call void %code(ptr %slots)
  br label %done
done:
  %i.next = add i64 %i, 1
  %item.next = getelementptr i64, ptr %item, i64 {ITEM}
  br label %next
end:
  ret void
}}
define void @kernel(ptr %args) {{
entry:
  %table = load ptr, ptr %args
  %scratch.at = getelementptr i64, ptr %args, i64 1
  %scratch = load ptr, ptr %scratch.at
{_HEAD}
  %slots = getelementptr i8, ptr %scratch, i64 %begin
  br label %copy
copy:
  %w = phi i64 [0, %entry], [%w.next, %copy]
  %from = getelementptr i64, ptr %first, i64 %w
  %to = getelementptr i64, ptr %slots, i64 %w
  %word = load i64, ptr %from
  store i64 %word, ptr %to
  %w.next = add i64 %w, 1
  %w.more = icmp ult i64 %w.next, %words
  br i1 %w.more, label %copy, label %step
step:
  %t = phi i64 [0, %copy], [%t.next, %step.end]
  %t.next = add i64 %t, 1
  call void @items(ptr %args, ptr %table, ptr %scratch, i64 {BEFORE}, i64 %t, i64 0, i1 0)
  br label %block
block:
  %b = phi i64 [0, %step], [%b.next, %block.end]
  %b.next = add i64 %b, 1
  %last = icmp eq i64 %b.next, %blocks
  call void @items(ptr %args, ptr %table, ptr %scratch, i64 {BLOCK}, i64 %t, i64 %b, i1 %last)
  br i1 %last, label %step.end, label %within
within:
  %rest = urem i64 %b.next, %piece
  %ends = icmp eq i64 %rest, 0
  br i1 %ends, label %piece.end, label %block.end
piece.end:
  call void @items(ptr %args, ptr %table, ptr %scratch, i64 {PIECE}, i64 %t, i64 0, i1 0)
  br label %block.end
block.end:
  br label %block
step.end:
  call void @items(ptr %args, ptr %table, ptr %scratch, i64 {AFTER}, i64 %t, i64 0, i1 0)
  %t.more = icmp ult i64 %t.next, %steps
  br i1 %t.more, label %step, label %end
end:
  fence seq_cst
  ret void
}}
"""

# The words that the driver is given.
TABLE, SCRATCH, VALUES = 0, 1, 2
