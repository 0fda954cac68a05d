"""Products with a matrix of few columns: sums along rows of A, in registers of consecutive terms.

A register of columns would be only partly filled. Here all lanes of a register are terms of one sum; the sums of some
rows and some columns are computed at a time, so that there are fewer loads than multiplications. More columns go over
the same rows again, which are in the nearest cache. In the end registers of sums are added across, all at once.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache

from .compile import Code, handmade, the_host
from .forms import Form, declared, first_lanes, itemsize, loads

# The words of the kernel. b: registers of terms of each column in turn, zeros behind the last term. c: in C order.
POINTERS = ("a", "b", "c")
NUMBERS = ("rows", "depth", "a.step")

# Sums at a time with 16 registers and with 32, the most columns of them, and the most rows.
SUMS, COLUMNS, ROWS = (12, 24), 4, 8


def thin_form(char: str, columns: int) -> Form:
    """Return the form for so many columns on this machine; its height is the rows whose sums are computed at a time."""
    machine = the_host()
    lanes = machine.vector_bytes // itemsize(char)
    return Form(char, lanes, min(SUMS[machine.vector_bytes == 64] // _together(columns), ROWS), columns)


def _together(columns: int) -> int:
    """Return for how many columns sums are computed at a time, about as many each time."""
    return -(-columns // -(-columns // COLUMNS))


@cache
def thin_kernel(form: Form) -> Code:
    """Return the machine code; there must be at least as many rows as are computed at a time."""
    return handmade("\n".join(_source(form)))


def _source(form: Form) -> Iterator[str]:
    kind, lanes, columns = form.kind, form.lanes, form.registers
    cells = [(r, j) for r in range(form.height) for j in range(columns)]
    yield from sorted(declared(form))
    yield "define void @kernel(ptr %table) {\nentry:"
    yield from loads(POINTERS, NUMBERS)
    yield f"  %rest = urem i64 %depth, {lanes}\n  %whole = sub i64 %depth, %rest\n  %is.whole = icmp eq i64 %rest, 0"
    yield f"  %a.next = mul i64 %a.step, {form.height}"
    yield from first_lanes(form, "mask", "%rest")
    yield f"  %last = sub i64 %rows, {form.height}\n  br label %some\nsome:\n  %i = phi i64 [0, %entry], [%i.n, %next]"
    for r in range(form.height):
        yield f"  %i{r} = add i64 %i, {r}\n  %at{r} = mul i64 %i{r}, %a.step"
        yield f"  %a{r} = getelementptr {kind}, ptr %a, i64 %at{r}"
        yield f"  %next{r} = getelementptr {kind}, ptr %a{r}, i64 %a.next"
    yield "  %any = icmp sgt i64 %whole, 0"
    together, before = _together(columns), "some"
    for first in range(0, columns, together):
        yield from _sums(form, range(first, min(first + together, columns)), before, str(first))
        before = f"store{first}"
    yield f"  %c.i = mul i64 %i, {columns}\n  %c.at = getelementptr {kind}, ptr %c, i64 %c.i"
    names = [f"%all{r}.{j}" for r, j in cells]
    for first in range(0, len(names), lanes):
        yield from _added_across(form, names[first : first + lanes], first)
    yield "  br label %next\nnext:"
    yield f"  %i.far = add i64 %i, {form.height}\n  %i.n = call i64 @llvm.smin.i64(i64 %i.far, i64 %last)"
    yield "  %done.rows = icmp eq i64 %i, %last\n  br i1 %done.rows, label %done, label %some\ndone:\n  ret void\n}"


def _sums(form: Form, columns: range, before: str, own: str) -> Iterator[str]:
    """Yield the lines that compute sums of some columns, %all..., after a block; own: the suffix of block names."""
    vector, cells = f"<{form.lanes} x {form.kind}>", [(r, j) for r in range(form.height) for j in columns]
    yield f"  br i1 %any, label %term{own}, label %end{own}\nterm{own}:"
    yield f"  %k{own} = phi i64 [0, %{before}], [%k{own}.n, %term{own}]"
    for r, j in cells:
        yield f"  %sum{r}.{j} = phi {vector} [zeroinitializer, %{before}], [%full{own}.{r}.{j}, %term{own}]"
    yield from _terms(form, columns, f"full{own}", f"%k{own}", "sum")
    yield f"  %k{own}.n = add i64 %k{own}, {form.lanes}\n  %more{own} = icmp slt i64 %k{own}.n, %whole"
    yield f"  br i1 %more{own}, label %term{own}, label %end{own}\nend{own}:"
    for r, j in cells:
        yield f"  %end{r}.{j} = phi {vector} [zeroinitializer, %{before}], [%full{own}.{r}.{j}, %term{own}]"
    yield f"  br i1 %is.whole, label %store{own}, label %part{own}\npart{own}:"
    yield from _terms(form, columns, f"part{own}", "%whole", "end", "%mask")
    yield f"  br label %store{own}\nstore{own}:"
    for r, j in cells:
        yield f"  %all{r}.{j} = phi {vector} [%end{r}.{j}, %end{own}], [%part{own}.{r}.{j}, %part{own}]"


def _terms(form: Form, columns: range, made: str, k: str, sums: str, mask: str = "") -> Iterator[str]:
    """Yield the lines that add a register of terms to sums of all rows and some columns."""
    kind, vector, suffix = form.kind, f"<{form.lanes} x {form.kind}>", f"v{form.lanes}f{8 * form.itemsize}"
    yield f"  %b.{made} = mul i64 {k}, {form.registers}"
    for r in range(form.height):
        yield f"  %x.{made}.{r}.at = getelementptr {kind}, ptr %a{r}, i64 {k}"
        if not columns.start and not mask:  # rows may be pages of memory; processors do not prefetch beyond a page
            yield f"  %ahead{r} = getelementptr {kind}, ptr %next{r}, i64 {k}"
            yield f"  call void @llvm.prefetch.p0(ptr %ahead{r}, i32 0, i32 3, i32 1)"
        if mask:
            given = f"ptr align {form.itemsize} %x.{made}.{r}.at, <{form.lanes} x i1> {mask}, {vector} zeroinitializer"
            yield f"  %x.{made}.{r} = call {vector} @llvm.masked.load.{suffix}.p0({given})"
        else:
            yield f"  %x.{made}.{r} = load {vector}, ptr %x.{made}.{r}.at, align {form.itemsize}"
    for j in columns:
        yield f"  %b.{made}.{j} = add i64 %b.{made}, {j * form.lanes}"
        yield f"  %y.{made}.{j}.at = getelementptr {kind}, ptr %b, i64 %b.{made}.{j}"
        yield f"  %y.{made}.{j} = load {vector}, ptr %y.{made}.{j}.at, align {form.itemsize}"
        for r in range(form.height):
            given = f"{vector} %x.{made}.{r}, {vector} %y.{made}.{j}, {vector} %{sums}{r}.{j}"
            yield f"  %{made}.{r}.{j} = call {vector} @llvm.fma.{suffix}({given})"


def _added_across(form: Form, names: list[str], first: int) -> Iterator[str]:
    """Yield the lines that store the sums over the lanes of registers, from element `first` of the rows at %c.at.

    Two registers are combined to one: each part of lanes becomes half as long, by adding its two halves, until it is a
    single lane. The registers that are paired are so far apart that the sums come out in order.
    """
    lanes, vector, count = form.lanes, f"<{form.lanes} x {form.kind}>", len(names)
    names, part = names + ["zeroinitializer"] * (lanes - count), lanes
    while part > 1:
        half, made = len(names) // 2, []
        for n in range(half):
            pair, name = f"{vector} {names[n]}, {vector} {names[n + half]}", f"%across{first}.{part}.{n}"
            for side in (0, part // 2):
                parts = [start + which * lanes + side for start in range(0, lanes, part) for which in (0, 1)]
                order = ", ".join(f"i32 {one + lane}" for one in parts for lane in range(part // 2))
                yield f"  {name}.{side} = shufflevector {pair}, <{lanes} x i32> <{order}>"
            yield f"  {name} = fadd {vector} {name}.0, {name}.{part // 2}"
            made.append(name)
        names, part = made, part // 2
    there = ", ".join(f"i1 {int(lane < count)}" for lane in range(lanes))
    yield f"  %to{first} = getelementptr {form.kind}, ptr %c.at, i64 {first}"
    given = f"{vector} {names[0]}, ptr align {form.itemsize} %to{first}, <{lanes} x i1> <{there}>"
    yield f"  call void @llvm.masked.store.v{lanes}f{8 * form.itemsize}.p0({given})"
