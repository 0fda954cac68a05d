"""Kernels that are written out, laid out once for arrays that come later: what calls are told of these is where they
begin.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from ctypes import addressof, c_char
from typing import Any, NamedTuple
from weakref import WeakSet

from ..base.dtypes import DType
from ..base.threads import share, worth
from ..codegen.cpu.compile import Code
from ..storage.blob import TBlob
from ..storage.pool import POOL
from ..storage.storage import NEVER
from .contractions import address
from .native import SCRATCH, Laid, Launch, Place, Scratch, Word

Array = Any  # NumPy's, in whose types views of unknown rank cannot be written

# The operands of convolutions and the like: inputs, weights, outputs, biases, slots of what follows or what says
# that an output is not finite, and weights as they are laid out.
X, W, Y, BIAS, SLOTS, PACKED = range(6)
FLAG = SLOTS

# Bytes of weights that are laid out from which on they may be kept, and of all that are kept.
KEPT_LEAST, KEPT_MOST = 1 << 15, 1 << 28


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
        """Return a place in the scratch memory for so many numbers."""
        return Place(SCRATCH, self.scratch.take(count * dtype.itemsize))

    def pack(self, count: int, dtype: DType) -> Place:
        """Return a place for so many numbers of weights that are laid out, which may be kept."""
        return Place(PACKED, self.packed.take(count * dtype.itemsize))

    def keep(self, table: Array) -> int:
        """Return where a table lies, and keep it."""
        self.tables.append(table)
        return address(table)


# What makes launches.
Make = Callable[[Sheet], list[Launch]]


class Packed:
    """Weights as launches lay them out, of memory as it is: key says of which state. base: where they lie; threads: for
    how many they were laid out, 0 as long as they are not.
    """

    __slots__ = ("__weakref__", "base", "key", "memory", "nbytes", "threads")

    def __init__(self, key: tuple[int, ...]) -> None:
        self.key, self.memory, self.base, self.nbytes, self.threads = key, None, 0, 0, 0

    def room(self, nbytes: int) -> bool:
        """Take memory for so many bytes; return whether they can be kept."""
        if self.memory is None or self.nbytes != nbytes:
            if sum([one.nbytes for one in _kept]) + nbytes > KEPT_MOST:
                return False
            (self.memory, self.base), self.nbytes, self.threads = POOL.lend(nbytes), nbytes, 0
            _kept.add(self)
        return True


# Those that have memory.
_kept: WeakSet[Packed] = WeakSet()


class Prepared(NamedTuple):
    """Launches for so many threads. whole: all of them; rest: what is left where weights are laid out; nbytes: of
    these, 0 where there are none. tables: what must live.
    """

    threads: int
    whole: Laid
    rest: Laid
    nbytes: int
    tables: list[Array]

    def run(self, words: Sequence[int], packed: Packed | None, rest: int = 0, boxes: Sequence[int] = ()) -> None:
        """Run them on arrays that begin there. packed: where weights may be kept; None where they may not."""
        if not self.nbytes:
            self.whole.run(words, rest, boxes)
            return
        words = [*words, *[0] * (PACKED - len(words))]
        if packed is None or not packed.room(self.nbytes):
            memory, base = POOL.lend(self.nbytes)  # which is kept as long as this runs
            self.whole.run([*words, base], rest, boxes)
        elif packed.threads == self.threads:
            self.rest.run([*words, packed.base], rest, boxes)
        else:
            packed.threads = 0
            self.whole.run([*words, packed.base], rest, boxes)
            packed.threads = self.threads


class Launches:
    """Kernels that run one after the other on operands that come later, for any number of threads.

    makes: of each, which take the same scratch memory in turn. operands: how many there are. seconds: what they take
    one thread. most: threads that they may have.
    """

    def __init__(self, makes: Sequence[Make], operands: int, seconds: float, most: int = 1 << 10) -> None:
        self._makes, self._formats, self._seconds, self._most = makes, "q" * operands, seconds, most
        self._prepared: dict[int, Prepared] = {}

    def run(self, *operands: Array | None) -> None:
        """Run them on arrays that lie as those that they were made for; None for one that no word speaks of."""
        self.run_at([0 if one is None else begin_of(one) for one in operands])

    def run_at(self, words: Sequence[int], packed: Packed | None = None) -> None:
        """Run them on arrays that begin there. packed: what `kept` returns."""
        threads = min(worth(self._seconds), self._most)
        if threads > 1:
            ready = self._for(threads)
            if share(threads, lambda rest, boxes: ready.run(words, packed, rest, boxes)):
                return
        self._for(1).run(words, packed)

    def kept(self, weights: TBlob) -> Packed | None:
        """Return where weights are kept as they are laid out, from the second time on that they come unchanged; None
        where that is not worth it, or others can write to them.
        """
        owner = weights.owner
        if self._for(1).nbytes < KEPT_LEAST or owner.shared or owner.laid_out is NEVER:
            return None
        owner.laid_out = kept = {} if owner.laid_out is None else owner.laid_out
        place, key = (self, weights.address), (owner.version, owner.exposures)
        found: Packed | None = kept.get(place)
        if found is not None and found.key == key:
            return found
        kept[place] = Packed(key)
        return None

    def made(self, threads: int) -> tuple[list[Launch], Sheet]:
        """Return the launches for so many threads, and what they were made with."""
        sheet, found = Sheet(threads), list[Launch]()
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
            whole, rest = [Laid(one, threads, scratch, formats) for one in ([*sheet.packing, *launches], launches)]
            found = self._prepared[threads] = Prepared(threads, whole, rest, nbytes, sheet.tables)
        return found


class Begun(NamedTuple):
    """What makes a result when it is told where that and what it is made of begin. run_at: of launches, returns False
    where that has to be done another way. order: the place of each operand among the result and what is given, None
    for one that there is not. odd: the bits of addresses that are 0 where arrays are aligned. kept: of launches, what
    they keep of the second of what is given, its weights; None where that are none.
    """

    run_at: Callable[..., bool | None]
    order: tuple[int | None, ...]
    odd: int
    kept: Callable[[TBlob], Packed | None] | None = None

    def __call__(self, given: Sequence[int], to: int, packed: Packed | None = None) -> bool:
        """Make it, and return whether that was done. packed: where weights are kept."""
        places = (to, *given)
        if any([place & self.odd for place in places]):
            return False
        words = [0 if n is None else places[n] for n in self.order]
        return (self.run_at(words) if packed is None else self.run_at(words, packed)) is not False


def shared(code: Code, calls: Sequence[Sequence[Word]], threads: int) -> Launch:
    """Return a kernel with the words of its calls, dealt out to so many threads."""
    return dealt(code, [calls[n::threads] for n in range(min(threads, len(calls)))])


def dealt(code: Code, groups: Sequence[Sequence[Sequence[Word]]]) -> Launch:
    """Return a kernel with the words of the calls of each thread, which makes them in order."""
    words: list[int] = []
    fillings: list[tuple[int, int, int]] = []
    for call in [call for group in groups for call in group]:
        for word in call:
            if isinstance(word, Place):
                fillings.append((len(words), word.number, word.after))
            words.append(0 if isinstance(word, Place) else word)
    return Launch(code, tuple(map(len, groups)), len(groups[0][0]), words, fillings)


def behind(word: Word, nbytes: int) -> Word:
    """Return the place so many bytes behind one."""
    return Place(word.number, word.after + nbytes) if isinstance(word, Place) else word + nbytes


def begin_of(array: Array) -> int:
    """Return where an array lies, in a quarter of the time of `address` where it is contiguous and writable."""
    try:
        return addressof(c_char.from_buffer(array))
    except (TypeError, ValueError):
        return address(array)


class View:
    """How a view of an operand lies. at: the operand, and bytes to the view's first element; steps: in elements."""

    __slots__ = ("at", "dtype", "is_contiguous", "shape", "steps")

    def __init__(self, view: Array, operand: int, base: Array) -> None:
        self.at = Place(operand, address(view) - address(base))
        self.shape, self.dtype = view.shape, view.dtype
        self.steps = tuple([step // view.itemsize for step in view.strides])
        self.is_contiguous = view.flags.c_contiguous

    def place(self, *where: int) -> Place:
        """Return where an element of the first axes lies."""
        far = sum([n * step for n, step in zip(where, self.steps, strict=False)])
        return Place(self.at.number, self.at.after + far * self.dtype.itemsize)
