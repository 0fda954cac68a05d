"""The dispatch of captured functions: what machine code is told of a kind of calls, to tell that a call is of it.

A captured function asks in Python what a call reads, and whether memory lies as it did (signature.py), in ten times the
time of NumPy's smallest calls. Kinds that come again and again are told to machine code (codegen/cpu/dispatch.py),
which asks the same of thin faces and constants, enters addresses in a run that stands ready, and makes the results. A
call that is of none of its kinds, in whatever way, is answered in Python.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

import numpy as np

from ..base.options import thin_closed
from ..graph.number import Again
from ..plan.costs import STREAM_BYTES
from ..run.standing import Standing
from ..storage.pool import ALIGNMENT
from ..tensor.face import Tensor, is_value
from .computed import computing
from .leaves import HOLDER
from .numbers import Numbers
from .reach import NOTHING, Reach
from .rebound import held
from .signature import signature_of
from .told import Told, UntoldError

# Calls of a kind, answered in Python, after which machine code is told of it, and of one that it was told of already
# and did not answer, as for another object; after twice as many where it has answered fewer meanwhile.
DISPATCHED_AFTER, AGAIN_AFTER = 16, 4

# Calls of a kind after which machine code is made for all that it can answer, if it is not there yet: each saves 10 us,
# and it takes 30 ms.
EXCHANGED_AFTER = 1024

# Calls that are looked up, one of 16 where arrays are so small that library calls cost less than kernels that are found
# in Python: from there on these are run, if they cost less dispatched. And where machine code is not there yet: after
# as many calls as any other kind.
SMALL_AFTER, SMALL_ALONE = 8, EXCHANGED_AFTER // 16

# Kinds of one function that are remembered; the ones used longest ago are forgotten. And those of them that machine
# code asks for, which stay: fewer, so that there is always one to forget.
REMEMBERED, MOST_KINDS = 64, 48


class Kind:
    """A kind of calls. words: what machine code is told of it; held: what these point to; owners: the ids of what
    it puts something into, or returns.
    """

    __slots__ = ("held", "owners", "words")

    def __init__(self, words: Any, held: Any, owners: tuple[int, ...]) -> None:
        self.words, self.held, self.owners = words, held, owners
        words[_place("itself")] = id(self)

    @property
    def uses(self) -> int:
        """How often machine code was called for it."""
        return int(self.words[_place("uses")])


def _place(name: str) -> int:
    from ..codegen.cpu.kinds import HEAD

    return HEAD.index(name)


class Kinds:
    """The kinds of a function's calls that machine code knows, the one that it was told of last first; for what the
    function was known to reach then.
    """

    def __init__(self) -> None:
        self._all: list[Kind] = []
        self._reached = 0, 0

    @property
    def uses(self) -> int:
        """How often machine code was called for those that it knows."""
        return sum([kind.uses for kind in self._all])

    def isdisjoint(self, kinds: Iterable[Kind]) -> bool:
        """Return whether machine code knows none of some kinds."""
        return all(kind not in self._all for kind in kinds)

    def words(self, reach: Reach) -> Any:
        """Return the words of the first kind, from which those of others are found; None where there is none any more,
        as the function reaches more.
        """
        is_known = self._all and self._reached == (reach.grown, reach.version)
        return self._all[0].words if is_known else None

    def add(self, kind: Kind, before: Sequence[Kind], reach: Reach) -> None:
        """Add a kind, perhaps in the place of what was told of it before under the same options and for the same
        objects, and let go of the one that was told of first if they are too many.
        """
        others = self._all if self._reached == (reach.grown, reach.version) else []
        self._reached = reach.grown, reach.version
        options = _place("options")
        same = [one for one in before if one.words[options] == kind.words[options] and one.owners == kind.owners]
        stay = [one for one in others if one not in same]
        self._link([kind, *stay][:MOST_KINDS])

    def drop(self, kinds: Sequence[Kind]) -> None:
        """Let go of some kinds."""
        self._link([one for one in self._all if one not in kinds])

    def _link(self, kinds: list[Kind]) -> None:
        """Have machine code ask for kinds one after the other."""
        for one, other in zip(kinds, [*kinds, None][1:], strict=True):
            one.words[_place("next")] = 0 if other is None else other.words.__array_interface__["data"][0]
        self._all = kinds


def made_thin(values: Iterable[Any]) -> bool:
    """Make thin faces of the tensors among some values, where that can be; return whether any was none before."""
    found = False
    for x in values:
        if type(x) is Tensor and type(x._data) is not np.ndarray and x._step is None and not thin_closed[0]:
            x.evaluate()
            found |= x.thin() is not None
    return found


class Call(NamedTuple):
    """A call that was answered in Python. signature: of it; tensors: that it reads; holders: what it looks into;
    numbers: that it finds; mask: where in its signature those are that it is told.
    """

    signature: tuple[Any, ...]
    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    tensors: Sequence[Tensor]
    holders: Sequence[Any]
    numbers: Numbers
    mask: tuple[int, ...]


class Result(NamedTuple):
    """What a call returns: leaves and what makes it of them (see leaves.py); values: which results are values; itself:
    the holders that are put into or returned, each the very one.
    """

    leaves: Sequence[tuple[int, Any]]
    build: Any
    values: Sequence[int]
    itself: Sequence[Any]


def kind_of(
    call: Call, options: Any, reach: Reach, stands: Standing, written: Sequence[int], result: Result, numbers: Again
) -> Kind | None:
    """Return what machine code is told of calls like one; None where more is to be asked than it can.

    options: the object that says which are in force. written: the numbers of tensors that are written. numbers: what
    is computed of numbers.
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
    told.rows["written"] = [(number,) for number in written]
    _enter_memory(told)
    _enter_run(told, stands, result.values)
    cells = _enter_leaves(told, result.leaves, None if call.mask else numbers.cells)
    told.head |= {
        "options": told.object(options),
        "names": told.object(tuple(call.kwargs)) if call.kwargs else 0,
        "positional": len(call.args),
        "build": result.build if type(result.build) is int else told.object(result.build),
        "compute": told.object(computing(numbers, *stands.told[1:], cells)) if call.mask else 0,
    }
    return Kind(told.words(), (told.held, stands), told.itself())


def _enter_leaves(told: Told, leaves: Sequence[tuple[int, Any]], constants: Sequence[Any] | None) -> list[int]:
    """Enter the leaves of a result; return the cells of those that are computed of numbers. constants: what is in cells
    where no number is told.
    """
    if constants is not None:
        leaves = [(told.form.OBJECT, constants[at]) if kind == told.form.CELL else (kind, at) for kind, at in leaves]
    cells = [value for kind, value in leaves if kind == told.form.CELL]
    for kind, value in leaves:
        if kind == told.form.OBJECT:
            value = told.object(value)
        elif kind == HOLDER:  # which is not held: it is there in each call of the kind
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
    """Enter the run: where it is told of tensors and results, and what these are."""
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
