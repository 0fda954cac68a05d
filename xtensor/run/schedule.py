"""Schedules: the one prepared form of work, a list of instructions over values of known layouts.

Whatever kernels compute goes this way: values that somebody asks for, updates in place, fused functions, gradients. A
schedule is prepared once for a plan and the layouts of its operands (see prepare.py), and remembered with the plan;
each run is given addresses and scalars. Kernels of machine code that follow each other are one instruction: Python
enters machine code once for all of them.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import Any, NamedTuple
from weakref import WeakSet

from ..base.dtypes import DType
from ..base.layout import Layout
from ..base.options import Settings
from ..base.profiling import KERNEL, LIBRARY, noted, observers
from ..devices import Device
from ..devices.cpu import CPU
from ..devices.cuda_memory import letting_go, stream_key
from ..plan.layouts import Leaf, Meta, Task
from ..plan.program import Program
from ..storage.blob import TBlob
from ..storage.storage import Native, Storage
from . import cuda_segment, engines
from .callbacks import as_captured
from .factors import Checked
from .launches import Begun
from .native import Segment, packable

# The most words of machine code's calls with which a schedule is remembered.
LONG = 1 << 17

# Bytes of an arena up to which it is kept for a schedule that asks for that: to allocate it anew costs a microsecond a
# run. On another device than the CPU, where products in graphs hold its address, it is kept until memory is short.
KEPT_ARENA, KEPT_THERE = 1 << 18, 64 << 20

# The schedules of other devices that keep their arenas.
_keeping: WeakSet[Schedule] = WeakSet()


class Made(NamedTuple):
    """A value that gets memory of its own. word: the word of a run that holds its address."""

    number: int
    word: int
    nbytes: int
    dtype: DType
    layout: Layout
    packed: bool | None


class Kernels(NamedTuple):
    """Kernels of machine code, or of another device than the CPU, one after the other in one call.

    drops: the values that nobody needs afterwards.
    """

    makes: list[Made]
    segment: Segment | cuda_segment.Segment
    drops: list[int]

    def words(self) -> str:
        """Return what the instruction does, in words."""
        return self.segment.words()

    @property
    def engine(self) -> str:
        """The engine that runs them."""
        return engines.LLVM if isinstance(self.segment, Segment) else engines.CUDA

    def tasks(self, facts: Facts) -> Sequence[Task]:
        """Return the tasks that it computes."""
        return self.segment.tasks

    def run(self, run: Run) -> None:
        run.make(self.makes)
        self.segment.run(run)
        if self.drops:
            run.drop(self.drops)


class Blobwise(NamedTuple):
    """A kernel that takes blobs: the interpreter's, or steps as calls of a device's library. work: runs it. engine: the
    name of its engine.
    """

    makes: list[Made]
    work: Callable[[Run], None]
    drops: list[int]
    engine: str
    task: Task

    def words(self) -> str:
        """Return what the instruction does, in words."""
        if self.engine == engines.LLVM:
            return f"machine code: {self.task.words}"
        return "a kernel, by the interpreter or as calls of the library"

    def tasks(self, facts: Facts) -> Sequence[Task]:
        """Return the tasks that it computes."""
        return (self.task,)

    def run(self, run: Run) -> None:
        run.make(self.makes)
        self.work(run)
        run.drop(self.drops)


class Ready:
    """Computes the result of a function of native arrays from addresses: of these arrays, and of packed memory for the
    result; it returns whether it did. A function's method `ready` provides it, as of convolutions (nn/algorithms.py).
    """

    __slots__ = ("is_asked", "made")

    def __init__(self) -> None:
        self.made: Begun | None = None
        self.is_asked = False

    def ask(self, function: Any, natives: Sequence[Native], result: Any, meta: Meta) -> None:
        """Ask a function that has computed a result, once, for arrays that lie like these. meta: how the result is to
        lie.
        """
        is_asked, self.is_asked = self.is_asked, True
        if not is_asked and hasattr(function, "ready") and meta.layout.is_dense(meta.dtype.itemsize):
            alike = result.strides == meta.layout.strides and not meta.layout.offset
            self.made = function.ready(natives, result) if alike else None

    def make(self, run: Run, operands: Sequence[int], number: int, word: int, meta: Meta) -> bool:
        """Compute a result for a run; return whether that was done."""
        made = self.made
        assert made is not None
        owner = Storage(run.facts.device, meta.nbytes)
        address, blobs = owner.lend(), [run.blob(one) for one in operands]
        keeper = made.launches.kept(blobs[1]) if made.keeps and run.lasts(operands[1]) else None
        if not made([blob.address for blob in blobs], address, keeper):
            return False
        blob = run.found[number] = TBlob(owner, meta.dtype, meta.layout, run.facts.device)
        run.words[word] = blob._address = address
        return True


class Library(NamedTuple):
    """A step that the library's own function computes. meta: how its result is to lie; word: the word of a run that
    holds the result's address.
    """

    number: int
    meta: Meta
    word: int
    operands: tuple[int, ...]
    function: Callable[..., Any]
    drops: list[int]
    task: Task
    ready: Ready

    def words(self) -> str:
        """Return what the instruction does, in words."""
        return f"library: {_name(self.function)}"

    def tasks(self, facts: Facts) -> Sequence[Task]:
        """Return the tasks that it computes."""
        return (self.task,)

    def run(self, run: Run) -> None:
        if self.ready.made is None or not self._is_made(run):
            device = run.facts.device
            natives = [run.operand(number) for number in self.operands]
            result = device.backend.call(self.function, *natives)
            self.ready.ask(self.function, natives, result, self.meta)
            blob = run.found[self.number] = _laid_out(device.backend.asarray(result), self.meta, (), device)
            run.words[self.word] = blob.address
        run.drop(self.drops)

    def _is_made(self, run: Run) -> bool:
        """Compute the result from addresses alone; return whether that was done."""
        return self.ready.make(run, self.operands, self.number, self.word, self.meta)


class Shown(NamedTuple):
    """A value that is a view of another one, beginning so many bytes after that one's first element."""

    number: int
    whole: int
    after: int
    meta: Meta
    writeable: bool
    drops: list[int]

    def words(self) -> str:
        """Return what the instruction does, in words."""
        return f"view of shape {self.meta.shape}"

    def tasks(self, facts: Facts) -> Sequence[Task]:
        """Return no tasks, as it computes nothing."""
        return ()

    def run(self, run: Run) -> None:
        whole, meta = run.blob(self.whole), self.meta
        layout = Layout(meta.shape, meta.layout.strides, whole.layout.offset + self.after)
        run.found[self.number] = whole.view(layout, writeable=self.writeable, dtype=meta.dtype)
        run.drop(self.drops)


class Call(NamedTuple):
    """A function of native arrays that a captured call made. takes: the numbers of its operands. gives: of each result
    its number, the word of a run that holds its address, and how it lay.
    """

    function: Callable[..., Any]
    takes: tuple[int, ...]
    gives: tuple[tuple[int, int, Meta], ...]
    ready: Ready
    drops: list[int]

    def words(self) -> str:
        """Return what the instruction does, in words."""
        return f"library: {_name(self.function)}"

    def tasks(self, facts: Facts) -> Sequence[Task]:
        """Return the tasks that it computes."""
        moved = [facts.given[number][1].nbytes for number in self.takes]
        return (Task(_name(self.function), sum(moved) + sum([meta.nbytes for _, _, meta in self.gives])),)

    def run(self, run: Run) -> None:
        self._enter(run)
        run.drop(self.drops)

    def _enter(self, run: Run) -> None:
        """Call the function, and enter its results in a run."""
        ready = self.ready
        if ready.made is not None and ready.make(run, self.takes, *self.gives[0]):
            return
        backend = run.facts.device.backend
        natives = [run.native(number) for number in self.takes]
        result = backend.call(self.function, *natives)
        if len(self.gives) == 1:
            self.ready.ask(self.function, natives, result, self.gives[0][2])
        parts = result if isinstance(result, (tuple, list)) else (result,)
        for (number, word, meta), part in zip(self.gives, parts, strict=False):
            native = as_captured(backend.asarray(part), meta.shape, meta.dtype)
            blob = run.found[number] = _laid_out(native, meta, natives, run.facts.device)
            run.words[word] = blob.address


def _laid_out(native: Native, meta: Meta, natives: Sequence[Native], device: Device) -> TBlob:
    """Return a library's result as memory of its own that lies as `meta` says. natives: memory that it may share."""
    is_view = native.base is not None or any([native is one for one in natives])
    shares = is_view and any([device.backend.xp.may_share_memory(native, one) for one in natives])
    if not shares and native.strides == meta.layout.strides:
        return TBlob.adopt(native, device)
    blob = TBlob(Storage(device, meta.nbytes), meta.dtype, meta.layout, device)
    device.backend.assign(blob.native(), ..., native)
    return blob


class Copied(NamedTuple):
    """Memory that begins as a copy of a constant, whose number is `source`."""

    number: int
    word: int
    source: int
    meta: Meta
    drops: list[int]

    def words(self) -> str:
        """Return what the instruction does, in words."""
        return f"copy of a constant of shape {self.meta.shape}"

    def tasks(self, facts: Facts) -> Sequence[Task]:
        """Return the tasks that it computes."""
        return (Task(self.words(), 2 * self.meta.nbytes),)

    def run(self, run: Run) -> None:
        source = run.blob(self.source)
        owner = Storage(run.facts.device, source.owner.nbytes)
        blob = run.found[self.number] = TBlob(owner, source.dtype, source.layout, run.facts.device)
        run.facts.device.backend.assign(blob.native(), ..., source.native())
        run.words[self.word] = blob.address
        run.drop(self.drops)


class Blank(NamedTuple):
    """Memory that begins unset, where there are no kernels with whose memory it could be allocated."""

    made: Made
    drops: list[int]

    def words(self) -> str:
        """Return what the instruction does, in words."""
        return f"memory of {self.made.nbytes} bytes"

    def tasks(self, facts: Facts) -> Sequence[Task]:
        """Return no tasks, as it computes nothing."""
        return ()

    def run(self, run: Run) -> None:
        run.make((self.made,))
        run.drop(self.drops)


def _name(function: Any) -> str:
    """Return the name of a function, which may be wrapped in partial ones."""
    while isinstance(function, partial):
        function = function.func
    name = getattr(function, "__name__", type(function).__qualname__)
    return str(getattr(function, "__qualname__", name)).replace(".<locals>.<lambda>", "")


Instruction = Kernels | Blobwise | Library | Shown | Call | Copied | Blank | Checked


def _noted(instruction: Instruction, run: Run) -> None:
    """Run an instruction as one entry of a profile; one that computes nothing has no entry."""
    tasks = instruction.tasks(run.facts)
    if not tasks:
        instruction.run(run)
        return
    if isinstance(instruction, (Kernels, Blobwise)):
        kind, by = KERNEL, instruction.engine
    else:
        kind, by = LIBRARY, run.facts.device.backend.library.__name__
    with noted(kind, by, tuple([task.words for task in tasks]), sum([task.moved for task in tasks])):
        instruction.run(run)


class Facts(NamedTuple):
    """What a schedule knows before it runs.

    words: of a run, with 0 for those that vary, the addresses of the given values first. given: values that are given,
    by number. scalars: of each scalar, its index among those given to a run. packed: of the scalars of machine code,
    the word, that index, the dtype, and whether the word is the second. arena: the word of its address, and its bytes;
    temporaries: the word of the address of those of one work, and where in the arena they begin. placed: values in the
    arena that may be asked for as blobs, and where they begin. results: the numbers of the values that a run returns.
    waiting: programs to be compiled once they have come more often, and the elements of the largest loop. stop: the
    word of a run, and bytes behind it, where a kernel notes that it cannot go on; None where none can.
    """

    device: Device
    words: list[Any]
    given: Mapping[int, tuple[Leaf, Meta]]
    scalars: Mapping[int, int]
    packed: Sequence[tuple[int, int, DType, bool]]
    arena: tuple[int, int]
    temporaries: tuple[int, int]
    placed: Mapping[int, tuple[int, Meta]]
    results: Sequence[int]
    waiting: Sequence[tuple[Program, int]]
    stop: tuple[int, int] | None = None


class Schedule:
    """Work as instructions, under the settings that it was prepared for.

    keeps_arena: whether a small arena is kept for the next run, if only machine code and library functions see it,
    which keep no references to it. On another device than the CPU it is kept for runs on the same stream, which come
    after everything that the last run has launched.
    """

    def __init__(
        self, facts: Facts, instructions: Sequence[Instruction], limits: Settings, *, keeps_arena: bool = False
    ) -> None:
        self.facts, self.instructions, self.limits = facts, instructions, limits
        segments = [one.segment for one in instructions if isinstance(one, Kernels)]
        compiled = [one for one in segments if isinstance(one, Segment)]
        calls = sum([isinstance(one, (Call, Copied, Blank, Checked)) for one in instructions])
        most = KEPT_ARENA if facts.device.backend is CPU else KEPT_THERE
        hidden = len(segments) + calls == len(instructions) and 0 < facts.arena[1] <= most
        self._keeps_arena = keeps_arena and hidden
        self._arena: tuple[Any, Any, Temporaries] | None = None  # with the stream, so that no other has its key
        self.results = facts.results  # the numbers of what a run returns
        self.lasts = sum([one.size for one in compiled]) <= LONG

    def fits(self, limits: Settings) -> bool:
        """Return whether these settings ask for this schedule, and no kernel has become worth compiling."""
        if self.limits is not limits and self.limits != limits:
            return False
        waiting = self.facts.waiting
        return not waiting or not any([engines.choose(*one, limits).engine == engines.LLVM for one in waiting])

    def run(self, blobs: Sequence[TBlob], scalars: Sequence[Any]) -> list[TBlob]:
        """Return the results for memory laid out as it was at preparation, and scalars of the same types."""
        facts = self.facts
        kept, self._arena = self._arena, None  # a run inside this one, say by a finalizer, has its own
        key = stream = None
        if self._keeps_arena and facts.device.backend is not CPU:
            stream = facts.device.backend.current_stream()  # type: ignore[attr-defined]
            key = stream_key(stream)
        run = Run(facts, blobs, scalars, kept[2] if kept is not None and kept[0] == key else None)
        if observers:
            for instruction in self.instructions:
                _noted(instruction, run)
        else:
            for instruction in self.instructions:
                instruction.run(run)
        for program, largest in facts.waiting:
            engines.spend(program, largest)
        if self._keeps_arena:
            self._arena = key, stream, run.arena
            if facts.device.backend is not CPU:
                _keeping.add(self)
        found = run.found
        return [found.get(number) or run.blob(number) for number in self.results]

    def let_go(self) -> None:
        """Release memory that is kept for the next run."""
        self._arena = None


def _let_go(backend: Any) -> None:
    """Release what schedules of a device keep."""
    for one in list(_keeping):
        if one.facts.device.backend is backend:
            one.let_go()


letting_go.append(_let_go)


def _shows(blob: TBlob, leaf: Leaf, meta: Meta) -> bool:
    """Return whether a value that lies in a blob is the whole blob, in the same layout."""
    layout = blob.layout
    alike = layout.shape == meta.shape and layout.strides == meta.layout.strides
    return not leaf.after and alike and blob.dtype == meta.dtype


class Temporaries(NamedTuple):
    """Memory of temporaries. natives: by number, the arrays of those that library functions take."""

    memory: Storage
    natives: dict[int, Native]


class Run:
    """One run of a schedule. words: of machine code; blobs, scalars: those given; found: the blobs so far, by number.

    arena: one that exists already.
    """

    __slots__ = ("arena", "blobs", "facts", "found", "scalars", "words")

    arena: Temporaries

    def __init__(self, facts: Facts, blobs: Sequence[TBlob], scalars: Sequence[Any], arena: Temporaries | None) -> None:
        self.facts, self.blobs, self.scalars = facts, blobs, scalars
        self.found: dict[int, TBlob] = {}
        self.words = words = facts.words.copy()
        words[: len(blobs)] = [blob._address or blob.address for blob in blobs]
        for word, place, dtype, second in facts.packed:
            words[word] = packable(scalars[place], dtype, second)
        word, nbytes = facts.arena
        if nbytes or facts.placed:
            self.arena = arena or Temporaries(Storage(facts.device, nbytes), {})
            words[word] = begin = self.arena.memory.lend()
            word, before = facts.temporaries
            words[word] = begin + before
        if facts.stop is not None:
            ctypes.c_int64.from_address(words[facts.stop[0]] + facts.stop[1]).value = 0

    def blob(self, number: int) -> TBlob:
        """Return a value that has memory of its own, or is given."""
        found = self.found.get(number)
        if found is None:
            found = self._seen(number)
            leaf = self.facts.given.get(number)
            if leaf is None or leaf[0].given >= 0:  # a view of a value made here would keep that alive
                self.found[number] = found
        return found

    def _seen(self, number: int) -> TBlob:
        """Return a value that lies in the arena, or in memory that is given or was made before."""
        placed = self.facts.placed.get(number)
        if placed is not None:
            begin, meta = placed
            layout = Layout(meta.shape, meta.layout.strides, begin)
            return TBlob(self.arena.memory, meta.dtype, layout, self.facts.device)
        leaf, meta = self.facts.given[number]
        found = self.blobs[leaf.given] if leaf.given >= 0 else self.blob(-1 - leaf.given)
        if not _shows(found, leaf, meta):
            layout = Layout(meta.shape, meta.layout.strides, found.layout.offset + leaf.after)
            found = found.view(layout, dtype=meta.dtype)
        return found

    def lasts(self, number: int) -> bool:
        """Return whether a value lies in given memory, and is not made while this runs."""
        leaf = self.facts.given.get(number)
        return leaf is not None and leaf[0].given >= 0 and number not in self.facts.placed

    def native(self, number: int) -> Native:
        """Return the array of a value; the arena keeps the arrays of values in it."""
        if not self.facts.placed:
            return self.blob(number).native()
        natives = self.arena.natives
        found = natives.get(number)
        if found is None:
            found = self.blob(number).native()
            if self._whole(number) in self.facts.placed:
                natives[number] = found
        return found

    def _whole(self, number: int) -> int:
        """Return the value that another one is a view of."""
        given = self.facts.given
        while number in given and given[number][0].given < 0:
            number = -1 - given[number][0].given
        return number

    def operand(self, number: int) -> Native:
        """Return what a library function takes: a native array, or a scalar."""
        place = self.facts.scalars.get(number)
        if place is not None:
            return self.scalars[place]
        if number in self.found or number in self.facts.placed:
            return self.blob(number).native()
        leaf, meta = self.facts.given[number]  # the library needs only an array, no blob
        found = self.blobs[leaf.given] if leaf.given >= 0 else self.blob(-1 - leaf.given)
        if _shows(found, leaf, meta):
            return found.native()
        layout = Layout(meta.shape, meta.layout.strides, found.layout.offset + leaf.after)
        return found.device.backend.view(found.owner.bytes, meta.dtype, layout, found.writeable)

    def make(self, makes: Iterable[Made]) -> None:
        """Allocate memory for results."""
        device, words, found = self.facts.device, self.words, self.found
        for number, word, nbytes, dtype, layout, packed in makes:
            owner = Storage(device, nbytes)
            blob = found[number] = TBlob(owner, dtype, layout, device)
            blob._packed = packed
            words[word] = blob._address = owner.lend()

    def drop(self, numbers: Iterable[int]) -> None:
        """Drop values that nobody needs any more."""
        for number in numbers:
            self.found.pop(number, None)
