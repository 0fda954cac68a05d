"""Kernels that are written out, laid out once for arrays that come later: what calls are told of these is where they
begin.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from ctypes import addressof, c_char
from typing import Any, NamedTuple

from ..base.dtypes import DType
from ..base.threads import share, worth
from ..codegen.cpu.compile import Code
from .contractions import address
from .native import SCRATCH, Laid, Launch, Place, Scratch, Word

Array = Any  # NumPy's, in whose types views of unknown rank cannot be written

# The operands of convolutions and the like: inputs, weights, outputs, biases, and the slots of what follows them.
X, W, Y, BIAS, SLOTS = range(5)


class Sheet:
    """What launches for so many threads are made with: scratch memory, and tables that stay where they are."""

    def __init__(self, threads: int) -> None:
        self.threads = threads
        self.scratch = Scratch()
        self.tables: list[Array] = []

    def take(self, count: int, dtype: DType) -> Place:
        """Return a place in the scratch memory for so many numbers."""
        return Place(SCRATCH, self.scratch.take(count * dtype.itemsize))

    def keep(self, table: Array) -> int:
        """Return where a table lies, and keep it."""
        self.tables.append(table)
        return address(table)


# What makes launches.
Make = Callable[[Sheet], list[Launch]]


class Launches:
    """Kernels that run one after the other on operands that come later, for any number of threads.

    makes: of each, which take the same scratch memory in turn. operands: how many there are. seconds: what they take
    one thread. most: threads that they may have.
    """

    def __init__(self, makes: Sequence[Make], operands: int, seconds: float, most: int = 1 << 10) -> None:
        self._makes, self._formats, self._seconds, self._most = makes, "q" * operands, seconds, most
        self._laid: dict[int, tuple[Laid, list[Array]]] = {}

    def run(self, *operands: Array | None) -> None:
        """Run them on arrays that lie as those that they were made for; None for one that no word speaks of."""
        self.run_at([0 if one is None else begin_of(one) for one in operands])

    def run_at(self, words: Sequence[int]) -> None:
        """Run them on arrays that begin there."""
        threads = min(worth(self._seconds), self._most)
        if threads > 1:
            laid, _ = self._for(threads)
            if share(threads, lambda rest, boxes: laid.run(words, rest, boxes)):
                return
        self._for(1)[0].run(words)

    def made(self, threads: int) -> tuple[list[Launch], Sheet]:
        """Return the launches for so many threads, and what they were made with."""
        sheet, found = Sheet(threads), list[Launch]()
        for make in self._makes:
            found += make(sheet)
            sheet.scratch.release()
        return found, sheet

    def _for(self, threads: int) -> tuple[Laid, list[Array]]:
        laid = self._laid.get(threads)
        if laid is None:
            launches, sheet = self.made(threads)
            own = Laid(launches, threads, sheet.scratch.nbytes, self._formats)
            laid = self._laid[threads] = own, sheet.tables
        return laid


class Begun(NamedTuple):
    """What makes a result when it is told where that and what it is made of begin. run_at: of launches, returns False
    where that has to be done another way. order: the place of each operand among the result and what is given, None
    for one that there is not. odd: the bits of addresses that are 0 where arrays are aligned.
    """

    run_at: Callable[[Sequence[int]], bool | None]
    order: tuple[int | None, ...]
    odd: int

    def __call__(self, given: Sequence[int], to: int) -> bool:
        """Make it, and return whether that was done."""
        places = (to, *given)
        for place in places:
            if place & self.odd:
                return False
        return self.run_at([0 if n is None else places[n] for n in self.order]) is not False


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
