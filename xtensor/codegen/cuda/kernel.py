"""Programs as CUDA C++: one kernel, `kernel`, that takes one struct of addresses, scalars and lengths.

Text depends on the program and on how its operands lie, never on sizes, strides or scalars, which are run-time
arguments; `fields` lists them in their order, for the text here and for the code that fills them in (run/cuda.py).

Elementwise kernels give each thread `lanes` neighbouring elements of the innermost loop. Reductions give each result
some threads of a block (`row`: the innermost loop is reduced; `column`: it is kept), which combine by a fixed tree.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate
from math import inf
from typing import Any, NamedTuple

import numpy as np

from ...base.dtypes import DType
from ...devices.cpu import SMALL_POWERS
from ...devices.cuda_memory import VECTOR as VECTOR
from ...graph.node import COMBINING
from ...plan.program import Program, Reduction, Step
from .. import element
from ..cpu.accumulators import identity as identity_of
from ..cpu.moves import PACKED, SAME, STRIDED
from ..cpu.vector import BOOL, LacksError
from .math import Value, Writer, cast, has, helpers, literal, loaded, memory_type, primitive, register_type, stored

MAP, ROW, COLUMN = "map", "row", "column"

# The least bytes of a scalar's slot: those of a word, as launches pack it.
SLOT = 8

# Threads of a block; for COLUMN, how many of them are side by side, and how many rows each takes at a time.
THREADS, SIDE, TURNS = 256, 32, 4


class Form(NamedTuple):
    """The facts besides the program on which text depends.

    kind: MAP, ROW or COLUMN. lie: how each operand (inputs, outputs) lies along the innermost loop. lanes: elements a
    thread takes at a time. kept, reduced: the numbers of loops over kept axes (of a MAP all) and over reduced ones.
    wide: whether indices have 64 bits.
    """

    kind: str
    lie: tuple[str, ...]
    lanes: int
    kept: int
    reduced: int = 0
    wide: bool = False


class Field(NamedTuple):
    """One run-time number: its name in the text, and its meaning.

    about: ("count",) chunks of elements, ("length",) of the innermost loop, ("rows",) results, ("piece",) chunks that a
    block reduces, ("shift",) log2 of the threads of a result, ("parts", reduction) bytes between parts of its results,
    ("divisor", loop) the length of a loop to divide by (loop -1: chunks of the innermost),
    ("stride", operand, loop) in bytes.
    """

    name: str
    about: tuple[Any, ...]


def lanes_of(program: Program, most: int = VECTOR) -> int:
    """Return how many neighbouring elements a thread takes: the widest operand fills a vector."""
    return min(max(VECTOR // max([dtype.itemsize for dtype in program.moved], default=8), 1), most)


def source(program: Program, form: Form) -> str:
    """Return the CUDA C++ of a program in a form; raises LacksError for a step or dtype that generated code lacks."""
    return _Text(program, form).text()


def fields(program: Program, form: Form) -> list[Field]:
    """Return the run-time numbers of a form in their order, after addresses and scalars."""
    found = [Field("count", ("count",)), Field("length", ("length",))]
    if form.kind != MAP:
        found += [Field(name, (name,)) for name in ("rows", "piece", "shift")]
        found += [Field(f"parts{place}", ("parts", place)) for place in range(len(program.reductions))]
    loops = form.kept + form.reduced
    for first, last in ((0, form.kept), (form.kept, loops)):
        whole = last < loops or not _is_inner(form)
        found += [Field(f"d{loop}", ("divisor", loop)) for loop in range(first + 1, last if whole else last - 1)]
        found += [] if whole or last - first < 2 else [Field("chunks", ("divisor", -1))]
    for place in range(len(program.moved) + len(program.reductions)):
        of_result = place >= len(program.moved)
        for loop in range(form.kept if of_result else loops):
            inner = not of_result and loop == loops - 1 and form.lie[place] != STRIDED
            if not (inner and _is_inner(form)):
                found.append(Field(f"s{place}_{loop}", ("stride", place, loop)))
    return found


def _is_inner(form: Form) -> bool:
    """Return whether threads take neighbours of the innermost loop."""
    return form.kind != COLUMN


# ---- steps


def write_steps(program: Program, values: Sequence[Value]) -> list[Value]:
    """Write a program's steps, given its inputs and scalars; return the value of every number."""
    found, known = list(values), dict(program.known)
    for step in program.steps:
        operands = [cast(found[arg], dtype) for arg, dtype in zip(step.args, step.loop, strict=True)]
        exponent = known.get(step.args[-1])
        kinds = "fc" if exponent in SMALL_POWERS else "f"
        if exponent is not None and operands[0].dtype.kind in kinds and operands[0].dtype != np.float16:
            result = _known_power(operands[0], exponent)
        else:
            result = _compute(step, operands)
        found.append(cast(result, step.dtype))
    return found


def _known_power(a: Value, exponent: float) -> Value:
    """Write a power in the same way as codegen/cpu/primitives.py."""
    if exponent == -1:
        return primitive("reciprocal", a)
    if exponent == 0.5:
        root, infinite = primitive("sqrt", a), literal(inf, a.dtype)
        return a.writer.let(f"{a.name} == -{infinite} ? {infinite} : {root.name} + 0", a.dtype)
    squared = primitive("square", a)
    return squared if exponent == 2 else primitive("multiply", squared, a if exponent == 3 else squared)


def _compute(step: Step, operands: list[Value]) -> Value:
    if step.op.name == "astype":
        return cast(operands[0], step.dtype)
    if has(step.op.name):
        return primitive(step.op.name, *operands)
    if step.op.element is None or any(operand.dtype.kind != "f" for operand in operands):
        raise LacksError(f"{step.op.name} of {operands[0].dtype} in generated code")
    result: Value = element.evaluate(step.op.element, _machine, *operands)
    return result


def _machine(name: str) -> Any:
    """Return a primitive for formulas, where a Python number takes the dtype of the values beside it."""
    if not has(name):
        raise LacksError(f"{name} in generated code")

    def compute(*operands: Any) -> Value:
        like = next(o for o in operands if isinstance(o, Value) and o.dtype.kind == "f")
        given = [o if isinstance(o, Value) else like.writer.let(literal(o, like.dtype), like.dtype) for o in operands]
        return primitive(name, *given)

    return compute


# ---- reductions


ARGUMENTS = ("argmax", "argmin")


def best_dtype(dtype: DType) -> DType:
    """Return the dtype of an element together with its index, as argmax finds it."""
    return np.dtype([("value", dtype), ("at", np.int64)], align=True)


class Fold:
    """The code of a reduction: its accumulator's type and initial value, an element's term, how two are combined."""

    def __init__(self, place: int, reduction: Reduction, dtype: DType) -> None:
        self.place, self.reduction, self.dtype = place, reduction, dtype
        self.finds = reduction.op.name in ARGUMENTS
        self.joins = dtype.kind == "V"
        value = dtype["value"] if self.joins else dtype
        if reduction.dtype == np.float16 or (self.finds and value.kind == "c"):
            raise LacksError(f"{reduction.op.name} of {value} in generated code")
        if self.finds:
            self.type = memory_type(best_dtype(value))
            wins = "xt_more" if reduction.op.name == "argmax" else "xt_less"
            self.start = f"{self.type}{{ 0, -1 }}"
            self.joined = f"return xt_better(a, b, {wins}());"
            return
        self.type = register_type(reduction.dtype)
        writer = Writer()
        a, b = (Value(writer, name, reduction.dtype) for name in "ab")
        result = primitive(COMBINING[reduction.op.name], a, b)
        self.joined = " ".join([*writer.lines, f"return {result.name};"])
        self.start = literal(_start(reduction), reduction.dtype)

    def lines(self) -> list[str]:
        """Return the function that combines two partial results."""
        head = f"struct xt_fold{self.place} {{ static __device__ {self.type} of({self.type} a, {self.type} b)"
        return [f"{head} {{ {self.joined} }} }};"]

    def term(self, value: Value, at: str) -> str:
        """Return the term of an element; at: its index along the reduced axes."""
        if self.finds:
            return value.name if self.joins else f"{self.type}{{ {value.name}, (i64){at} }}"
        if self.reduction.op.name in ("any", "all", "count_nonzero"):
            value = cast(value, BOOL)
        return cast(value, self.reduction.dtype).name

    def of(self, a: str, b: str) -> str:
        return f"xt_fold{self.place}::of({a}, {b})"

    def together(self, column: bool = False, shift: str = "a.shift", threads: int = THREADS) -> list[str]:
        """Return the lines by which the 2^shift threads of a row, or those of a column, combine to result<place>."""
        own, count = f"xt_fold{self.place}", THREADS if column else threads // 32
        how = f"xt_along<{own}>" if column else f"xt_across<{own}>"
        joined = f"{how}(xt_tree<{own}>(acc{self.place}), {SIDE if column else shift}, shared{self.place})"
        shared = f"__shared__ {self.type} shared{self.place}[{count}];"
        return [shared, f"const {self.type} result{self.place} = {joined};"]

    def kept(self, name: str) -> tuple[str, str]:
        """Return the type of a result in memory, and the expression of a finished accumulator in that type."""
        if self.reduction.dtype.kind == "V":
            return self.type, name
        if self.finds:
            return "i64", f"{name}.at"
        return memory_type(self.reduction.dtype), stored(name, self.reduction.dtype)


def _start(reduction: Reduction) -> Any:
    if reduction.op.name == "sum" and reduction.dtype.kind == "c":
        return complex(-0.0, -0.0)
    return identity_of(reduction)


def folds_of(program: Program) -> list[Fold]:
    return [Fold(place, one, program.dtypes[one.arg]) for place, one in enumerate(program.reductions)]


# ---- text


def whole_text(
    parameters: Sequence[str], wide: bool, before: Sequence[str], body: Sequence[str], threads: int = THREADS
) -> str:
    """Return the text of a kernel: the helpers that it uses, its parameters, its body."""
    head = [
        f"#define WIDE {int(wide)}",
        *helpers(["xt_place", *parameters, *before, *body]),
        "struct Arguments {",
        "char* const* table;",
        *parameters,
        "};",
    ]
    start = f'extern "C" __global__ void __launch_bounds__({threads}) kernel(const Arguments given) {{'
    addresses = [one.split()[-1].rstrip(";") for one in parameters if one.startswith("char*")]
    placed = [f"a.{one} = xt_place(given.table, given.{one});" for one in addresses]
    lines, depth = [*head, *before], 0
    for line in (start, "Arguments a = given;", *placed, *body, "}"):
        depth -= line.startswith("}")
        lines.append("  " * depth + line)
        depth += line.endswith("{")
    return "\n".join([*lines, ""])


def placed(entry: int, after: int) -> int:
    """Return the word for an operand that lies so many bytes after an address in the table, given its entry there."""
    return (after << 16 | entry) % (1 << 64)


def table_text(entries: int) -> str:
    """Return the text of the kernel that fills a table of so many words, from its arguments."""
    parameters = ["char** table;", f"char* given[{entries}];"]
    body = ["#pragma unroll", f"for (int k = 0; k < {entries}; ++k) a.table[k] = a.given[k];"]
    start = 'extern "C" __global__ void kernel(const Arguments a) {'
    return "\n".join(["struct Arguments {", *parameters, "};", start, *body, "}", ""])


def scalar_parameters(dtypes: Sequence[DType]) -> list[str]:
    """Return the members for scalars: their address in memory, or 0, and each of them in a slot of 8 or 16 bytes."""
    members = [f"alignas({SLOT}) {memory_type(dtype)} c{place};" for place, dtype in enumerate(dtypes)]
    return ["const char* told;", *members] if members else []


def scalar_values(dtypes: Sequence[DType], writer: Writer) -> list[Value]:
    """Return the scalars, read from memory if their address is given, else from the arguments."""
    begins = accumulate([max(dtype.itemsize, SLOT) for dtype in dtypes], initial=0)
    told = [f"xt_told(given.told, given.c{place}, {at})" for place, at in zip(range(len(dtypes)), begins, strict=False)]
    return [writer.let(loaded(one, dtype), dtype) for one, dtype in zip(told, dtypes, strict=True)]


class _Text:
    """The text of one kernel while it is written."""

    def __init__(self, program: Program, form: Form) -> None:
        self.program, self.form = program, form
        self.lines: list[str] = []
        self.folds = folds_of(program)
        self.types = [memory_type(dtype) for dtype in program.moved]
        self.inputs, self.moved = len(program.inputs), len(program.moved)
        self.slots = TURNS if form.kind == COLUMN else form.lanes
        self.inner = form.kept + form.reduced - 1

    def text(self) -> str:
        numbers = fields(self.program, self.form)
        places = self.moved + len(self.folds)
        parameters = [f"char* p{place};" for place in range(places)]
        parameters += scalar_parameters(self.program.scalars)
        parameters += ["alignas(8) index count;"]
        parameters += [f"{_field_type(field)} {field.name};" for field in numbers if field.name != "count"]
        writer = Writer("c")
        self.scalars = scalar_values(self.program.scalars, writer)
        self.lines += writer.lines
        if self.form.kind == MAP:
            self._map()
        else:
            self._reduction()
        before = [line for fold in self.folds for line in fold.lines()]
        return whole_text(parameters, self.form.wide, before, self.lines)

    def _add(self, *lines: str) -> None:
        self.lines += lines

    # ---- indices

    def _unravel(self, number: str, first: int, last: int, prefix: str) -> None:
        """Write the index of each loop from `first` to `last` (exclusive) from a flat number over them."""
        for loop in range(last - 1, first, -1):
            inner = loop == self.inner and _is_inner(self.form)
            name, by = f"{prefix}{loop}", "a.chunks" if inner else f"a.d{loop}"
            self._add(f"const index {name}q = over({number}, {by});")
            self._add(f"const index {name} = {number} - {name}q * {by}.n;")
            number = f"{name}q"
        if last > first:
            self._add(f"const index {prefix}{first} = {number};")

    def _place(self, place: int, loops: range, prefix: str, base: str) -> str:
        """Return the address of an operand at the indices of some loops, without the innermost if threads take that."""
        terms = []
        for loop in loops:
            if not (_is_inner(self.form) and loop == self.inner):
                terms.append(f" + (offset){prefix}{loop} * a.s{place}_{loop}")
        return base + "".join(terms)

    # ---- elementwise

    def _map(self) -> None:
        form = self.form
        self._add(f"const index number = (index)blockIdx.x * {THREADS} + threadIdx.x;")
        self._add("if (number >= a.count) return;")
        self._unravel("number", 0, form.kept, "k")
        self._add(f"const index i = k{self.inner} * {form.lanes};")
        for place in range(self.moved):
            self._add(f"char* const b{place} = {self._place(place, range(form.kept), 'k', f'a.p{place}')};")
        self._chunk(())

    def _chunk(self, folds: Sequence[Fold]) -> None:
        """Write one chunk of the innermost loop, from element i on: loads, steps, reductions, stores."""
        lanes = self.form.lanes
        for place, (kind, lie) in enumerate(zip(self.types, self.form.lie, strict=True)):
            taken = {
                PACKED: f"xt_packed<{kind}, {lanes}>(b{place}, i, a.length)",
                SAME: f"xt_same<{kind}, {lanes}>(b{place})",
            }
            apart = f"xt_apart<{kind}, {lanes}>(b{place}, i, a.length, a.s{place}_{self.inner})"
            given = f" = {taken.get(lie, apart)}" if place < self.inputs else ""
            self._add(f"vector<{kind}, {lanes}> x{place}{given};")
        self._add("#pragma unroll", f"for (int k = 0; k < {lanes}; ++k) {{")
        inside = "i + k < a.length" if lanes > 1 else ""
        self._element([f"x{place}.v[k]" for place in range(self.moved)], folds, inside, "(at + k)")
        self._add("}")
        for place in range(self.inputs, self.moved):
            if self.form.lie[place] == PACKED:
                self._add(f"xt_pack(b{place}, i, a.length, x{place});")
            else:
                self._add(f"xt_spread(b{place}, i, a.length, a.s{place}_{self.inner}, x{place});")

    def _element(self, operands: Sequence[str], folds: Sequence[Fold], inside: str, at: str) -> None:
        """Write the steps of one element, k of its chunk, whose operands have these names."""
        writer = Writer()
        names = zip(operands, self.program.inputs, strict=False)
        values = [writer.let(loaded(name, dtype), dtype) for name, dtype in names]
        scalars = [scalar._replace(writer=writer) for scalar in self.scalars]  # so that steps on them are written here
        values = write_steps(self.program, [*values, *scalars])
        terms = [fold.term(values[fold.reduction.arg], at) for fold in folds]
        self._add(*writer.lines)
        for name, number in zip(operands[self.inputs :], self.program.outputs, strict=True):
            self._add(f"{name} = {stored(values[number].name, values[number].dtype)};")
        if folds:
            self._add(*([f"if ({inside}) {{"] if inside else []))
            for fold, term in zip(folds, terms, strict=True):
                self._add(f"acc{fold.place}[k] = {fold.of(f'acc{fold.place}[k]', term)};")
            self._add(*(["}"] if inside else []))

    # ---- reductions

    def _reduction(self) -> None:
        form = self.form
        column = form.kind == COLUMN
        self._add("const int thread = threadIdx.x;")
        if column:
            self._add(f"const index row = (index)blockIdx.x * {SIDE} + thread % {SIDE}, lane = thread / {SIDE};")
            self._add(f"const index step = {THREADS // SIDE};")
        else:
            self._add("const index step = (index)1 << a.shift;")
            self._add("const index row = ((index)blockIdx.x * (blockDim.x >> a.shift)) + (thread >> a.shift);")
            self._add("const index lane = thread & (step - 1);")
        self._add("const bool is = row < a.rows;", "const index begin = blockIdx.y * a.piece;")
        self._add("const index end = !is ? begin : begin + a.piece < a.count ? begin + a.piece : a.count;")
        self._unravel("row", 0, form.kept, "k")
        for place in range(self.moved):
            self._add(f"char* const r{place} = {self._place(place, range(form.kept), 'k', f'a.p{place}')};")
        for fold in self.folds:
            self._add(f"{fold.type} acc{fold.place}[{self.slots}];")
            self._add(f"for (int k = 0; k < {self.slots}; ++k) acc{fold.place}[k] = {fold.start};")
        self._columns() if column else self._rows()
        for fold in self.folds:
            self._finish(fold, column)

    def _rows(self) -> None:
        """Write the loop over the chunks of a row."""
        form = self.form
        twice = [] if any(fold.finds for fold in self.folds) else ["#pragma unroll 2"]
        self._add(*twice, "for (index q = begin + lane; q < end; q += step) {")
        self._unravel("q", form.kept, form.kept + form.reduced, "m")
        self._add(f"const index i = m{self.inner} * {form.lanes};")
        if any(fold.finds for fold in self.folds):
            before = f"m{self.inner}q * a.length + " if form.reduced > 1 else ""
            self._add(f"const index at = {before}i;")
        for place in range(self.moved):
            loops = range(form.kept, form.kept + form.reduced)
            self._add(f"char* const b{place} = {self._place(place, loops, 'm', f'r{place}')};")
        self._chunk(self.folds)
        self._add("}")

    def _columns(self) -> None:
        """Write the loop over the elements of a column, some at a time."""
        form = self.form
        loops = range(form.kept, form.kept + form.reduced)
        self._add(f"for (index q = begin + lane; q < end; q += step * {TURNS}) {{", "#pragma unroll")
        self._add(f"for (int k = 0; k < {TURNS}; ++k) {{")
        self._add("const index at = q + step * k;", "const bool in = at < end;")
        self._unravel("at", loops.start, loops.stop, "m")
        for place, kind in enumerate(self.types):
            self._add(f"{kind}* const b{place} = ({kind}*)({self._place(place, loops, 'm', f'r{place}')});")
            given = f" = in ? *b{place} : {kind}()" if place < self.inputs else ""
            self._add(f"{kind} x{place}{given};")
        self._element([f"x{place}" for place in range(self.moved)], self.folds, "in", "at")
        for place in range(self.inputs, self.moved):
            self._add(f"if (in) *b{place} = x{place};")
        self._add("}", "}")

    def _finish(self, fold: Fold, column: bool) -> None:
        """Write the combination of a result's accumulators, and its store."""
        place = self.moved + fold.place
        at = "".join([f" + (offset)k{loop} * a.s{place}_{loop}" for loop in range(self.form.kept)])
        kind, value = fold.kept(f"result{fold.place}")
        self._add(*fold.together(column))
        part = f"(offset)blockIdx.y * a.parts{fold.place}"
        self._add(f"if (is && lane == 0) *({kind}*)(a.p{place}{at} + {part}) = {value};")


def _field_type(field: Field) -> str:
    if field.about[0] == "divisor":
        return "divisor"
    return "offset" if field.about[0] in ("stride", "parts") else "index"
