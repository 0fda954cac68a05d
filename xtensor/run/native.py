"""Machine code run for a list of kernels: the words that each call is given, and the one call that runs them all.

A launch is a kernel with the words of its calls. Most words are known when a schedule is prepared; addresses and
scalars are filled in by the driver at every run (codegen/cpu/driver.py), from the words of the run.
"""

from __future__ import annotations

import ctypes
import struct
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from itertools import count, product
from math import inf
from time import perf_counter
from typing import Any, NamedTuple, Protocol

import numpy as np

from ..base import threads as sharing
from ..base.errors import UntouchedError
from ..base.threads import WAKE_PAYS, share, worth
from ..base.threads import count as threads_here
from ..codegen.cpu.compile import CHEAP, HOT_CALLS, Code, CompileError, improve
from ..codegen.cpu.driver import HEAD, SHARE_WORDS, TABLE_WORDS, driver
from ..codegen.cpu.holding import one_thread
from ..codegen.cpu.moves import CROSSWISE, STRIDED
from ..plan.costs import DISPATCH_SAVES
from ..plan.layouts import Task
from ..storage.pool import ALIGNMENT, POOL
from ..storage.storage import Native
from .nest import Box, Nest

# The number that stands for the scratch memory in which a kernel's launches hand on results to each other.
SCRATCH = -1

# Bytes of a word.
WORD = 8

# Of every PERIOD runs, the first TRIALS try whether several threads are faster than one: half with one, then half with
# several, so that workers that one run wakes watch for the next. Work of LONG_SECONDS is shared in any case.
PERIOD, TRIALS, LONG_SECONDS = 128, 8, 0.005

# Seconds of a kernel that another thread is worth inside a run whose workers are there. (A perceptron's training step
# on two threads takes .87 of the time with 15e-6.)
PART_PAYS = 2e-6

# A scalar: the number of a value, whose word is filled in at each run, or the words themselves.
Scalar = int | bytes


class Place(NamedTuple):
    """Where an operand's first element is: the number of a value, or SCRATCH, and the bytes from its beginning."""

    number: int
    after: int = 0


# A word of a call: a number, or a place, whose address is filled in.
Word = int | Place


class Scratch:
    """Memory that the launches of one kernel share while it runs; those of the next kernel use it again."""

    def __init__(self) -> None:
        self.nbytes = self._taken = 0

    def take(self, nbytes: int) -> int:
        """Return the offset of so many bytes."""
        begin = self._taken
        self._taken += -(-nbytes // ALIGNMENT) * ALIGNMENT
        self.nbytes = max(self.nbytes, self._taken)
        return begin

    def release(self) -> None:
        """Take back all memory."""
        self._taken = 0


class Making(NamedTuple):
    """How launches are made. threads: among which each is shared; contract: whether multiply-adds are contracted;
    aligned: whether results that are written begin alike, where vectors do; scratch: memory to work in; whole: whether
    products are left to the BLAS's threads instead of ours.
    """

    threads: int
    contract: bool
    aligned: bool
    scratch: Scratch
    whole: bool = False


class Launch(NamedTuple):
    """A kernel with the words of its calls.

    counts: the calls of each thread. size: the words of a call. words: of all calls, one after the other, 0 where one
    is filled in. fillings: the index of such a word, the number of the value it comes from, and what is added. held:
    whether it calls the BLAS for parts of products, and that is to be held to one thread; whole: for whole ones, which
    its own threads may share.
    """

    code: Code
    counts: tuple[int, ...]
    size: int
    words: list[int]
    fillings: list[tuple[int, int, int]]
    held: bool = False
    whole: bool = False


def launch_of(
    code: Code,
    nest: Nest,
    depth: int,
    lie: Sequence[str | None],
    groups: Sequence[Sequence[Box]],
    places: Sequence[Place],
    scalars: Sequence[Scalar],
    making: Making,
    *,
    ahead: Mapping[int, int],
    own: Sequence[int],
    goes_on: bool = False,
) -> Launch:
    """Return the launch of a kernel over the boxes of each group, one thread for each group.

    depth: the loops inside the kernel; there is a call for each position of the others. lie: how operands lie along the
    innermost loop. ahead: how many bytes ahead inputs are prefetched, by index. own: bytes of scratch memory for each
    thread. goes_on: whether code is told that rows go on before and after a box.
    """
    kept = [
        strides[len(strides) - depth :] if how in (STRIDED, CROSSWISE) else strides[len(strides) - depth : -1]
        for strides, how in zip(nest.strides, lie, strict=True)
    ]
    for at, distance in ahead.items():
        kept[at] = (*kept[at], distance)
    words: list[int] = []
    fillings: list[tuple[int, int, int]] = []
    counts = []
    for boxes in groups:
        rooms = [making.scratch.take(nbytes) for nbytes in own]
        calls = [call for box in boxes for call in _calls(nest, depth, box, goes_on)]
        counts.append(len(calls))
        for lengths, offsets in calls:
            words += lengths
            for strides, place, offset in zip(kept, places, offsets, strict=True):
                fillings.append((len(words), place.number, place.after + offset))
                words += (0, *strides)
            for room in rooms:
                fillings.append((len(words), SCRATCH, room))
                words.append(0)
            enter_scalars(scalars, words, fillings)
    return Launch(code, tuple(counts), len(words) // sum(counts), words, fillings)


def enter_scalars(scalars: Sequence[Scalar], words: list[int], fillings: list[tuple[int, int, int]]) -> None:
    """Append the words of scalars, and the fillings of those that vary."""
    for scalar in scalars:
        if isinstance(scalar, bytes):
            words += word_values(scalar)
        else:
            fillings.append((len(words), scalar, 0))
            words.append(0)


def _calls(nest: Nest, depth: int, box: Box, goes_on: bool) -> list[tuple[list[int], list[int]]]:
    """Return the calls that cover a box: the first words of each, and the offsets of its operands."""
    outer = len(nest.lengths) - depth
    around = (-(box.starts[-1] > 0), -(box.starts[-1] + box.lengths[-1] < nest.lengths[-1])) if goes_on else ()
    lengths = [*box.lengths[outer:], *around]
    ranges = [range(start, start + n) for start, n in zip(box.starts[:outer], box.lengths[:outer], strict=True)]
    calls = []
    for position in product(*ranges):
        calls.append((lengths, nest.offsets((*position, *box.starts[outer:]))))
    return calls


# ---- words of a run


_DOUBLE, _SINGLE, _WHOLE = struct.Struct("=d").pack, struct.Struct("=f4x").pack, struct.Struct("=q").pack


def second_word(number: int) -> int:
    """Return the number for the second word of a scalar of two words: no value and no memory has it."""
    return SCRATCH - 1 - number


def scalar_numbers(numbers: Iterable[int], dtypes: Iterable[Any]) -> list[int]:
    """Return the numbers of all words of scalars."""
    found = []
    for number, dtype in zip(numbers, dtypes, strict=True):
        found += [number, second_word(number)] if dtype.itemsize > WORD else [number]
    return found


def scalar_word(value: Any, dtype: Any) -> bytes:
    """Return a Python scalar as one word, or two for complex128, converted as NumPy converts it."""
    kind, letter = type(value), dtype.char
    if kind is float or (kind is int and 0 <= value <= 127):
        if letter == "d":
            return _DOUBLE(value)
        if letter == "f" and -1e38 < value < 1e38:
            return _SINGLE(value)
        if kind is int and dtype.kind in "iu":
            return _WHOLE(value)
    with np.errstate(all="ignore"):
        return np.array(value).astype(dtype).tobytes().ljust(8, b"\0")


def scalar_words(values: Iterable[Any], dtypes: Iterable[Any]) -> bytes:
    """Return the words of Python scalars, one after the other."""
    return b"".join([scalar_word(value, dtype) for value, dtype in zip(values, dtypes, strict=True)])


def scalar_format(dtype: Any) -> str:
    """Return the format in which `struct` packs the word of a scalar."""
    return {"d": "d", "f": "f4x"}.get(dtype.char, "q")


def word_values(words: bytes) -> list[int]:
    """Return words as integers."""
    return [int.from_bytes(words[at : at + WORD], "little", signed=True) for at in range(0, len(words), WORD)]


# The first integer that 64 bits with a sign do not hold.
_SIGN = 1 << 63


def whole(value: int) -> int:
    """Return an integer for a word of 64 bits; raises OverflowError if it does not fit."""
    if -_SIGN <= value < _SIGN:
        return value
    raise OverflowError(f"{value} does not fit into 64 bits")


def packable(value: Any, dtype: Any, second: bool = False) -> Any:
    """Return a Python scalar as `struct` takes it for its format. second: for the second of two words."""
    if dtype.char == "d":
        return value
    if dtype.char == "f":
        return value if -1e38 < value < 1e38 else _rounded(value)
    return word_values(scalar_word(value, dtype))[second]


def _rounded(value: Any) -> float:
    with np.errstate(all="ignore"):
        return float(np.float32(value))


# ---- lists of launches


# A word that is always 0, for launches that nothing stops.
_ZERO = np.zeros(1, np.int64)
_NEVER: int = _ZERO.__array_interface__["data"][0]


class Laid:
    """Launches laid out for the driver, with the words of a run in place of values. formats: of those words; stop:
    where a kernel notes that nothing more is to be launched, as a word of a run and bytes behind it, None if none can.
    """

    def __init__(
        self,
        launches: Sequence[Launch],
        threads: int,
        nbytes: int,
        formats: Sequence[str],
        stop: tuple[int, int] | None = None,
    ) -> None:
        self.nbytes, self._stop = nbytes, stop
        used = sorted({told for launch in launches for _, told, _ in launch.fillings if told != SCRATCH})
        self._uses = used if 2 * len(used) < len(formats) else None
        place = {told: at if self._uses is not None else told for at, told in enumerate(used)}
        if self._uses is not None:  # each of many segments uses few of all the words
            formats = [formats[told] for told in used]
        self.codes = Counter([launch.code for launch in launches])
        self.held = any([launch.held for launch in launches])
        scratch = len(HEAD) + len(formats)
        rest, boxes = scratch + 1, scratch + 2
        words: list[int] = []
        fillings: list[tuple[int, int, int]] = []
        tables: dict[int, int] = {}
        for launch in {id(launch): launch for launch in launches}.values():  # a loop launches the same ones again
            begin = len(words)
            tables[id(launch)] = 8 * begin
            shares, size = len(launch.counts), 8 * launch.size
            if shares > 1:
                fillings.append((begin + 1, rest, 0))
            words += (launch.code.entry, 0, shares)
            after = 8 * (TABLE_WORDS + SHARE_WORDS * shares)
            for thread, calls in enumerate(launch.counts):
                if thread:
                    fillings.append((len(words), boxes + thread - 1, 0))
                words += (0, after, calls, size)
                after += size * calls
            first = len(words)
            words += launch.words
            for word, told, more in launch.fillings:
                at = scratch if told == SCRATCH else len(HEAD) + place[told]
                fillings.append((first + word, at, more))
        begins = [tables[id(launch)] for launch in launches]
        self._memory = [np.array(one, np.int64) for one in (words, fillings, begins)]  # kept for the driver
        template, places, order = [one.__array_interface__["data"][0] for one in self._memory]
        behind = 8 * (boxes + threads - 1)
        limit = one_thread.address if self.held else 0
        self._head = (template, len(words), places, len(fillings), order, len(begins), behind, limit)
        self._pack = struct.Struct(f"={len(HEAD)}q{''.join(formats)}{1 + threads}q{8 * len(words)}x").pack
        self.size, self.count = len(words), len(begins)
        self._call = driver().call

    def run(self, words: Sequence[Any], rest: int = 0, boxes: Sequence[int] = ()) -> None:
        """Run all launches. words: of the run; rest, boxes: for the workers that share them, as of `share`."""
        memory, base = POOL.lend(self.nbytes) if self.nbytes else (None, 0)  # kept as long as this runs
        stop = self._stops(words)
        if self._uses is not None:
            words = [words[told] for told in self._uses]
        # The driver uses the zeros behind the words as its memory, which no other call shares.
        self._call(self._pack(*self._head, stop, *words, base, rest, *boxes))

    def _stops(self, words: Sequence[Any]) -> int:
        """Return the address of the word that tells the driver to stop."""
        return _NEVER if self._stop is None else int(words[self._stop[0]]) + self._stop[1]

    def standing(self, words: Sequence[Any]) -> tuple[Native, dict[int, int], Any]:
        """Return a run for the driver in memory of its own, where in it words of a run are, and its scratch memory."""
        memory, base = POOL.lend(self.nbytes) if self.nbytes else (None, 0)
        uses = range(len(words)) if self._uses is None else self._uses
        told_words = [words[told] for told in uses]
        run = np.frombuffer(self._pack(*self._head, self._stops(words), *told_words, base, 0), np.int64).copy()
        return run, {told: len(HEAD) + at for at, told in enumerate(uses)}, memory


class Way(Protocol):
    """How machine code computes one kernel, or several that run together; it keeps no operand alive.

    seconds: an estimate for one thread. aligned: whether the memory that it writes begins on the boundary of a vector.
    task: what it computes.
    """

    seconds: float
    aligned: bool
    task: Task

    def launches(self, making: Making) -> list[Launch]:
        """Return the launches; raises LacksError where generated code lacks a step."""
        ...


class Makes(NamedTuple):
    """Makes the launches of one way.

    where: of each number in the launches, the word of a run that it stands for, and what is added to it. first: the
    launches for one thread, which take `room` bytes of scratch memory.
    """

    way: Way
    where: Mapping[int, tuple[int, int]]
    first: list[Launch]
    room: int

    @classmethod
    def of(cls, way: Way, contract: bool) -> Makes:
        """Return this with the launches for one thread; raises LacksError where generated code lacks something."""
        try:
            driver()
        except RuntimeError as error:
            raise CompileError(f"code, because compiling the driver failed: {error}") from error
        scratch = Scratch()
        first = way.launches(Making(1, contract, way.aligned, scratch))
        return cls(way, {}, first, scratch.nbytes)

    def told(self, launches: Iterable[Launch]) -> list[Launch]:
        """Return launches whose fillings name words of a run instead of numbers."""
        return [launch._replace(fillings=[self._told(*one) for one in launch.fillings]) for launch in launches]

    def _told(self, word: int, number: int, more: int) -> tuple[int, int, int]:
        if number == SCRATCH:
            return word, number, more
        told, further = self.where[number]
        return word, told, further + more


class Segment:
    """Kernels that run one after the other with nothing else between them: one call of machine code.

    formats: of a run's words; more may be added until the segment is closed. stop: where a kernel notes that it cannot
    go on, a word of a run and bytes behind it; None where none can.
    """

    def __init__(self, contract: bool, formats: Sequence[str]) -> None:
        self._contract, self.formats = contract, formats
        self._makes: list[Makes] = []
        self._laid: dict[int, Laid] = {}
        self._least, self._runs = [inf, inf], count()
        self._young: list[Code] = []
        self._seconds, self._leaves_whole = 0.0, False
        self.stop: tuple[int, int] | None = None

    def add(self, makes: Makes) -> None:
        """Add a kernel."""
        self._makes.append(makes)

    def close(self) -> None:
        """Lay out the kernels that were added."""
        parts = [one for one in self._makes if any([launch.held for launch in one.first])]
        wholes = [one for one in self._makes if any([launch.whole for launch in one.first])]
        in_parts, as_wholes = (sum([one.way.seconds for one in some]) for some in (parts, wholes))
        self._leaves_whole = as_wholes > in_parts  # the BLAS's threads would be missed more than ours
        theirs = {id(one) for one in (*wholes, *(parts if self._leaves_whole else ()))}
        ours = [one.way.seconds for one in self._makes if id(one) not in theirs]
        seconds = sum([seconds for seconds in ours if seconds > PART_PAYS])
        self._seconds = seconds if seconds > sharing.SHARE_PAYS else 0.0  # else it is never shared
        self._alone = self._for(1)
        for code, times in self.codes.items():
            if code.level == CHEAP and times >= HOT_CALLS:  # the body of a loop
                improve(code)
        self._young = [code for code in self.codes if code.level == CHEAP]
        self.size = self._alone.size

    @property
    def makes(self) -> Sequence[Makes]:
        """The makers of its kernels, in order."""
        return self._makes

    @property
    def tasks(self) -> list[Task]:
        """What its kernels compute."""
        return [one.way.task for one in self._makes]

    @property
    def codes(self) -> Mapping[Code, int]:
        """The machine code of its kernels, and how often each is launched."""
        return self._alone.codes

    def words(self) -> str:
        """Return what the segment does, in words."""
        return f"machine code: {len(self._makes)} kernels in one call"

    def run(self, run: Any) -> None:
        """Run the kernels with the words of a run, on as many threads as pay."""
        words = run.words
        if not self._seconds:
            if self._young:
                self._watched(words, 1)
            else:
                self._alone.run(words)
        else:
            self._watched(words, threads_here())
        if self.stop is not None:
            noted = ctypes.c_int64.from_address(words[self.stop[0]] + self.stop[1])
            if noted.value:
                noted.value = 0
                raise UntouchedError

    def standing(
        self, words: Sequence[Any], seconds: float, launches: int, nbytes: int
    ) -> tuple[Native, dict[int, int], Any] | None:
        """Return a run in memory of its own, as `Laid.standing` does; None if its code is to be optimised further, if
        it takes longer, has more launches or needs more scratch memory than given here, or if sharing it among threads
        would save more time than entering machine code at once does.
        """
        laid, ours = self._with_whole_products() if self._alone.held else (self._alone, self._seconds)
        saved = ours * (1 - 1 / threads_here())
        long = saved > DISPATCH_SAVES or sum([one.way.seconds for one in self._makes]) > seconds
        if long or self._young or laid.count > launches or laid.nbytes > nbytes:
            return None
        return laid.standing(words)

    def _watched(self, words: Sequence[Any], threads: int) -> None:
        """Run the kernels, and learn from the time that takes."""
        trial = None
        if threads > 1:
            shares, trial = self._shares()
            threads = threads if shares else 1
        laid = self._for(threads)
        started = perf_counter()
        if threads == 1 or not share(threads, lambda rest, boxes: laid.run(words, rest, boxes)):
            self._alone.run(words)
        taken = perf_counter() - started
        if trial is not None:
            self._least[trial] = min(self._least[trial], taken)
        for code in self._young:
            code.used(taken)
        self._young = [code for code in self._young if code.level == CHEAP]

    def _shares(self) -> tuple[bool, int | None]:
        """Return whether to share the work: little work if workers are awake, medium work if trials found that faster,
        and much work always. The second result is, for a trial, the way that is tried.
        """
        if self._seconds <= WAKE_PAYS or self._seconds > LONG_SECONDS:
            return worth(self._seconds) > 1, None
        run = next(self._runs) % PERIOD
        if run >= TRIALS:
            return self._least[1] < self._least[0], None
        if run == 0:
            self._least[:] = inf, inf
        shares = run >= TRIALS // 2
        return shares, int(shares)

    def _with_whole_products(self) -> tuple[Laid, float]:
        """Return the launches laid out for one thread, with products that the BLAS's own threads share, and the seconds
        of the others, which our threads could share.
        """
        parts = [one.way.seconds for one in self._makes if any([launch.held for launch in one.first])]
        return self._laid_out(1, whole=True), self._seconds - sum(parts)

    def _for(self, threads: int) -> Laid:
        """Return the launches laid out for so many threads."""
        laid = self._laid.get(threads)
        if laid is None:
            laid = self._laid[threads] = self._laid_out(threads, whole=self._leaves_whole)
        return laid

    def _laid_out(self, threads: int, *, whole: bool) -> Laid:
        scratch, found = Scratch(), dict[int, list[Launch]]()
        for one in {id(one): one for one in self._makes}.values():  # a loop has the same kernels again
            own = min(threads, 1 + int(one.way.seconds / PART_PAYS))
            if own == 1 and not whole:
                scratch.take(one.room)
                made = one.first
            else:
                made = one.way.launches(Making(own, self._contract, one.way.aligned, scratch, whole))
            found[id(one)] = one.told(made)
            scratch.release()
        launches = [launch for one in self._makes for launch in found[id(one)]]
        return Laid(launches, threads, scratch.nbytes, self.formats, self.stop)


def run_calls(code: Code, groups: Sequence[Sequence[bytes]]) -> None:
    """Call code for every argument of every group, each group in a thread of its own if there are so many."""
    arguments = [argument for group in groups for argument in group]
    if len(arguments) == 1:
        code.call(arguments[0])
        return
    words = np.frombuffer(b"".join(arguments), np.int64).tolist()
    threads, size = len(groups), len(arguments[0]) // 8
    if threads > 1:
        shared = Laid([Launch(code, tuple(map(len, groups)), size, words, [])], threads, 0, ())
        if share(threads, lambda rest, boxes: shared.run((), rest, boxes)):
            return
    Laid([Launch(code, (len(arguments),), size, words, [])], 1, 0, ()).run(())
