"""Row programs on CUDA: all kernels of a plan as one, in which some threads of a block take a row through all of them.

The cells of a row that several kernels read, or one passes to the next, stay in registers if a row is short enough,
else in shared memory: all of them, or as many as fit. Of the remaining cells, inputs are read again, and passed values
lie in global memory of their own. Every thread reads only cells that it wrote.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping, Sequence
from itertools import islice
from math import prod
from typing import Any, NamedTuple

from ..base.layout import Layout, Shape, c_strides
from ..codegen.cpu.vector import LacksError
from ..codegen.cuda import nvrtc as cuda_build
from ..codegen.cuda.kernel import (
    THREADS,
    VECTOR,
    Fold,
    lanes_of,
    scalar_parameters,
    scalar_values,
    whole_text,
    write_steps,
)
from ..codegen.cuda.library import REACH
from ..codegen.cuda.math import Value, Writer, loaded, memory_type, register_type, stored
from ..devices.cpu import CPU
from ..plan.layouts import Meta, Work
from ..plan.program import Plan
from ..plan.rows import INSIDE, KEPT, RowProgram, Stage, numbers_of, row_program
from .cuda import BLOCKS, Launcher, Launches, launch_of
from .nest import joined

# The most chunks that a thread holds in registers: of one item of a row, and of all items together.
MOST_HELD, MOST_CHUNKS = 8, 32

# Threads for a row that takes more than a quarter of a processor's shared memory: fewer would leave memory idle.
MANY = 1024

# If a row does not fit shared memory, part of it lies there if that is at least one cell in this many.
NEAR = 4


class RowForm(NamedTuple):
    """The facts besides the program on which text depends. lanes: cells a thread takes at a time; wide: whether indices
    have 64 bits; shared: whether items that are read again lie in shared memory. held: the chunks that a thread takes
    if all of them stay in registers, and shift: the logarithm of the number of threads that then share a row; otherwise
    both are 0. turning: the items whose rows repeat, as those of a mask do for all heads. near: whether shared memory
    has only a row's first cells. threads: of a block.
    """

    lanes: int
    wide: bool
    shared: bool
    held: int = 0
    shift: int = 0
    turning: tuple[int, ...] = ()
    near: bool = False
    threads: int = THREADS


class Turn(NamedTuple):
    """Which of an item's rows belongs to a row: the row's number divided by `each`, modulo `period`. stride: the bytes
    from one of the item's rows to the next.
    """

    stride: int
    each: int
    period: int


def slots_of(rows: RowProgram) -> dict[int, tuple[int, int]]:
    """Return, for every item that is read again, its slot in shared memory and its itemsize: dead items free theirs."""
    first: dict[int, int] = {}
    last: dict[int, int] = {}
    for place, stage in enumerate(rows.stages):
        for number in (*stage.inputs, *stage.results):
            first.setdefault(number, place)
            last[number] = place
    found: dict[int, tuple[int, int]] = {}
    free: list[tuple[int, int]] = []
    count = 0
    for place in range(len(rows.stages)):
        free += [found[n] for n in found if last[n] == place]  # a stage reads a cell before it writes one
        for number in [n for n, begin in first.items() if begin == place]:
            size = rows.items[number].dtype.itemsize
            if not rows.items[number].wide or last[number] == place:
                continue
            slot = next((slot for slot in free if slot[1] == size), None)
            if slot is None:
                slot, count = (count, size), count + 1
            else:
                free.remove(slot)
            found[number] = slot
    return found


def _outside(rows: RowProgram, form: RowForm) -> list[int]:
    """Return the items that have an address: those given and kept, and those passed on in memory of their own."""
    items, apart = enumerate(rows.items), form.near or not (form.shared or form.held)
    return [n for n, item in items if item.role != INSIDE or (item.wide and apart)]


def _held(rows: RowProgram, chunks: int) -> tuple[int, int]:
    """Return how many chunks a thread holds of a row that lies in registers, and the logarithm of a row's threads;
    zeros for rows that are too long. Up to 8 threads take one chunk each; more, up to a block, take two to eight.
    """
    fresh, met = 0, set[int]()
    for stage in rows.stages:
        wide = {number for number in stage.inputs if rows.items[number].wide}
        fresh, met = max(fresh, len(wide - met)), met | wide | set(stage.results)
    items = len(set(slots_of(rows).values())) + fresh
    most = min(MOST_CHUNKS // max(items, 1), MOST_HELD)
    for held in (1, 2, 4, 8):
        shift = (-(-chunks // held) - 1).bit_length()
        if held <= most and 1 << shift <= (8 if held == 1 else THREADS):
            return held, shift
    return 0, 0


def source(rows: RowProgram, form: RowForm) -> str:
    """Return the CUDA C++ of a row program; raises LacksError for a step or dtype that generated code lacks."""
    return _Text(rows, form).text()


class _Text:
    """The text of one kernel while it is written."""

    def __init__(self, rows: RowProgram, form: RowForm) -> None:
        self.rows, self.form = rows, form
        self.lines: list[str] = []
        self.before: list[str] = []
        self.again = set(slots_of(rows))
        self.slots = slots_of(rows) if form.shared else {}
        self.shift = str(form.shift) if form.held else "a.shift"
        self.narrow: dict[int, Value] = {}
        self.met: set[int] = set()
        self.folds = 0

    def text(self) -> str:
        outside = _outside(self.rows, self.form)
        parameters = [f"char* p{number};" for number in outside]
        dtypes = [dtype for stage in self.rows.stages for dtype in stage.program.scalars]
        parameters += scalar_parameters(dtypes)
        parameters += ["alignas(8) index rows;", "index cells;", "index shift;", "index bytes;", "index near;"]
        parameters += [f"offset s{number};" for number in outside]
        parameters += [f"index {name}{number};" for number in self.form.turning for name in ("each", "period")]
        self._begin(outside)
        writer = Writer("c")
        scalars = iter(scalar_values(dtypes, writer))
        self._add(*writer.lines)
        for place, stage in enumerate(self.rows.stages):
            self._stage(place, stage, list(islice(scalars, len(stage.program.scalars))))
        return whole_text(parameters, self.form.wide, self.before, self.lines, self.form.threads)

    def _add(self, *lines: str) -> None:
        self.lines += lines

    def _begin(self, outside: Sequence[int]) -> None:
        self._add("const int thread = threadIdx.x;")
        self._add(f"const index step = (index)1 << {self.shift}, lane = thread & (step - 1);")
        row = f"(index)blockIdx.x * ({self.form.threads} >> {self.shift}) + (thread >> {self.shift})"
        if self.form.held:  # threads without a row compute the last one, and store nothing
            self._add(f"const index own = {row}, row = own < a.rows ? own : a.rows - 1;")
            self._add("const bool is = own < a.rows;", "const index cells = a.cells;")
        else:
            self._add(f"const index row = {row};")
            self._add("const bool is = row < a.rows;", "const index cells = is ? a.cells : 0;")
        for number in outside:
            turned = f"(row / a.each{number} % a.period{number})" if number in self.form.turning else "row"
            self._add(f"char* const b{number} = a.p{number} + (offset){turned} * a.s{number};")
        slots = sorted(set(self.slots.values()))
        if slots:
            self._add("extern __shared__ __align__(16) char memory[];")
            self._add("char* own = memory + (thread >> a.shift) * a.bytes;")
        for place, size in slots:
            self._add(f"char* const m{place} = own; own += (a.near * {size} + {VECTOR - 1}) / {VECTOR} * {VECTOR};")

    # ---- stages

    def _stage(self, place: int, stage: Stage, scalars: list[Value]) -> None:
        for number in stage.inputs:
            self._load_narrow(number)
        if stage.wide:
            self._over_cells(stage, scalars)
        else:
            self._once(stage, scalars, Writer(f"u{place}_"))
        self.met.update(stage.inputs, stage.results)

    def _load_narrow(self, number: int) -> None:
        """Load an item with one element per row, at its first use; it stays in a register."""
        item = self.rows.items[number]
        if item.wide or number in self.narrow:
            return
        kind, name = memory_type(item.dtype), f"n{number}"
        value = loaded(f"*({kind}*)b{number}", item.dtype)
        self._add(f"const {register_type(item.dtype)} {name} = is ? {value} : {register_type(item.dtype)}();")
        self.narrow[number] = Value(Writer(), name, item.dtype)

    def _once(self, stage: Stage, scalars: list[Value], writer: Writer) -> None:
        """Write a stage that is computed once per row: every thread does it."""
        inputs = [Value(writer, self.narrow[number].name, self.narrow[number].dtype) for number in stage.inputs]
        values = write_steps(stage.program, [*inputs, *_of(scalars, writer)])
        self._add(*writer.lines)
        for number, made in zip(stage.results, stage.program.outputs, strict=True):
            self._keep_narrow(number, values[made].name)

    def _keep_narrow(self, number: int, name: str) -> None:
        item = self.rows.items[number]
        self.narrow[number] = Value(Writer(), name, item.dtype)
        if item.role == KEPT:
            target = f"*({memory_type(item.dtype)}*)b{number}"
            self._add(f"if (is && lane == 0) {target} = {stored(name, item.dtype)};")

    def _over_cells(self, stage: Stage, scalars: list[Value]) -> None:
        program, lanes = stage.program, self.form.lanes
        folds = [Fold(self.folds + n, one, program.dtypes[one.arg]) for n, one in enumerate(program.reductions)]
        self.folds += len(folds)
        for fold in folds:
            self.before += fold.lines()
            self._add(f"{fold.type} acc{fold.place}[{lanes}];")
            self._add(f"for (int k = 0; k < {lanes}; ++k) acc{fold.place}[k] = {fold.start};")
        outputs = stage.results[: len(program.outputs)]
        inputs = [number for number in dict.fromkeys(stage.inputs) if self.rows.items[number].wide]
        if self.form.held:
            self._hold(inputs, outputs)
        else:
            self._add(f"for (index i = lane * {lanes}; i < cells; i += step * {lanes}) {{")
        for number in inputs:
            self._load(number)
        for number in outputs:
            self._add(f"{self._vector(number)} x{number};")
        self._add("#pragma unroll", f"for (int k = 0; k < {lanes}; ++k) {{")
        self._cell(stage, scalars, folds)
        self._add("}")
        for number in outputs:
            self._store(number)
        self._add("}", *(["}"] if self.form.held else []))
        for fold, number in zip(folds, stage.results[len(program.outputs) :], strict=True):
            self._join(fold, number)

    def _hold(self, inputs: Sequence[int], outputs: Sequence[int]) -> None:
        """Load the inputs that are read for the first time, all before any is used, and begin the loop."""
        lanes, held = self.form.lanes, self.form.held
        fresh = [number for number in inputs if number not in self.met]
        for number in [*fresh, *[number for number in outputs if number in self.again]]:
            self._add(f"{self._vector(number)} y{number}[{held}];")
        turns = ["#pragma unroll", f"for (int r = 0; r < {held}; ++r) {{"]
        place = f"const index i = (lane + r * step) * {lanes};"
        if fresh:
            self._add(*turns, place, "const index at = i < cells ? i : 0;")
            self._add(*[f"y{number}[r] = {self._at(number, f'b{number}', 'at')};" for number in fresh], "}")
        self._add(*turns, place, "if (i < cells) {")

    def _cell(self, stage: Stage, scalars: list[Value], folds: Sequence[Fold]) -> None:
        """Write the steps of one cell."""
        writer, values = Writer(), []
        for number in stage.inputs:
            item = self.rows.items[number]
            name = loaded(f"x{number}.v[k]", item.dtype) if item.wide else self.narrow[number].name
            values.append(writer.let(name, item.dtype) if item.wide else Value(writer, name, item.dtype))
        values = write_steps(stage.program, [*values, *_of(scalars, writer)])
        terms = [fold.term(values[fold.reduction.arg], "i") for fold in folds]
        self._add(*writer.lines)
        for number, made in zip(stage.results, stage.program.outputs, strict=False):
            self._add(f"x{number}.v[k] = {stored(values[made].name, values[made].dtype)};")
        for fold, term in zip(folds, terms, strict=True):
            self._add(f"acc{fold.place}[k] = {fold.of(f'acc{fold.place}[k]', term)};")

    def _vector(self, number: int) -> str:
        return f"vector<{memory_type(self.rows.items[number].dtype)}, {self.form.lanes}>"

    def _at(self, number: int, base: str, index: str = "i") -> str:
        size = self.rows.items[number].dtype.itemsize
        return f"*({self._vector(number)}*)({base} + (offset){index} * {size})"

    def _load(self, number: int) -> None:
        if self.form.held:
            self._add(f"const {self._vector(number)} x{number} = y{number}[r];")
            return
        slot, there = self.slots.get(number), self._at(number, f"b{number}")
        if slot and number in self.met:
            here = self._at(number, f"m{slot[0]}")
            there = f"i < a.near ? {here} : {there}" if self.form.near else here
            slot = None
        self._add(f"{self._vector(number)} x{number} = {there};")
        if slot:
            self._put_near(number, slot[0])

    def _put_near(self, number: int, slot: int) -> None:
        """Store cells in shared memory, if it has room for them."""
        is_near = "if (i < a.near) " if self.form.near else ""
        self._add(f"{is_near}{self._at(number, f'm{slot}')} = x{number};")

    def _store(self, number: int) -> None:
        if self.form.held:
            if number in self.again:
                self._add(f"y{number}[r] = x{number};")
            if self.rows.items[number].role == KEPT:
                self._add(f"if (is) {self._at(number, f'b{number}')} = x{number};")
            return
        if number in self.slots:
            self._put_near(number, self.slots[number][0])
        if self.rows.items[number].role == KEPT or not self.form.shared:
            self._add(f"{self._at(number, f'b{number}')} = x{number};")
        elif self.form.near:
            self._add(f"if (i >= a.near) {self._at(number, f'b{number}')} = x{number};")

    def _join(self, fold: Fold, number: int) -> None:
        """Write the combination of a row's accumulators to one result."""
        self._add(*fold.together(shift=self.shift, threads=self.form.threads))
        self._keep_narrow(number, f"result{fold.place}")


def _of(values: Sequence[Value], writer: Writer) -> list[Value]:
    """Return named values as those of another writer."""
    return [Value(writer, value.name, value.dtype) for value in values]


# ---- from a plan


def with_cells(work: Work) -> Work:
    """Return work over rows in the form of row programs: a value with one element per row has all axes, those of cells
    with length 1, even if a reduction has dropped them. Any other work is returned as it is.
    """
    plan, metas = work.plan, work.metas
    reducing = [kernel for kernel in plan.kernels if kernel.program.reductions]
    if plan.rows or len(plan.kernels) < 2 or not reducing or work.device.backend is CPU:
        return work
    shape, axes = metas[reducing[0].domain].shape, reducing[0].axes
    rows = len(shape) - len(axes)
    dropped = _dropped(plan, metas, shape, rows) if rows and sorted(axes) == list(range(rows, len(shape))) else None
    if dropped is None:
        return work
    longer = {number: _with_cells(metas[number], len(axes)) for number in dropped}
    return work._replace(plan=plan.replaced(rows=rows), metas=metas | longer)


def _dropped(plan: Plan, metas: Mapping[int, Meta], shape: Shape, rows: int) -> set[int] | None:
    """Return the values with one element per row that lack the axes of cells; None where kernels cannot go over rows,
    or where such a value is read by a kernel over cells, which would broadcast it along other axes.
    """
    lead, narrow, axes = shape[:rows], (*shape[:rows], *(1,) * (len(shape) - rows)), set(range(rows, len(shape)))
    dropped, read = set[int](), set[int]()
    for kernel in plan.kernels:
        domain, numbers = metas[kernel.domain].shape, {*kernel.inputs, *kernel.results}
        if kernel.direct is not None or domain not in (shape, narrow, lead):
            return None
        if kernel.program.reductions and (domain != shape or set(kernel.axes) != axes):
            return None
        if domain != lead:
            read |= set(kernel.inputs)
        elif any([metas[number].shape != lead for number in numbers]):
            return None
        dropped |= {number for number in kernel.results if metas[number].shape == lead}
        dropped |= set(kernel.inputs) if domain == lead else set()
    return None if dropped & read else dropped


def _with_cells(meta: Meta, axes: int) -> Meta:
    """Return a value's meta with so many more axes of length 1."""
    shape, layout = (*meta.shape, *(1,) * axes), meta.layout
    return meta._replace(shape=shape, layout=Layout(shape, (*layout.strides, *(0,) * axes), layout.offset))


class ByRowsThere(Launcher):
    """All kernels of a plan as one launch over rows; all arrays are packed."""

    def __init__(self, work: Work, shape: Shape) -> None:
        plan, self.kernels = work.plan, work.plan.kernels
        self.plan, self.shape, self.metas, self.kept = plan, shape, work.metas, plan.kept
        self.words = f"row by row of {prod(shape[plan.rows :])} elements"
        self.task = work.task(self.kernels, together=True)
        inside = {n for kernel in self.kernels for n in kernel.results} - plan.kept
        super().__init__([n for n in numbers_of(plan) if n not in inside], self.kernels, work)

    @property
    def text(self) -> str:
        """The text of the kernel if all memory is aligned to vectors; raises LacksError where there is none."""
        program, form, _ = _formed(self.plan, self.shape, self.metas, lambda value: 0, self.backend.number)
        return source(program, form)

    @classmethod
    def of(cls, work: Work, shape: Shape) -> ByRowsThere | None:
        """Return work over a shape row by row; None where its kernels have to run one after the other."""
        work = with_cells(work)
        if not work.plan.rows or 0 in shape or not work.is_packed:
            return None
        found = cls(work, shape)
        try:
            return found if found.text else None
        except LacksError:
            return None

    def _launches(self, aligned: Sequence[int]) -> Launches:
        behind = dict(zip(self.numbers, aligned, strict=True))
        rows, cells, backend = prod(self.shape[: self.plan.rows]), prod(self.shape[self.plan.rows :]), self.backend
        made = _formed(self.plan, self.shape, self.metas, behind.__getitem__, backend.number)
        program, form, (numbers, turns, (shift, nbytes, near)) = made
        function = cuda_build.function_of((program, form), lambda: source(program, form), backend, self.contract)
        outside = _outside(program, form)
        tail = [rows, cells, shift, nbytes, near, *(turns[place].stride for place in outside)]
        tail += [number for place in form.turning for number in turns[place][1:]]
        packed = struct.pack(f"={len(tail)}{'q' if form.wide else 'i'}", *tail)
        inside = [place for place in outside if program.items[place].role == INSIDE]
        grid = (-(-rows // (form.threads >> shift)), 1)
        shared = nbytes * (form.threads >> shift) if form.shared else 0
        given = {number: place for place, number in enumerate(self.numbers)}
        between = {place: len(given) + at for at, place in enumerate(inside)}
        takes = [between.get(place, given.get(numbers[place], 0)) for place in outside]
        return Launches(
            (launch_of(function, grid, shared, takes, packed, form.threads),),
            tuple([turns[place].stride * rows for place in inside]),
        )


def _formed(
    plan: Plan, shape: Shape, values: Mapping[int, Any], behind: Any, number: int
) -> tuple[RowProgram, RowForm, tuple[tuple[int, ...], list[Turn], tuple[int, int, int]]]:
    """Return the row program of a plan, its form, and the numbers for a launch: the number of each item, its turn, and
    together the shift, and the bytes and cells of a row in shared memory.

    behind: returns how far a value begins behind a multiple of a vector. Raises LacksError where it does not pay.
    """
    rows, cells = prod(shape[: plan.rows]), prod(shape[plan.rows :])
    numbers, program, turns = _row_program(plan, shape, values)
    strides = [turn.stride for turn in turns]
    turning = tuple([place for place, turn in enumerate(turns) if turn[1:] != (1, rows)])
    lanes = min(lanes_of(stage.program, 8) for stage in program.stages if stage.wide)
    lanes = 1 if cells % lanes else lanes  # strides do not show it if rows have one cell
    for place, item in enumerate(program.items):
        vector = lanes * item.dtype.itemsize
        apart = item.role != INSIDE and (strides[place] % vector or behind(numbers[place]) % vector)
        if item.role != INSIDE and behind(numbers[place]) % item.dtype.itemsize:
            raise LacksError("way to read rows that begin between multiples of their elements' size")
        if item.wide and apart:
            lanes = 1
    chunks = cells // lanes
    wide = max(2 * rows, *(abs(one) * rows for one in strides), *(cells * one.dtype.itemsize for one in program.items))
    held, shift = _held(program, chunks)
    if held:
        return program, RowForm(lanes, wide >= REACH, False, held, shift, turning), (numbers, turns, (shift, 0, 0))
    shift, threads, near = _in_shared(program, cells, lanes, cuda_build.most_shared(number))
    longest = cells * max(item.dtype.itemsize for item in program.items if item.wide)
    if rows < BLOCKS // 4 and (near < cells or longest > cuda_build.most_shared(number)):
        raise LacksError("room for a row in shared memory")  # more blocks than one had better share a row
    form = RowForm(lanes, wide >= REACH, near > 0, 0, 0, turning, 0 < near < cells, threads)
    return program, form, (numbers, turns, (shift, _shared_bytes(program, near), near))


def _shared_bytes(rows: RowProgram, cells: int) -> int:
    """Return the bytes of shared memory for so many cells of a row."""
    return sum(-(-cells * size // VECTOR) * VECTOR for _, size in set(slots_of(rows).values()))


def _in_shared(rows: RowProgram, cells: int, lanes: int, room: int) -> tuple[int, int, int]:
    """Return the logarithm of the number of threads that share a row, the threads of a block, and the cells of a row in
    shared memory. room: the bytes of shared memory that a block can have.
    """
    chunks = cells // lanes
    shift = min((chunks - 1).bit_length(), 5) if chunks <= 128 else 8
    sums = sum(len(stage.program.reductions) for stage in rows.stages)  # each has an array of up to 16 bytes a warp
    whole = _shared_bytes(rows, cells)
    if whole * (THREADS >> shift) + sums * THREADS // 2 <= room // 4 or chunks < MANY:
        return shift, THREADS, cells if whole * (THREADS >> shift) + sums * THREADS // 2 <= room else 0
    room -= sums * MANY // 2
    if whole <= room:
        return 10, MANY, cells
    each, slots = _shared_bytes(rows, VECTOR) // VECTOR, len(set(slots_of(rows).values()))
    near = max(room - slots * VECTOR, 0) // max(each, 1) // lanes * lanes
    return (10, MANY, near) if NEAR * near >= cells else (shift, THREADS, 0)


def _row_program(plan: Plan, shape: Shape, values: Mapping[int, Any]) -> tuple[tuple[int, ...], RowProgram, list[Turn]]:
    """Return the numbers of a plan's values in a row program's order, that program, and the turn of each value."""
    cells, numbers = shape[plan.rows :], numbers_of(plan)
    wide, turns = {}, []
    for number in numbers:
        turn, inner = _strides(values[number], shape[: plan.rows], len(cells))
        moving = [place for place, length in enumerate(cells) if length != 1]
        lengths, (kept,), _ = joined([cells[a] for a in moving], [[inner[a] for a in moving]], [False] * len(moving))
        if len(lengths) > 1 or (kept and kept[0] not in (0, values[number].dtype.itemsize)):
            raise LacksError("row whose operands lie in too many ways")
        wide[number] = bool(kept and kept[0])
        turns.append(turn)
    return numbers, row_program(plan, shape, values, wide), turns


def _strides(value: Any, lead: Shape, axes: int) -> tuple[Turn, Shape]:
    """Return the turn of a packed value, and its strides over the cells of a row, 0 along axes of length 1."""
    itemsize = value.dtype.itemsize
    own = (1,) * (len(lead) + axes - len(value.shape)) + tuple(value.shape)
    leading, trailing = own[: len(lead)], own[len(lead) :]
    strides = tuple([0 if n == 1 else s for n, s in zip(trailing, c_strides(trailing, itemsize), strict=True)])
    moving = [axis for axis, n in enumerate(leading) if n != 1]
    if not moving:
        return Turn(0, 1, prod(lead)), strides
    begin, end = moving[0], moving[-1] + 1
    if leading[begin:end] != lead[begin:end]:
        raise LacksError("row block of an operand that repeats along an axis between others")
    return Turn(prod(trailing) * itemsize, prod(lead[end:]), prod(lead[begin:end])), strides
