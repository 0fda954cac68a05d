"""The dispatch of captured functions: descriptions of kinds of calls, by which machine code recognises such calls.

A captured function finds out in Python what a call reads, and whether memory lies as before (signature.py), which takes
ten times as long as NumPy's smallest calls. Frequent kinds are described to machine code (codegen/cpu/dispatch.py),
which compares thin faces and constants in the same way, enters addresses in a prepared run, and makes the results. A
call that differs in any way from all of these kinds is answered in Python.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from ..base.options import thin_closed
from ..graph.number import Again
from ..plan.costs import EXCHANGED_AFTER, STREAM_BYTES
from ..run.standing import Standing
from ..storage.pool import ALIGNMENT
from ..tensor.face import Tensor
from ..tensor.scalars import is_value
from .computed import computing
from .leaves import HOLDER
from .numbers import Numbers
from .reach import NOTHING, Reach
from .rebound import held
from .signature import signature_of
from .told import Told, UntoldError

if TYPE_CHECKING:
    from ..run.captured import Captured

# Calls of a kind, answered in Python, after which it is described to machine code; and after which it is described
# again, as for another object, twice as many as before if machine code has answered fewer meanwhile.
DISPATCHED_AFTER, AGAIN_AFTER = 16, 4

# Look-ups after which kernels run even where arrays are so small that library calls cost less than kernels found in
# Python (one of 16 such calls is looked up), if they cost less dispatched. The second number is for when machine code
# is not there yet: as many calls as for any other kind.
SMALL_AFTER, SMALL_ALONE = 8, EXCHANGED_AFTER // 16

# Kinds of one function that are remembered; the least recently used ones are forgotten. And those of them that machine
# code knows, which stay: fewer, so that there is always one to forget.
REMEMBERED, MOST_KINDS = 64, 48


class Kind:
    """A kind of calls. words: its description for machine code; held: the objects that these point to; owners: the ids
    of objects that it puts something into, or returns.
    """

    __slots__ = ("held", "owners", "words")

    def __init__(self, words: Any, held: Any, owners: tuple[int, ...]) -> None:
        self.words, self.held, self.owners = words, held, owners
        words[_place("itself")] = id(self)

    @property
    def uses(self) -> int:
        """How many calls of it machine code has answered."""
        return int(self.words[_place("uses")])


def _place(name: str) -> int:
    from ..codegen.cpu.kinds import HEAD

    return HEAD.index(name)


class Kinds:
    """The kinds of a function's calls that machine code knows, latest first; valid for the state of the function's
    reach when they were added.
    """

    def __init__(self) -> None:
        self._all: list[Kind] = []
        self._reached = 0, 0

    @property
    def uses(self) -> int:
        """How many calls of these kinds machine code has answered."""
        return sum([kind.uses for kind in self._all])

    def isdisjoint(self, kinds: Iterable[Kind]) -> bool:
        """Return whether machine code knows none of some kinds."""
        return all(kind not in self._all for kind in kinds)

    def words(self, reach: Reach) -> Any:
        """Return the words of the first kind, which link to those of the others; None where there is none, or the
        function's reach has grown.
        """
        is_known = self._all and self._reached == (reach.grown, reach.version)
        return self._all[0].words if is_known else None

    def add(self, kind: Kind, before: Sequence[Kind], ahead: Sequence[Kind], reach: Reach) -> None:
        """Add a kind, in place of the one of `before` with the same options and the same objects, if any, and drop the
        oldest kind if there are too many. ahead: kinds that are to be tried before it.
        """
        others = self._all if self._reached == (reach.grown, reach.version) else []
        self._reached = reach.grown, reach.version
        options = _place("options")
        same = [one for one in before if one.words[options] == kind.words[options] and one.owners == kind.owners]
        stay = [one for one in others if one not in same]
        place = max([number for number, one in enumerate(stay, 1) if one in ahead], default=0)
        self._link([*stay[:place], kind, *stay[place:]][:MOST_KINDS])

    def drop(self, kinds: Sequence[Kind]) -> None:
        """Drop some kinds."""
        self._link([one for one in self._all if one not in kinds])

    def _link(self, kinds: list[Kind]) -> None:
        """Link kinds in the order in which machine code tries them."""
        for one, other in zip(kinds, [*kinds, None][1:], strict=True):
            one.words[_place("next")] = 0 if other is None else other.words.__array_interface__["data"][0]
        self._all = kinds


def made_thin(values: Iterable[Any]) -> bool:
    """Make the tensors among some values thin faces where possible; return whether any became one."""
    found = False
    for x in values:
        if type(x) is Tensor and type(x._content) is not np.ndarray and x._step is None and not thin_closed[0]:
            x.evaluate()
            found |= x.thin() is not None
    return found


class Call(NamedTuple):
    """A call that was answered in Python, with its signature. tensors: those that it reads; holders: the objects that
    it looks into; numbers: those that it finds; mask: the places in the signature of numbers that are inputs.
    """

    signature: tuple[Any, ...]
    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    tensors: Sequence[Tensor]
    holders: Sequence[Any]
    numbers: Numbers
    mask: tuple[int, ...]


class Result(NamedTuple):
    """The result of a call: its leaves, and what builds it from these (see leaves.py); values: which results are
    values; itself: the holders that are put into or returned, which later calls must have themselves.
    """

    leaves: Sequence[tuple[int, Any]]
    build: Any
    values: Sequence[int]
    itself: Sequence[Any]


def kind_of(
    call: Call, options: Any, reach: Reach, stands: Standing, captured: Captured, result: Result, numbers: Again
) -> Kind | None:
    """Return the description for machine code of calls like this one; None where it cannot compare all of it.

    options: the object of the options in force. numbers: the arithmetic on numbers.
    """
    told = Told(reach, call.numbers, call.mask, [id(one) for one in result.itself])
    try:
        told.arguments((*call.args, *call.kwargs.values()))
        told.places()
    except UntoldError:
        return None
    both = zip(call.tensors, told.natives, strict=False)
    if len(call.tensors) != len(told.natives) or not all(x is y for x, (y, _) in both):
        return None
    if told.inside != {id(held(one)) for one in call.holders if one is not NOTHING}:
        return None
    again = signature_of(call.args, call.kwargs, reach)
    if type(again) is str or again[0] != call.signature:  # another thread has changed something
        return None
    told.rows["written"] = [(number,) for number in captured.written]
    _enter_memory(told)
    _enter_run(told, stands, result.values)
    cells = _enter_leaves(told, result.leaves, None if call.mask else numbers.cells)
    told.head |= {
        "options": told.object(options),
        "names": told.object(tuple(call.kwargs)) if call.kwargs else 0,
        "positional": len(call.args),
        "build": result.build if type(result.build) is int else told.object(result.build),
        "compute": told.object(computing(numbers, *stands.told[1:], cells)) if call.mask else 0,
        "branches": int(bool(call.mask) or captured.branches),
    }
    return Kind(told.words(), (told.held, stands), told.itself())


def _enter_leaves(told: Told, leaves: Sequence[tuple[int, Any]], constants: Sequence[Any] | None) -> list[int]:
    """Enter the leaves of a result; return the cells of those that are computed from numbers. constants: the values of
    cells where no number is an input.
    """
    if constants is not None:
        leaves = [(told.form.OBJECT, constants[at]) if kind == told.form.CELL else (kind, at) for kind, at in leaves]
    cells = [value for kind, value in leaves if kind == told.form.CELL]
    for kind, value in leaves:
        if kind == told.form.OBJECT:
            value = told.object(value)
        elif kind == HOLDER:  # not held: it exists in each call of the kind
            kind, value = told.form.OBJECT, id(value)
        elif kind == told.form.CELL:
            value = 1 + cells.index(value)
        told.rows["leaves"].append((kind, value))
    return cells


def _enter_memory(told: Told) -> None:
    """Enter how arrays lie, and which of them overlap."""
    form, spans = told.form, []
    for x, native in told.natives:
        blob = x.blob
        begin, (low, high) = blob.address, blob.span
        left = begin % ALIGNMENT if high - low >= STREAM_BYTES else -1
        lie = told.lengths(*native.shape, *native.strides)
        kind = told.object(native.dtype), native.flags.num & form.WRITEABLE, native.ndim, lie
        marked = int(not native.ndim and is_value(x))
        told.rows["tensors"].append((*kind, low - begin, high - begin, left, marked, 0, 0, 0, 0))
        spans.append((x, begin, low, high))
    cells = []
    for x, begin, low, high in spans:
        for other, where, lowest, highest in spans:
            meet = (low < highest and lowest < high) or x is other
            cells.append(2 * (begin - where) + (x is other) if meet else form.APART)
    told.head["overlaps"] = told.lengths(*cells)


def _enter_run(told: Told, stands: Standing, values: Sequence[int]) -> None:
    """Enter the run: where it takes the addresses of tensors and results, and the layouts of the latter."""
    told.head |= {"run": stands.begin, "driver": stands.driver, "noted": stands.noted, "calls": int(stands.calls)}
    told.rows["cells"] = [(word,) for word in stands.told.places]
    for number in range(len(told.natives)):
        if number in stands.places:
            told.rows["moves"].append((number, stands.places[number]))
    for number, made in enumerate(stands.makes):
        shape = made.layout.shape
        order = told.form.FORTRAN if made.layout.order(made.dtype.itemsize) == "F" else 0
        kind = told.object(made.dtype), len(shape), told.lengths(*shape), order, int(number in values)
        told.rows["results"].append((*kind, stands.places[made.word]))
