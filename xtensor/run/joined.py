"""Contractions with the steps that follow them as one kernel: generated code goes on from finished sums in registers.

The steps that follow are the program of a loop over the contraction's shape. Its results and its operands of that shape
lie as the contraction's own result would; other operands have one number for each channel, or a single one.
"""

from __future__ import annotations

from array import array
from collections.abc import Callable, Sequence
from functools import lru_cache, partial
from math import ceil, prod
from operator import itemgetter
from typing import Any, NamedTuple, Protocol

import numpy as np
from numpy.lib.array_utils import byte_bounds

from ..base import threads
from ..base.layout import Shape, strides_over
from ..base.threads import worth
from ..codegen.cpu.compile import host
from ..codegen.cpu.finish import ALIKE, COLUMNS, SINGLE, Finish, Steps
from ..codegen.cpu.forms import TALLEST
from ..codegen.cpu.loop import is_light
from ..codegen.cpu.vector import LacksError
from ..devices.cpu import CPU
from ..plan.costs import PRODUCT_CALL, PRODUCT_SECONDS, PRODUCT_SLOWER, moving_seconds
from ..plan.layouts import Meta, Work
from ..plan.program import Kernel, Program
from . import interpret
from .contractions import Product, address, by_rows, steps, straight
from .native import scalar_word, word_values

Array = Any  # NumPy's, in whose types views of unknown rank cannot be written

# The lie of an operand with one number for each channel, before it is known whether channels are rows or columns.
CHANNELS = "channels"


# Launches machine code, given the addresses of operands, target and slots, and where laid-out weights are kept; returns
# False where that has to be done another way.
Launcher = Callable[[Sequence[int], int, int, Any], bool | None]


class Contraction(Protocol):
    """What an op whose kind is "contraction" can do besides computing its result."""

    def channels(self, ndim: int, **params: Any) -> int:
        """Return the axis of its result along which operands may have one number for each index."""
        ...

    def strides(self, operands: Sequence[Meta], shape: Shape, itemsize: int, **params: Any) -> Shape:
        """Return the strides of its result."""
        ...

    def refusal(self, operands: Sequence[Meta], result: Meta, *, is_light: bool, **params: Any) -> str:
        """Return why its code does not go on with the steps that follow, "" where it does. is_light: whether these are
        few, and none is a function.
        """
        ...

    def write(self, operands: Sequence[Array], ending: Ending, **params: Any) -> None:
        """Compute it and the steps that follow, into the arrays of `ending`."""
        ...

    def known(
        self, operands: Sequence[Array], ending: Ending, **params: Any
    ) -> tuple[Launcher, Array, Callable[[Any], Any]] | None:
        """Return the launcher of the code that did that for arrays that lie like these, the slots that it was given,
        and a function that returns where the laid-out second operand is kept; None where there is none.
        """
        ...


class Ending(NamedTuple):
    """The steps that follow a contraction, with the arrays that they work on.

    finish: as code is told it. arrays: of each input, None for the sum, and of each output, with the axes of the
    contraction's result. scalars: as Python has them. place: the index of the array in which sums are added up, which
    is an output.
    """

    finish: Finish
    arrays: tuple[Array, ...]
    scalars: tuple[Any, ...]
    place: int

    @property
    def target(self) -> Array:
        """The array in which sums are added up."""
        return self.arrays[self.place]

    def seen(self, view: Callable[[Array], Array]) -> Ending:
        """Return the steps that follow a part of the contraction, given the view that takes that part of each array."""
        return self._replace(arrays=tuple([None if array is None else view(array) for array in self.arrays]))

    def along(self, lie: str) -> Finish:
        """Return the finish where channels are rows, or columns."""
        return self.finish._replace(lies=tuple([lie if one == CHANNELS else one for one in self.finish.lies]))

    def slots_of(self, groups: int) -> Array:
        """Return the slots of all groups: a row for each group."""
        return np.stack([self.slots(group) for group in range(groups)])

    def slots(self, group: int) -> Array:
        """Return the slots of one group; the second axis of all arrays is that of groups."""
        places = [0 if array is None else address(array[:, group]) for array in self.arrays]
        words = map(scalar_word, self.scalars, self.finish.program.scalars)
        return np.array([*places, *[value for word in words for value in word_values(word)]], np.int64)

    def write(self) -> None:
        """Compute the outputs from sums that lie in the target, where that was not done in registers."""
        program = self.finish.program
        inputs = [self.target.copy() if array is None else array for array in self.arrays[: len(program.inputs)]]
        outputs = self.arrays[len(inputs) :]
        interpret.evaluate_all(program, self.target.shape, inputs, self.scalars, outputs)


class Relaunch(NamedTuple):
    """A joint to be launched again, on arrays that lie alike: it is given their addresses, and scalars.

    launcher: of the machine code. spans: how far operands, other inputs of the program, and results reach before and
    behind their addresses, empty where results share memory with nothing; results: how many of these arrays are
    results; target: which of them sums are added up in. slots: for each group's slots, which array they are of, and how
    far behind its address. kept: returns where the laid-out second operand is kept.
    """

    launcher: Launcher
    operands: int
    spans: Sequence[tuple[int, int]]
    results: int
    target: int
    slots: Sequence[Sequence[tuple[int, int]]]
    kept: Callable[[Any], Any]

    def __call__(self, places: Sequence[int], words: Sequence[int], keeper: Any = None) -> bool:
        """Do it for arrays at these addresses, with the words of scalars; return whether that was done. keeper: how the
        second operand is kept.
        """
        if self.spans and self._shares(places):
            return False
        told = (*places, 0)  # the sums have no address
        slots = array("q", [word for group in self.slots for word in (*[told[n] + far for n, far in group], *words)])
        target = places[self.target - self.results]
        return self.launcher(places[: self.operands], target, slots.buffer_info()[0], keeper) is not False

    def _shares(self, places: Sequence[int]) -> bool:
        """Return whether a result shares memory with an array that is read."""
        reach = [(place + low, place + high) for place, (low, high) in zip(places, self.spans, strict=True)]
        return any([a < d and c < b for a, b in reach[-self.results :] for c, d in reach[: -self.results]])


class Joint(NamedTuple):
    """A contraction and the kernel that goes on from it, as one.

    numbers: of the contraction's operands, of the program's other inputs, of its scalars, and of its results.
    """

    op: Contraction
    params: dict[str, Any]
    finish: Finish
    axis: int
    place: int
    numbers: tuple[tuple[int, ...], tuple[int, ...], tuple[int, ...], tuple[int, ...]]

    def run(self, arrays: Sequence[Sequence[Array]], scalars: Sequence[Any], *, apart: bool) -> Relaunch | None:
        """Write the results, and return an object that does it again, None where nothing can; while sums are added up
        nothing else may lie in their memory. arrays: operands, other inputs, and results; apart: whether results share
        no memory with the others, whatever arrays come.
        """
        operands, others, results = arrays
        shares = any([np.may_share_memory(one, result) for one in (*operands, *others) for result in results])
        targets = [np.empty_like(one) if shares or not one.flags.aligned else one for one in results]
        given = [self._seen(*one, results[0].shape) for one in zip(others, self._lies, strict=True)]
        given.insert(self.finish.sum, None)
        ending = Ending(self.finish, (*given, *targets), tuple(scalars), self.place)
        CPU.call(self.op.write, operands, ending, **self.params)
        for target, result in zip(targets, results, strict=True):
            if target is not result:
                result[...] = target
        return self._relaunch(arrays, ending, apart)

    def _relaunch(self, parts: Sequence[Sequence[Array]], ending: Ending, apart: bool) -> Relaunch | None:
        """Return what repeats the computation; None where that is not known, or arrays were copied on the way."""
        operands, others, results = parts
        inputs = len(self.finish.program.inputs)
        found = getattr(self.op, "known", lambda *_, **__: None)(operands, ending, **self.params)
        arrays = *operands, *others, *results
        begins, first = [*map(address, arrays)], len(operands)
        if found is None or begins[first:] != [address(one) for one in ending.arrays if one is not None]:
            return None
        launcher, slots, kept = found
        numbers = iter(range(first, len(arrays)))
        which = [len(arrays) if one is None else next(numbers) for one in ending.arrays]
        groups = [[(n, int(word) - [*begins, 0][n]) for n, word in zip(which, row, strict=False)] for row in slots]
        spans = [(low - address(one), high - address(one)) for one in arrays for low, high in [byte_bounds(one)]]
        return Relaunch(launcher, first, [] if apart else spans, len(results), self.place - inputs, groups, kept)

    def words(self, scalars: Sequence[Any]) -> list[int]:
        """Return the words of scalars."""
        words = map(scalar_word, scalars, self.finish.program.scalars)
        return [value for word in words for value in word_values(word)]

    @property
    def _lies(self) -> list[str]:
        """How the program's inputs lie, without the sum."""
        return [lie for number, lie in enumerate(self.finish.lies) if number != self.finish.sum]

    def _seen(self, array: Array, lie: str, shape: Shape) -> Array:
        """Return an operand broadcast to the result's shape; numbers of channels are made contiguous."""
        if lie == CHANNELS:
            whole = np.broadcast_to(array, shape)
            own = tuple([slice(None) if axis == self.axis else slice(1) for axis in range(len(shape))])
            array = np.ascontiguousarray(whole[own])
        return np.broadcast_to(array, shape)

    def moved_by(self, work: Work) -> int:
        """Return the bytes that it reads and writes."""
        operands, others, _, results = self.numbers
        return sum([work.metas[number].nbytes for number in (*operands, *others, *results)])


def joint_of(kernel: Kernel, before: Kernel, work: Work) -> Joint | str:
    """Return a contraction and the kernel that goes on from it as one, or the reason why they are two."""
    (number,), metas = before.results, work.metas
    node, sums = work.trace.values[number], metas[number]
    if work.device.backend is not CPU or work.limits.engine not in ("auto", "llvm") or host() is None:
        return "only the CPU's generated code goes on from contractions"
    if not set(work.into) <= set(kernel.results):
        return "memory is written in between"
    dtypes = [metas[n].dtype for n in kernel.results]
    if sums.dtype not in dtypes:
        return f"no result of what follows is of its dtype {sums.dtype}"
    axis, inputs = node.op.channels(len(node.shape), **node.params), len(kernel.inputs)
    lies = tuple([_lie(metas[n], sums, axis) for n in (*kernel.inputs, *kernel.results)])
    if "" in lies or any([lie != ALIKE for lie in lies[inputs:]]):
        return "operands of what follows do not lie as its result does"
    taken = work.trace.arguments[number]
    given, light = [metas[n] for n in taken], is_light(kernel.program)
    refusal = node.op.refusal(given, sums, is_light=light, **node.params) or _lack(kernel.program)
    if refusal:
        return str(refusal)
    finish = Finish(kernel.program, kernel.inputs.index(number), lies[:inputs], work.limits.fast_math)
    others = tuple([one for one in kernel.inputs if one != number])
    place = inputs + dtypes.index(sums.dtype)
    return Joint(node.op, node.params, finish, axis, place, (taken, others, kernel.scalars, kernel.results))


@lru_cache(maxsize=1024)
def _lack(program: Program) -> str:
    """Return what generated code lacks for a program, "" where it lacks nothing."""
    try:
        steps = Steps(Finish(program, 0, (ALIKE,) * len(program.inputs)), 1)
        steps.begin("entry")
        steps.row("0")
        steps.write("%x", "0", "0", "")
    except LacksError as lack:
        return f"there is no {lack}"
    return ""


def _lie(meta: Meta, sums: Meta, axis: int) -> str:
    """Return how an operand lies beside the packed sums of a contraction; "" where code cannot handle that."""
    strides, item, step = strides_over(meta.layout, sums.shape), meta.dtype.itemsize, sums.dtype.itemsize
    if all(n == 1 or a * step == b * item for n, a, b in zip(sums.shape, strides, sums.layout.strides, strict=True)):
        return ALIKE
    if not any(strides):
        return SINGLE
    return CHANNELS if not any(strides[:axis] + strides[axis + 1 :]) else ""


# ---- products of matrices


def write_product(a: Array, b: Array, ending: Ending) -> None:
    """Write the product of two matrices whose rows are contiguous, and what follows it; threads share its rows."""
    seconds = a.size * b.shape[1] * PRODUCT_SECONDS[a.dtype.char]
    step = ceil(a.shape[0] / min(worth(seconds), ceil(a.shape[0] / TALLEST)))
    parts = [slice(first, first + step) for first in range(0, a.shape[0], step)]
    apart = ending.seen(lambda array: array[:, None])
    threads.run([partial(_write_rows, a[part], b, apart.seen(itemgetter(part))) for part in parts])


def _write_rows(a: Array, b: Array, ending: Ending) -> None:
    """Write some rows of a product; arrays have a second axis, that of their only group."""
    c, item = ending.target, a.itemsize
    one = Product(a.dtype, a.shape[0], b.shape[1], a.shape[1], finish=ending.along(COLUMNS))
    table = by_rows(a.shape[0], a.strides[0] // item, a.shape[1])
    columns = straight(b.shape[1], 1, one.form)
    terms, targets = steps(b.shape[0], b.strides[0] // item), steps(c.shape[0], c.strides[0] // item)
    scratch, slots = CPU.allocate(one.scratch(False)), ending.slots(0)
    places = address(a), table, address(b), terms, columns, address(c), targets, address(scratch)
    one.code.call(one.told(*places, slots=address(slots)))


def refuse_product(a: Meta, b: Meta, result: Meta) -> str:
    """Return why the steps that follow a product of matrices are not computed with it, "" where they are."""
    char = result.dtype.char
    if len(a.shape) != 2 or len(b.shape) != 2 or char not in PRODUCT_SECONDS or a.dtype != b.dtype:
        return "it is no product of two matrices of real numbers"
    if any([one.layout.strides[1] != one.dtype.itemsize or 0 in one.shape for one in (a, b)]):
        return "its operands do not lie row by row"
    work = prod(a.shape) * b.shape[1]
    lost = PRODUCT_CALL + work * PRODUCT_SECONDS[char] * PRODUCT_SLOWER[char]
    saved = moving_seconds(2 * result.nbytes)
    if saved < lost:
        text = "the library's product takes {:.2f} ms less than ours, a pass over its result {:.2f} ms"
        return text.format(1e3 * lost, 1e3 * saved)
    return ""
