"""Descriptions of what the engine will do: the graph, its kernels, the engine of each and why, and generated code.

Nothing here computes a value or is counted as work; code that is shown has been compiled, and is kept for later use.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from functools import cached_property, lru_cache
from math import prod
from typing import Any, cast
from weakref import WeakValueDictionary

from ..base.layout import Shape
from ..base.machine import size_text
from ..codegen.cpu.kernel import source
from ..codegen.cpu.moves import PACKED, Form
from ..codegen.cpu.vector import LacksError
from ..devices.cpu import CPU
from ..graph.node import Node
from ..graph.number import value_of
from ..plan.layouts import Work
from ..plan.program import Kernel, Program
from ..plan.trace import Trace
from ..storage.blob import TBlob
from .cuda import texts as cuda_texts
from .cuda_rows import ByRowsThere
from .engines import CUDA, DIRECT, INTERPRET, LLVM, Choice, outlined, way_of
from .native import Making, Scratch, Way
from .sketch import BETWEEN, GIVEN, HANDED, RESULT, Box, Item, Sketch, sketch_of

# ---- names

# Faces that have a name, under (id of the face, name). Names belong to faces, which stay when their nodes become bytes.
_faces: WeakValueDictionary[tuple[int, str], Any] = WeakValueDictionary()


def give_name(face: Any, name: str) -> None:
    """Give the face of a value (`face.value`) a name; the value keeps it while it is pending, even without its face."""
    for key in [key for key in list(_faces) if key[0] == id(face)]:
        del _faces[key]
    _faces[id(face), name] = face
    if isinstance(face.value, Node):
        face.value.name = name


def names() -> dict[int, str]:
    """Return the names of the values that named faces show now, by the values' ids."""
    return {id(getattr(face.value, "blob", None) or face.value): name for (_, name), face in list(_faces.items())}


def labels_of(values: Iterable[Any], known: Mapping[int, str]) -> list[str]:
    """Return the labels of values: %name, made unique, else %number; for Python scalars their repr."""
    labels: list[str] = []
    taken: set[str] = set()
    for number, value in enumerate(values):
        if not isinstance(value, (Node, TBlob)):
            labels.append(repr(value_of(value)))
            continue
        name = (value.name if isinstance(value, Node) else None) or known.get(id(value)) or str(number)
        label, more = name, 1
        while label in taken:
            more += 1
            label = f"{name}_{more}"
        taken.add(label)
        labels.append(f"%{label}")
    return labels


# ---- text


def described(work: Work, show: str) -> str:
    """Return the graph and its kernels if `show` has the word "plan", and generated code if it has "llvm"."""
    return Description(work).text(show)


def graph_lines(trace: Trace) -> list[str]:
    """Return the values of a graph as lines: the call that makes each, its dtype and shape."""
    labels = labels_of(trace.values, names())
    table: list[tuple[str, str]] = []
    for number, value in enumerate(trace.values):
        if number in trace.arguments:
            call = f"{labels[number]} = {_call(value, [labels[a] for a in trace.arguments[number]])}"
            table.append((call, kind_of(value) + "  kept" * (number in trace.kept)))
        elif isinstance(value, TBlob):
            strides = "" if value.is_packed else f"  strides {value.layout.strides}"
            table.append((labels[number], kind_of(value) + strides))
    width = max([len(left) for left, _ in table], default=0)
    return [_graph_title(trace), *(f"  {left:{width}}  {right}" for left, right in table)]


def graph_sketch(trace: Trace, note: str) -> Sketch:
    """Return a sketch of a graph's values with a box for each step between them, as if nothing was fused."""
    labels = labels_of(trace.values, names())

    def box(number: int, arguments: Sequence[int]) -> Box:
        node = trace.values[number]
        item = Item(f"{labels[number]} = {_call(node, [labels[a] for a in arguments])}")
        return Box(item, _arrays(trace, arguments), [number])

    boxes = [box(*one) for one in trace.arguments.items()]
    return sketch_of([_graph_title(trace), note], boxes, lambda number: _item(trace, labels, number))


def _graph_title(trace: Trace) -> str:
    steps = len(trace.arguments)
    return f"graph: {steps} step{'s' * (steps != 1)}"


def _arrays(trace: Trace, numbers: Iterable[int]) -> list[int]:
    """Return those of some numbers whose values are not Python scalars."""
    return [number for number in numbers if isinstance(trace.values[number], (Node, TBlob))]


def _item(trace: Trace, labels: Sequence[str], number: int) -> Item:
    """Return a value as an item of a sketch."""
    value = trace.values[number]
    look = GIVEN if isinstance(value, TBlob) else RESULT if number in trace.kept else BETWEEN
    return Item(labels[number], (kind_of(value),), look)


def kind_of(value: Any) -> str:
    """Return dtype and shape."""
    return f"{value.dtype} {value.shape}"


def _call(node: Node, arguments: Sequence[str]) -> str:
    params = [f"{name}={value}" for name, value in node.params.items() if value is not None and value is not False]
    return f"{node.op.name}({', '.join([*arguments, *params])})"


class Description:
    """The text about some work, while it is written, and the sketch of it."""

    def __init__(self, work: Work) -> None:
        self.work, self.trace, self.plan = work, work.trace, work.plan
        self.labels = labels_of(work.trace.values, names())
        outline = outlined(work)
        lacking = [_lack(kernel, choice, work) for kernel, choice in zip(outline.kernels, outline.choices, strict=True)]
        if any(lacking):  # preparation would find that out, and choose the same
            outline = outlined(work, apart=True)
            both = zip(outline.choices, lacking, strict=True)
            choices = [choice._replace(engine=lack.engine, why=lack.why) if lack else choice for choice, lack in both]
            outline = outline._replace(choices=tuple(choices))
        self.outline = outline
        self.code = "llvm" if work.device.backend is CPU else "cuda"

    def text(self, show: str) -> str:
        """Return the text of `described`."""
        lines = []
        if "plan" in show.split(","):
            lines += [*graph_lines(self.trace), *self.plan_lines()]
        if "llvm" in show.split(","):
            lines += self.code_lines()
        return "\n".join(lines)

    def sketch(self) -> Sketch:
        """Return a sketch of the kernels with their steps, and the values between them."""
        boxes = [Box(self._kernel_item(*one), one[1].inputs, one[1].results) for one in enumerate(self.outline.kernels)]
        return sketch_of(self._title_lines(), boxes, self._value_item)

    def _value_item(self, number: int) -> Item:
        item = _item(self.trace, self.labels, number)
        return item._replace(look=HANDED) if item.look == BETWEEN and self._is_handed_on(number) else item

    def _is_handed_on(self, number: int) -> bool:
        """Return whether a result of a kernel never reaches memory."""
        return number in self._sums or number in self._between

    @cached_property
    def _together(self) -> Sequence[Kernel]:
        """The kernels that run together."""
        return self.outline.kernels[self.outline.span.start : self.outline.span.stop]

    @cached_property
    def _between(self) -> set[int]:
        """The results of these that no others read."""
        together = self.outline.together
        return set() if together is None else {n for one in self._together for n in one.results} - together.kept

    @property
    def _sums(self) -> list[int]:
        """The contractions from whose sums other kernels go on."""
        return [before.results[0] for before, _ in self.outline.joined.values()]

    def _shape(self, kernel: Kernel) -> Shape:
        return self.work.metas[kernel.domain].shape

    # ---- generated code

    def _text_together(self) -> str:
        """Return the code that takes rows or columns through all kernels; code for the CPU is compiled now."""
        together = self.outline.together
        if isinstance(together, ByRowsThere):
            return together.text.rstrip()
        return "".join(self._texts_of(cast(Way, together)))

    def _texts_of(self, way: Way) -> list[str]:
        launches = way.launches(Making(1, self.work.limits.fast_math, True, Scratch()))
        return [launch.code.text.rstrip() for launch in launches]

    def _texts(self, kernel: Kernel) -> list[str]:
        """Return the code that a kernel runs; code for the CPU is compiled now if it was not before, CUDA's is not."""
        if self.code == "cuda":
            return cuda_texts(kernel, self.work)
        return self._texts_of(way_of(kernel, self.work))

    # ---- plans and kernels

    def plan_lines(self) -> list[str]:
        """Return lines about the kernels of the plan and the bytes that they move."""
        title, *together = self._title_lines()
        lines = [title, *[f"  {line}" for line in together]]
        for place, kernel in enumerate(self.outline.kernels):
            lines += self._kernel_lines(place, kernel)
        return lines

    def _title_lines(self) -> list[str]:
        """Return lines that say how many kernels there are, how much they move, and whether they run together."""
        outline = self.outline
        count = len(outline.kernels)
        moved, stepwise = self._moved(), self._moved_stepwise()
        lines = [f"plan: {count} kernel{'s' * (count != 1)}, moving {size_text(moved)} to and from memory"]
        if moved < stepwise:
            lines[0] += f" (step by step: {size_text(stepwise)})"
        if outline.together is not None:
            whole = len(outline.span) == count
            which = "" if whole else f"kernels {outline.span.start + 1} to {outline.span.stop} "
            lines.append(f"{which}together, {outline.together.words}")
        return lines

    def code_lines(self) -> list[str]:
        """Return the generated code of every kernel that has some."""
        span = self.outline.span
        if span and len(span) == len(self.outline.kernels):
            return [f"{self.code} of all kernels:", self._text_together()]
        lines = [f"{self.code} of kernels {span.start + 1} to {span.stop}:", self._text_together()] if span else []
        for place, (kernel, (engine, _)) in enumerate(zip(self.outline.kernels, self.outline.choices, strict=True), 1):
            if place - 1 in span:
                continue
            has_code = engine == self.code
            lines.append(f"{self.code} of kernel {place}:" + f" none, its engine is {engine}" * (not has_code))
            lines += self._texts(kernel)[:1] if has_code and self.code == "llvm" else []
            lines += ["\n".join(self._texts(kernel)).rstrip()] if has_code and self.code == "cuda" else []
        return lines

    def _kernel_lines(self, place: int, kernel: Kernel) -> list[str]:
        title, (why, *lines), _ = self._kernel_item(place, kernel)
        if kernel.direct is None or self.outline.choices[place].engine == LLVM:
            reads = [f"reads {self._operand(n)}" for n in dict.fromkeys(kernel.inputs) if n not in self._sums]
            verbs = ["hands on" if self._is_handed_on(number) else "writes" for number in kernel.results]
            writes = [f"{verb} {self._operand(n)}" for verb, n in zip(verbs, kernel.results, strict=True)]
            lines = [*reads, *lines, *writes]
        return [f"  {title}: {why}", *[f"    {line}" for line in lines]]

    def _kernel_item(self, place: int, kernel: Kernel) -> Item:
        """Return a kernel as an item of a sketch: its engine, the reason for that, and its steps."""
        engine, why = self.outline.choices[place]
        why = self._library_words(kernel) or why
        title = f"kernel {place + 1} over {self._shape(kernel)}, {engine}"
        return Item(title, (why, *self._step_lines(kernel)))

    def _library_words(self, kernel: Kernel) -> str:
        """Return which function computes a contraction on another device than the CPU and why, "" for other kernels."""
        work = self.work
        if kernel.direct is None or work.device.backend is CPU:
            return ""
        node = self.trace.values[kernel.direct]
        told = getattr(node.op, "words_there", None)
        if told is None:
            return ""
        operands = [work.metas[number] for number in self.trace.arguments[kernel.direct]]
        return str(told(operands, work.metas[kernel.direct], work.device, **node.params))

    def _operand(self, number: int) -> str:
        return f"{self.labels[number]} {kind_of(self.trace.values[number])}"

    def _step_lines(self, kernel: Kernel) -> list[str]:
        """Return the steps and reductions of a kernel, or its one library call, with the labels of the graph."""
        if kernel.direct is not None:
            node, arguments = self.trace.values[kernel.direct], self.trace.arguments[kernel.direct]
            call = _call(node, [self.labels[a] for a in arguments])
            return [f"{self.labels[kernel.direct]} = {call} {kind_of(node)}"]
        program = kernel.program
        numbers = self._numbers(kernel)
        dtypes = program.dtypes
        lines = []
        for step, number in zip(program.steps, numbers[len(program.dtypes) - len(program.steps) :], strict=True):
            operands = []
            for arg, wanted in zip(step.args, step.loop, strict=True):
                converted = dtypes[arg] != wanted and step.op.name != "astype"
                operands.append(self.labels[numbers[arg]] + f" as {wanted}" * converted)
            lines.append(f"{self.labels[number]} = {step.op.name}({', '.join(operands)}) {step.dtype}")
        for reduction, number in zip(program.reductions, kernel.results[len(program.outputs) :], strict=True):
            name, value = reduction.op.name, self.labels[numbers[reduction.arg]]
            lines.append(f"{self.labels[number]} = {name}({value}) over axes {kernel.axes} {reduction.dtype}")
        return lines

    def _numbers(self, kernel: Kernel) -> list[int]:
        """Return the number in the graph of each value of a kernel's program."""
        program, taken = kernel.program, self.trace.arguments
        numbers = [*kernel.inputs, *kernel.scalars, *[-1] * len(program.steps)]
        for reduction, number in zip(program.reductions, kernel.results[len(program.outputs) :], strict=True):
            numbers[reduction.arg] = taken[number][0]
        for end, number in zip(program.outputs, kernel.results, strict=False):
            numbers[end] = number
        for place in range(len(numbers) - 1, len(numbers) - len(program.steps) - 1, -1):  # from results to operands
            for arg, number in zip(program.steps[place - len(numbers)].args, taken[numbers[place]], strict=True):
                numbers[arg] = number
        return numbers

    def _moved(self) -> int:
        """Return the bytes all kernels read and write."""
        outline, work = self.outline, self.work
        inside = 2 * sum([work.metas[number].nbytes for number in self._sums])
        others = [kernel for place, kernel in enumerate(outline.kernels) if place not in outline.span]
        moved = 0 if outline.together is None else outline.together.task.moved
        return moved + work.moved_by(others, together=False) - inside

    def _moved_stepwise(self) -> int:
        """Return the bytes that one library call per step would move."""
        values = self.trace.values
        operands = [(number, *taken) for number, taken in self.trace.arguments.items()]
        return sum(_nbytes(values[n]) for numbers in operands for n in numbers if hasattr(values[n], "dtype"))


def _nbytes(value: Any) -> int:
    size: int = prod(value.shape) * value.dtype.itemsize
    return size


def _lack(kernel: Kernel, choice: Choice, work: Work) -> Choice | None:
    """Return the choice for a kernel if generated code turns out to lack something for it, else None."""
    if choice.engine == LLVM:
        lack = _lack_of(kernel.program)
        return Choice(INTERPRET, f"there is no {lack}") if lack else None
    if choice.engine != CUDA:
        return None
    try:
        cuda_texts(kernel, work)
    except LacksError as error:
        return Choice(DIRECT, f"there is no {error}")
    return None


@lru_cache(maxsize=1024)
def _lack_of(program: Program) -> str:
    """Return what generated code lacks for a program, "" where it lacks nothing."""
    try:
        source(program, Form(1, 1, (PACKED,) * len(program.moved)))
    except LacksError as lack:
        return str(lack)
    return ""
