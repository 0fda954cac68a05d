"""Segments: kernels of a CUDA device with nothing else between them, as launches and as graphs of these.

A segment that is repeated on one stream is recorded as a CUDA graph, which the host launches at once. The arguments of
a graph's kernels are fixed, but addresses and scalars differ from run to run: kernels read them from a table on the
device, which a kernel launched before the graph fills in. Each graph has its own table, and belongs to one stream, so
that nothing writes the table before all that reads it is done.

A library's function, such as a matrix product of cuBLAS, reads no table. If its operands have the same addresses at
every run, as temporaries do, the graph has these; operands that have been seen to move are copied to and from memory
that belongs to the graph, and the copies read the table.
"""

from __future__ import annotations

import struct
import warnings
from collections.abc import Callable, Sequence
from itertools import accumulate, count
from typing import Any, NamedTuple
from weakref import WeakSet, WeakValueDictionary, ref

from ..codegen.cpu.vector import LacksError
from ..codegen.cuda import nvrtc as cuda_build
from ..codegen.cuda.kernel import VECTOR, placed, table_text
from ..devices import Device
from ..devices.cublas import WORKSPACE
from ..devices.cuda_memory import letting_go, stream_key
from ..plan.layouts import Task
from ..storage.pool import ALIGNMENT
from ..storage.storage import Storage
from .cuda import Launcher, Launches
from .cuda_products import ToldOnce
from .native import scalar_words

# Runs on a stream after which a graph is recorded, the fewest launches for which it pays (a graph takes two, one of
# them for its table), the most graphs of all, and of a segment; the sizes of tables in words.
REPEATS, LEAST, MOST, STREAMS = 4, 3, 256, 4
TABLES = (16, 64, 256)

# Graphs of one segment that may be dropped because addresses in their products no longer hold.
ATTEMPTS = 4

# All graphs, and a counter of their launches; the scratch memory of products for each device and stream whose graphs
# have some.
_graphs: WeakSet[Graph] = WeakSet()
_uses = count()
_workspaces: WeakValueDictionary[tuple[str, tuple[int, int]], Storage] = WeakValueDictionary()

# Where an operand lies: the word of a run that has its memory's address, and the offset from there.
Place = tuple[int, int]


class Step(NamedTuple):
    """One kernel, or several that run as one. places: of each operand. scalars: the places of its scalars among those
    of a run; changing: whether these differ from run to run. instead: does its work if it cannot be launched.
    """

    launcher: Launcher
    places: Sequence[Place]
    scalars: Sequence[int]
    changing: bool
    instead: Callable[[Any, LacksError], None]
    task: Task

    def addresses(self, words: Sequence[int]) -> list[int]:
        """Return the addresses of its operands."""
        return [words[word] + after for word, after in self.places]

    def told(self, scalars: Sequence[Any]) -> bytes:
        """Return the words of its scalars."""
        return scalar_words([scalars[place] for place in self.scalars], self.launcher.dtypes) if self.scalars else b""


class Segment:
    """Steps in order. The first runs launch one kernel after the other, later ones a graph if the stream has one."""

    def __init__(self, device: Device) -> None:
        self.device = device
        self.steps: list[Step] = []
        self.graphs: dict[int, Graph | None] = {}
        self.moving: set[Place] = set()  # operands of products whose addresses have changed: graphs copy them
        self._lay: dict[Place, int] = {}
        self._lost = 0
        self._runs: dict[int, int] = {}
        self._told: tuple[Any, list[bytes] | None] = None, None

    def add(self, step: Step) -> None:
        """Add a step."""
        self.steps.append(step)

    @property
    def tasks(self) -> list[Task]:
        """The tasks of its steps."""
        return [step.task for step in self.steps]

    def words(self) -> str:
        """Return a description of it."""
        graphs = sum([graph is not None for graph in self.graphs.values()])
        how = "as a CUDA graph" if graphs else "one after the other"
        return f"{len(self.steps)} kernels on {self.device}, launched {how}"

    def run(self, run: Any) -> None:
        """Launch all steps of a run on the current stream, without waiting for them."""
        stream = self.device.backend.current_stream()  # type: ignore[attr-defined]
        graph, told = self.graphs.get(stream.ptr), self.scalars(run.scalars)
        if graph is not None and graph.launch(run, told):
            return
        if not self._runs and len(self.steps) > 1:
            self._build(run.words)
        found = [self._launched(step, run, scalars, stream.ptr) for step, scalars in zip(self.steps, told, strict=True)]
        if stream.ptr not in self.graphs:
            self._count(run, stream, found)

    def scalars(self, given: Any) -> list[bytes]:
        """Return the words of each step's scalars; they are kept, as a captured function mostly gives the same list."""
        known, told = self._told
        if told is None:
            told = [step.told(given) for step in self.steps]
        elif known is not given:
            told = [step.told(given) if step.changing else one for step, one in zip(self.steps, told, strict=True)]
        self._told = given, told
        return told

    def _build(self, words: Sequence[int]) -> None:
        """Compile the kernels of all steps in parallel."""
        with cuda_build.drafting() as texts:
            for launcher, addresses in [(step.launcher, step.addresses(words)) for step in self.steps]:
                launcher.new([address % VECTOR for address in addresses])
        if len(texts) > 1:
            cuda_build.build_ahead(texts, self.device.backend, self.steps[0].launcher.contract)

    def _launched(self, step: Step, run: Any, scalars: bytes, stream: int) -> Launches | LacksError:
        """Launch a step with these scalars; memory between its launches may be used again by later work of the stream.
        Return the launches, or the error if the step was done another way.
        """
        addresses = step.addresses(run.words)
        found = step.launcher.launches(addresses)
        if not isinstance(found, Launches):
            step.instead(run, found)
            return found
        memory = [Storage(self.device, nbytes) for nbytes in found.between]
        addresses += [one.address for one in memory]
        try:
            for launch in found.launches:
                launch(addresses, scalars, stream)
        except LacksError as lack:  # of a library's function that refuses what it is asked for
            lack = lack.with_traceback(None)
            step.instead(run, lack)
            return lack
        return found

    def _count(self, run: Any, stream: Any, found: Sequence[Launches | LacksError]) -> None:
        """Count a run on a stream, and record a graph after enough of them."""
        runs = self._runs[stream.ptr] = self._runs.get(stream.ptr, 0) + 1
        self._follow(run.words)
        if runs < REPEATS or len(self.graphs) >= STREAMS:
            return
        works = [one for one in found if isinstance(one, Launches)]
        pays = len(works) == len(found) and sum([len(one.launches) for one in works]) >= LEAST
        pays = pays and self._lost < ATTEMPTS
        self.graphs[stream.ptr] = _recorded(self, run, stream, works) if pays else None

    def _follow(self, words: Sequence[int]) -> None:
        """Note which operands of products, of those that can be copied, have moved since the run before."""
        for step in self.steps:
            if not isinstance(step.launcher, ToldOnce):
                continue
            for number, (place, address) in enumerate(zip(step.places, step.addresses(words), strict=True)):
                if self._lay.get(place, address) != address and step.launcher.packed_nbytes(number) is not None:
                    self.moving.add(place)
                self._lay[place] = address

    def forget(self, graph: Graph) -> None:
        """Drop a graph; it is recorded anew after as many runs of the segment."""
        self.graphs.pop(graph.stream.ptr, None)
        self._runs.pop(graph.stream.ptr, None)

    def lose(self, graph: Graph) -> None:
        """Drop a graph whose products have addresses that no longer hold."""
        self._lost += 1
        self.forget(graph)


# ---- graphs


class Graph:
    """A segment's launches as one, on a stream.

    words: the words of a run that come first in its table; aligned: how far each was behind a multiple of a vector;
    room: the bytes of the memory between launches, whose address comes next; beside: memory for the copies of products'
    operands, whose address follows. changing: the steps whose scalars come last in the table. fixed: the addresses that
    operands of products must have; workspace: scratch memory of products. used: the number of its last launch among
    those of all graphs.
    """

    def __init__(self, segment: Segment, run: Any, stream: Any, works: Sequence[Launches]) -> None:
        self.segment, self.device, self.stream = ref(segment), segment.device, stream
        told = segment.scalars(run.scalars)
        self.changing = [place for place, step in enumerate(segment.steps) if step.changing and told[place]]
        self.words = list(dict.fromkeys([word for step in segment.steps for word, _ in step.places]))
        self.aligned = [run.words[word] % VECTOR for word in self.words]
        self.room = max([sum(map(_rounded, one.between)) for one in works])
        self.fixed = dict[Place, int]()
        self.workspace, self.beside = self._memory_of_products(segment, run.words, stream)
        taken = 8 * (len(self.words) + 2) + sum([len(told[place]) for place in self.changing])
        entries = next((size for size in TABLES if 8 * size >= taken), 0)
        if not entries:
            raise LacksError("table of so many words")
        backend: Any = segment.device.backend
        self.fill = cuda_build.function_of(("table", entries), lambda: table_text(entries), backend, False)
        self.table = Storage(segment.device, 8 * entries)
        self.pack = struct.Struct(f"={1 + len(self.words) + 2}Q").pack
        self.nbytes = 8 * (1 + entries)
        self.filled = b""
        self.launches = [one for work in works for one in work.launches]  # keeps their code alive
        self.graph = backend.graph(lambda number: self._record(segment, run, told, works, number))
        self.used = next(_uses)

    def _memory_of_products(
        self, segment: Segment, words: Sequence[int], stream: Any
    ) -> tuple[Storage | None, Storage | None]:
        """Return scratch memory of products, and memory for copies of their operands, None where there are none."""
        products = [step for step in segment.steps if isinstance(step.launcher, ToldOnce)]
        if not products:
            return None, None
        nbytes = 0
        for step in products:
            places = zip(step.places, step.addresses(words), strict=True)
            self.fixed |= {place: address for place, address in places if place not in segment.moving}
            nbytes += sum([_rounded(nbytes) for _, nbytes in _copied(step, segment.moving)])
        key = (str(segment.device), stream_key(stream))
        workspace = _workspaces.get(key)
        if workspace is None:
            workspace = _workspaces[key] = Storage(segment.device, WORKSPACE)
        return workspace, Storage(segment.device, nbytes) if nbytes else None

    def _record(
        self, segment: Segment, run: Any, told: Sequence[bytes], works: Sequence[Launches], stream: int
    ) -> None:
        entry = {word: place for place, word in enumerate(self.words)}
        after_words = self.table.address + 8 * (len(self.words) + 2)
        begins = accumulate([len(told[place]) for place in self.changing], initial=after_words)
        where = dict(zip(self.changing, begins, strict=False))
        beside = 0
        for number, (step, work) in enumerate(zip(segment.steps, works, strict=True)):
            places = [placed(entry[word], after) for word, after in step.places]
            if isinstance(step.launcher, ToldOnce):
                beside += self._record_product(step, step.addresses(run.words), places, beside, segment.moving, stream)
                continue
            begin = 0
            for nbytes in work.between:
                places.append(placed(len(self.words), begin))
                begin += _rounded(nbytes)
            for launch in work.launches:
                launch(places, told[number], stream, self.table.address, where.get(number, 0))

    def _record_product(
        self, step: Step, addresses: list[int], places: Sequence[int], begin: int, moving: set[Place], stream: int
    ) -> int:
        """Record a product, and before and after it copies of operands that have been seen to move; return the bytes of
        these. begin: their offset in the graph's memory for copies. places: of the operands, in the table.
        """
        launcher, at, aligned = step.launcher, begin, [address % VECTOR for address in addresses]
        assert isinstance(launcher, ToldOnce)
        after: list[Any] = []
        copied = _copied(step, moving)
        for number, nbytes in copied:
            assert self.beside is not None
            launches = launcher.copies(number, addresses[number])
            own = placed(len(self.words) + 1, at)
            for launch in launches:
                if number == launcher.result:
                    after.append((launch, (own, places[number])))
                else:
                    launch((places[number], own), b"", stream, self.table.address)
            self.launches += launches
            addresses[number] = self.beside.address + at
            at += _rounded(nbytes)
        product = launcher.packed([number for number, _ in copied], aligned)
        product(addresses, b"", stream, workspace=self.workspace.address if self.workspace else 0)
        for launch, told in after:
            launch(told, b"", stream, self.table.address)
        return at - begin

    def launch(self, run: Any, scalars: Sequence[bytes]) -> bool:
        """Launch it for the memory and the scalars of a run; return False, with nothing done, if it does not fit that
        run.
        """
        words = [run.words[word] for word in self.words]
        if self.stream.ptr and self.stream.is_capturing():  # a graph of the user's would lack the filling of the table
            return False
        if [word % VECTOR for word in words] != self.aligned:
            return False
        for (word, after), address in self.fixed.items():
            if run.words[word] + after != address:
                if (owner := self.segment()) is not None:
                    owner.lose(self)
                return False
        room = Storage(self.device, self.room) if self.room else None
        told = self.pack(
            self.table.address, *words, room.lend() if room else 0, self.beside.address if self.beside else 0
        )
        told = b"".join([told, *[scalars[place] for place in self.changing]]).ljust(self.nbytes, b"\0")
        if told != self.filled:
            self.filled = b""
            cuda_build.launch(self.fill, (1, 1), 1, 0, (told,), self.stream.ptr)
            self.filled = told
        self.device.backend.call(self.graph.launch, self.stream)
        self.used = next(_uses)
        return True


def _copied(step: Step, moving: set[Place]) -> list[tuple[int, int]]:
    """Return the operands of a product that are copied for a graph, by their places, and the bytes of each."""
    launcher = step.launcher
    assert isinstance(launcher, ToldOnce)
    found = [(number, launcher.packed_nbytes(number)) for number, place in enumerate(step.places) if place in moving]
    return [(number, nbytes) for number, nbytes in found if nbytes is not None]


def _forget(backend: Any) -> None:
    """Drop all graphs of a device, with their tables."""
    for graph in list(_graphs):
        owner = graph.segment()
        if graph.device.backend is backend and owner is not None:
            owner.forget(graph)


letting_go.append(_forget)


def _rounded(nbytes: int) -> int:
    return -(-nbytes // ALIGNMENT) * ALIGNMENT


def _recorded(segment: Segment, run: Any, stream: Any, works: Sequence[Launches]) -> Graph | None:
    """Return a graph of a segment; None where CUDA refuses to record one."""
    while len(_graphs) >= MOST:
        oldest = min(_graphs, key=lambda graph: graph.used)
        _graphs.discard(oldest)
        owner = oldest.segment()
        if owner is not None:
            owner.forget(oldest)
    try:
        graph = Graph(segment, run, stream, works)
        _graphs.add(graph)
        return graph
    except LacksError:
        return None
    except RuntimeError as error:  # CUDARuntimeError
        text = f"xtensor: no CUDA graph: {error}; kernels are launched one after the other"
        warnings.warn(text, RuntimeWarning, stacklevel=2)
        return None
