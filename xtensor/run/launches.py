"""Launches of hand-written kernels, laid out once for arrays that come later: a run is only given their addresses."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from ctypes import addressof, c_char
from typing import Any, NamedTuple
from weakref import ref

from ..base.caches import make_room
from ..base.dtypes import DType
from ..base.threads import share, worth
from ..codegen.cpu.compile import Code
from ..storage.blob import TBlob
from ..storage.pool import POOL
from ..storage.storage import first_use, trusted
from .contractions import address
from .native import SCRATCH, Laid, Launch, Place, Scratch, Word

Array = Any  # NumPy's, in whose types views of unknown rank cannot be written

# The operands of convolutions and the like: inputs, weights, outputs, biases, slots of the steps that follow, a flag
# that an output is not finite, and weights as they are laid out.
X, W, Y, BIAS, SLOTS, FLAG, PACKED = range(7)

# The fewest bytes of laid-out weights that may be kept, and the most of all that are kept; the most ways to lay out the
# weights of one memory.
KEPT_LEAST, KEPT_MOST, KEPT_WAYS = 1 << 15, 1 << 28, 16


class Sheet:
    """What launches for so many threads are made with: scratch memory, and tables that stay where they are. packing:
    launches that lay out weights and read nothing else, in memory of their own: packed.
    """

    def __init__(self, threads: int) -> None:
        self.threads = threads
        self.scratch, self.packed = Scratch(), Scratch()
        self.tables: list[Array] = []
        self.packing: list[Launch] = []

    def take(self, count: int, dtype: DType) -> Place:
        """Return a place in scratch memory for so many numbers."""
        return Place(SCRATCH, self.scratch.take(count * dtype.itemsize))

    def pack(self, count: int, dtype: DType) -> Place:
        """Return a place for so many numbers of laid-out weights, which may be kept."""
        return Place(PACKED, self.packed.take(count * dtype.itemsize))

    def keep(self, table: Array) -> int:
        """Return the address of a table, and keep the table."""
        self.tables.append(table)
        return address(table)


# A function that makes launches.
Make = Callable[[Sheet], list[Launch]]


# An object that keeps memory alive, and the address of that.
Lent = tuple[Any, int]


class Packed:
    """Weights as laid out for launches on so many threads. memory: theirs, None as long as there is none; filled: the
    memory that holds them by now, which is another one if their memory was released in between.
    """

    __slots__ = ("__weakref__", "filled", "memory", "nbytes")

    def __init__(self) -> None:
        self.let_go()

    def let_go(self) -> None:
        """Release the memory."""
        self.memory: Lent | None = None
        self.filled: Lent | None = None
        self.nbytes = 0

    def take(self, nbytes: int) -> Lent | None:
        """Return memory for so many bytes, released by the oldest if need be; None for more than can be kept."""
        memory = self.memory
        if memory is None and nbytes <= KEPT_MOST:
            with first_use:
                memory = self.memory or self._lent(nbytes)
        return memory

    def _lent(self, nbytes: int) -> Lent:
        there = [one for one in [reference() for reference in _kept] if one is not None and one.nbytes]
        while sum([one.nbytes for one in there]) + nbytes > KEPT_MOST:
            there.pop(0).let_go()
        lent = POOL.lend(nbytes)
        self.memory, self.nbytes = lent, nbytes
        _kept[:] = [ref(one) for one in (*there, self)]
        return lent


# Those that have memory, the oldest first.
_kept: list[ref[Packed]] = []


class Layouts:
    """The ways in which some memory is laid out. state: the version and changes of the memory for which they are valid.
    ways: by the launches that read them, their threads, and where the weights begin.
    """

    __slots__ = ("state", "ways")

    def __init__(self, state: tuple[int, int]) -> None:
        self.state = state
        self.ways: dict[tuple[Launches, int, int], Packed] = {}


class Keeper(NamedTuple):
    """Weights that may be kept: their address, and what is kept of their memory."""

    begin: int
    layouts: Layouts

    def packed(self, launches: Launches, threads: int) -> Packed | None:
        """Return the memory where they are kept for launches, from the second time on; the first time is only noted."""
        ways, way = self.layouts.ways, (launches, threads, self.begin)
        found = ways.get(way)
        if found is None:
            make_room(ways, KEPT_WAYS)
            ways[way] = Packed()
        return found


class Prepared(NamedTuple):
    """Launches for so many threads. whole: all of them; again: those left where weights are laid out already; nbytes:
    of laid-out weights, 0 if there are none. tables: that must be kept alive.
    """

    whole: Laid
    again: Laid
    nbytes: int
    tables: list[Array]

    def run(self, words: Sequence[int], packed: Packed | None, rest: int = 0, boxes: Sequence[int] = ()) -> None:
        """Run them on arrays at these addresses. packed: where weights may be kept, None if they may not."""
        if not self.nbytes:
            self.whole.run(words, rest, boxes)
            return
        kept = None if packed is None else packed.take(self.nbytes)
        memory = kept or POOL.lend(self.nbytes)  # held as long as this runs, even if it is released meanwhile
        is_there = kept is not None and packed is not None and packed.filled is kept
        laid = self.again if is_there else self.whole
        laid.run([*words, *[0] * (PACKED - len(words)), memory[1]], rest, boxes)
        if packed is not None:
            packed.filled = kept


class Launches:
    """Kernels that run one after the other on operands that come later, for any number of threads.

    makes: functions that make launches; these use the same scratch memory in turn. operands: their number. seconds: an
    estimate for one thread. most: threads that may be used.
    """

    def __init__(self, makes: Sequence[Make], operands: int, seconds: float, most: int = 1 << 10) -> None:
        self._makes, self._formats, self._seconds, self._most = makes, "q" * operands, seconds, most
        self._prepared: dict[int, Prepared] = {}

    def run(self, *operands: Array | None) -> None:
        """Run them on arrays that lie like those they were made for; None for an operand that they do not use."""
        self.run_at([0 if one is None else begin_of(one) for one in operands])

    def run_at(self, words: Sequence[int], keeper: Keeper | None = None) -> None:
        """Run them on arrays at these addresses. keeper: what `kept` returns."""
        threads = min(worth(self._seconds), self._most)
        if threads > 1:
            ready = self._for(threads)
            packed = None if keeper is None else keeper.packed(self, threads)
            if share(threads, lambda rest, boxes: ready.run(words, packed, rest, boxes)):
                return
        self._for(1).run(words, None if keeper is None else keeper.packed(self, 1))

    def kept(self, weights: TBlob) -> Keeper | None:
        """Return how laid-out weights are kept for as long as the weights stay the same; None where that is not worth
        it, or others outside can write to them. Writes of other threads are counted when they end, so that no
        half-written weights are used again.
        """
        owner = weights.owner
        if self.laid_out < KEPT_LEAST or owner.is_written:
            return None
        if owner.shared and (owner in trusted.owners or owner.is_exposed()):
            return None
        state, layouts = (owner.version, owner.changes), owner.layouts
        if layouts is None or layouts.state != state:
            layouts = owner.layouts = Layouts(state)
        return Keeper(weights.address, layouts)

    @property
    def seconds(self) -> float:
        """The estimate for one thread."""
        return self._seconds

    @property
    def laid_out(self) -> int:
        """Bytes of the weights that one thread lays out."""
        return self._for(1).nbytes

    def made(self, threads: int) -> tuple[list[Launch], Sheet]:
        """Return the launches for so many threads, without those that lay out weights, and the sheet of these."""
        sheet, found = Sheet(max(min(threads, self._most), 1)), list[Launch]()
        for make in self._makes:
            found += make(sheet)
            sheet.scratch.release()
        return found, sheet

    def _for(self, threads: int) -> Prepared:
        found = self._prepared.get(threads)
        if found is None:
            launches, sheet = self.made(threads)
            nbytes, scratch = sheet.packed.nbytes, sheet.scratch.nbytes
            formats = "q" * (PACKED + 1) if nbytes else self._formats
            whole, again = [Laid(one, threads, scratch, formats) for one in ([*sheet.packing, *launches], launches)]
            found = self._prepared[threads] = Prepared(whole, again, nbytes, sheet.tables)
        return found


class Begun(NamedTuple):
    """Computes a result from the addresses of that and of the given arrays. launches: Launches, or what runs like them
    and returns False where it has to be done another way. order: the place of each operand among the result and the
    given arrays, None for one that is absent. keeps: whether the second array given are weights that may be laid out.
    """

    launches: Any
    order: tuple[int | None, ...]
    keeps: bool = False

    def __call__(self, given: Sequence[int], to: int, keeper: Keeper | None = None) -> bool:
        """Compute it, and return whether that was done. keeper: how weights are kept."""
        places = (to, *given)
        words = [0 if n is None else places[n] for n in self.order]
        return self.launches.run_at(words, keeper) is not False


def shared(code: Code, calls: Sequence[Sequence[Word]], threads: int) -> Launch:
    """Return the launch of a kernel with the words of its calls, dealt out to so many threads."""
    return dealt(code, [calls[n::threads] for n in range(min(threads, len(calls)))])


def dealt(code: Code, groups: Sequence[Sequence[Sequence[Word]]]) -> Launch:
    """Return the launch of a kernel with the words of the calls of each thread, which makes them in order."""
    words: list[int] = []
    fillings: list[tuple[int, int, int]] = []
    for call in [call for group in groups for call in group]:
        for word in call:
            if isinstance(word, Place):
                fillings.append((len(words), word.number, word.after))
            words.append(0 if isinstance(word, Place) else word)
    return Launch(code, tuple(map(len, groups)), len(groups[0][0]), words, fillings)


def behind(word: Word, nbytes: int) -> Word:
    """Return the place, or address, so many bytes behind another one."""
    return Place(word.number, word.after + nbytes) if isinstance(word, Place) else word + nbytes


def begin_of(array: Array) -> int:
    """Return the address of an array, in a quarter of the time of `address` if it is contiguous and writable."""
    try:
        return addressof(c_char.from_buffer(array))
    except (TypeError, ValueError):
        return address(array)


class View:
    """How a view of an operand lies. at: the operand, and bytes to its first element; steps: strides in elements."""

    __slots__ = ("at", "dtype", "is_contiguous", "shape", "steps")

    def __init__(self, view: Array, operand: int, base: Array) -> None:
        self.at = Place(operand, address(view) - address(base))
        self.shape, self.dtype = view.shape, view.dtype
        self.steps = tuple([step // view.itemsize for step in view.strides])
        self.is_contiguous = view.flags.c_contiguous

    def place(self, *where: int) -> Place:
        """Return the place of an element, given its indices along the first axes."""
        far = sum([n * step for n, step in zip(where, self.steps, strict=False)])
        return Place(self.at.number, self.at.after + far * self.dtype.itemsize)
