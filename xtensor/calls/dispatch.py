"""The dispatch of captured functions: what machine code is told of a kind of calls, to tell that a call is of it.

A captured function asks in Python what a call reads, and whether memory lies as it did (signature.py), in ten times the
time of NumPy's smallest calls. Kinds that come again and again are told to machine code (codegen/cpu/dispatch.py),
which asks the same of thin faces and constants, enters addresses in a run that stands ready, and makes the results. A
call that is of none of its kinds, in whatever way, is answered in Python.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from types import CellType, FunctionType, ModuleType
from typing import Any, NamedTuple

import numpy as np

from ..base.options import thin_closed
from ..graph.number import KINDS, Again
from ..plan.costs import STREAM_BYTES
from ..run.standing import Standing
from ..storage.pool import ALIGNMENT
from ..tensor.face import Tensor, is_value
from .given import MOST_ELEMENTS
from .numbers import Numbers
from .reach import Reach, constant_of, form_of, is_plain, stays, wrapped
from .signature import is_compared

# Calls of a kind, answered in Python, after which machine code is told of it, and of one that it was told of already
# and did not answer; again after twice as many.
DISPATCHED_AFTER, AGAIN_AFTER = 16, 4

# Calls that are looked up, one of many where arrays are so small that library calls cost less than kernels that are
# found in Python: from there on these are run, if they cost less dispatched.
SMALL_AFTER = 8

# Calls of a kind after which machine code is made for all that it can answer, if it is not there yet: each saves 10 us.
EXCHANGED_AFTER = 1024

# Kinds of one function that machine code asks for.
MOST_KINDS = 4


class Kind:
    """A kind of calls. words: what machine code is told of it; held: what these point to."""

    __slots__ = ("held", "words")

    def __init__(self, words: Any, held: Any) -> None:
        self.words, self.held = words, held
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
        """Add a kind, perhaps in the place of what was told of it before under the same options, and let go of the one
        that was told of first if they are too many.
        """
        others = self._all if self._reached == (reach.grown, reach.version) else []
        self._reached = reach.grown, reach.version
        options = _place("options")
        stay = [one for one in others if one not in before or one.words[options] != kind.words[options]]
        following = [kind, *stay][:MOST_KINDS]
        for one, other in zip(following, [*following[1:], None], strict=True):
            one.words[_place("next")] = 0 if other is None else other.words.__array_interface__["data"][0]
        self._all = following


def made_thin(values: Iterable[Any]) -> bool:
    """Make thin faces of the tensors among some values, where that can be; return whether any was none before."""
    found = False
    for x in values:
        if type(x) is Tensor and type(x._data) is not np.ndarray and not thin_closed[0]:
            x.evaluate()
            found |= x.thin() is not None
    return found


class _Told:
    """What is told of a kind while it is put together. rows: of each table; held: what they point to; inside: the ids
    of what was looked into; numbers: whether those among the arguments are told.
    """

    def __init__(self, reach: Reach, numbers: Iterator[bool]) -> None:
        from ..codegen.cpu import kinds

        self.form, self.reach, self.numbers = kinds, reach, numbers
        self.inside, self._met = set[int](), set[int]()
        self.rows: dict[str, list[tuple[int, ...]]] = {name: [] for name in kinds.TABLES}
        self.head = dict.fromkeys(kinds.HEAD, 0)
        self.held: list[Any] = []
        self.natives: list[Any] = []
        self._lists: list[int] = []

    def object(self, x: Any) -> int:
        """Return the word of an object, which is held."""
        self.held.append(x)
        return id(x)

    def given(self, x: Any) -> bool:
        """Enter an argument; return whether it is known what tells it from others."""
        if type(x) is Tensor:
            self.rows["given"].append((0, 0, len(self.natives)))
            return self.tensor(x)
        if type(x) in KINDS and next(self.numbers):
            self.rows["given"].append((self.object(type(x)), self.form.TOLD, 0))
            return True
        compared = self.form.EQUAL if is_compared(x) else self.form.ITSELF
        self.rows["given"].append((self.object(x), compared, 0))
        return compared == self.form.EQUAL or (constant_of(x) is not None and is_plain(x))

    def tensor(self, x: Tensor) -> bool:
        """Enter a tensor; return whether it is a thin face."""
        native = x.thin()
        if native is None:
            return False
        self.natives.append((x, native))
        return True

    def place(self, place: Sequence[Any]) -> bool:
        """Enter what is found by a name; return whether it is known what tells it from others."""
        where, name, last, part, _ = place
        is_cell = type(where) is CellType
        if not is_cell and type(where) is not dict:
            return False
        try:
            value = where.cell_contents if is_cell else where.get(name)
        except ValueError:  # an empty cell
            value = None
        if part is not None and value is not last:
            return False
        way = self.form.OF_CELL if is_cell else self.form.OF_DICT
        return self._found((self.object(where), self.object(name), way), value)

    def _found(self, row: tuple[int, int, int], value: Any) -> bool:
        """Enter what is found somewhere. row: how."""
        if type(value) is Tensor:
            self.rows["places"].append((*row, 0, 0, 0, 0, len(self.natives)))
            return self.tensor(value)
        is_own = type(value) is FunctionType and not is_plain(value)
        form = [0 if one is None else self.object(one) for one in form_of(value)] if is_own else [0, 0, 0]
        self.rows["places"].append((*row, self.object(value), *form, len(vars(value)) if is_own else 0))
        if is_own:
            return self._attributes(vars(value))
        if stays(type(value)) and wrapped(value) is not None:  # another fused function, a gradient
            return self._found(
                (self.object(vars(value)), self.object("__wrapped__"), self.form.OF_DICT), wrapped(value)
            )
        constant = None if type(value) in (list, dict) else constant_of(value)
        return self._inside(value) if constant is None or not is_plain(value) else True

    def _inside(self, holder: Any) -> bool:
        """Enter what a list, a dict or a module of a user's holds, once; return False for anything else."""
        kind = type(holder)
        if kind not in (list, dict, ModuleType):
            return False
        if id(holder) in self.inside:
            return True
        self.inside.add(id(holder))
        held = vars(holder) if kind is ModuleType else holder
        self.rows["spreads"].append((self.object(held), len(held)))
        if kind is ModuleType:
            return self._attributes(held)
        keys = range(len(held)) if kind is list else [self.object(key) for key in held]
        values, way = held if kind is list else held.values(), self.form.OF_LIST if kind is list else self.form.OF_DICT
        known = kind is list or all(type(key) in (str, int) for key in held)
        rows = zip(keys, values, strict=True)
        return known and len(held) <= MOST_ELEMENTS and all(self._found((id(held), at, way), one) for at, one in rows)

    def _attributes(self, own: dict[str, Any]) -> bool:
        """Enter the attributes of a module or a function that can be looked up, once."""
        if id(own) in self._met:
            return True
        self._met.add(id(own))
        rows = [(self.object(name), value) for name, value in self.reach.own_of(own) if not stays(value)]
        return all(self._found((self.object(own), at, self.form.OF_DICT), one) for at, one in rows)

    def lengths(self, *numbers: int) -> int:
        """Enter numbers of any count; return where they are, in words behind the tables."""
        self._lists += numbers
        return len(self._lists) - len(numbers)

    def words(self) -> Any:
        """Return all words in one piece of memory: the head, the tables, and lists of numbers."""
        form = self.form
        at = len(form.HEAD)
        for name in form.TABLES:
            self.head[name], self.head[f"{name}.rows"] = at, len(self.rows[name])
            at += len(self.rows[name]) * len(form.ROWS[name])
        self.head["overlaps"] += at
        for name in ("tensors", "results"):
            lie = form.ROWS[name].index("lie")
            self.rows[name] = [(*row[:lie], row[lie] + at, *row[lie + 1 :]) for row in self.rows[name]]
        rows = [number for name in form.TABLES for row in self.rows[name] for number in row]
        return np.array([*self.head.values(), *rows, *self._lists], np.int64)


class Call(NamedTuple):
    """A call that was answered in Python. tensors: that it reads; holders: what it looks into; numbers: that it finds;
    mask: where in its signature those are that it is told.
    """

    args: Sequence[Any]
    kwargs: dict[str, Any]
    tensors: Sequence[Tensor]
    holders: Sequence[Any]
    numbers: Numbers
    mask: tuple[int, ...]

    def told(self) -> list[bool] | None:
        """Return of each number among the arguments whether it is told; None where others are."""
        if any(one[0] in self.mask and (one[2] >= 0 or one[3] is not None) for one in self.numbers):
            return None
        return [one[0] in self.mask for one in self.numbers if one[2] < 0 and one[3] is None]


class Result(NamedTuple):
    """What a call returns: leaves and what makes it of them (see leaves.py); values: which results are values."""

    leaves: Sequence[tuple[int, Any]]
    build: Any
    values: Sequence[int]


def kind_of(
    call: Call, options: Any, reach: Reach, stands: Standing, written: Sequence[int], result: Result, again: Again
) -> Kind | None:
    """Return what machine code is told of calls like one; None where more is to be asked than it can.

    options: the object that says which are in force. written: the numbers of tensors that are written. again: what is
    computed of numbers.
    """
    numbers = call.told()
    if numbers is None:
        return None
    told = _Told(reach, iter(numbers))
    if not all(map(told.given, (*call.args, *call.kwargs.values()))) or not all(map(told.place, reach.places)):
        return None
    both = zip(call.tensors, told.natives, strict=False)
    if len(call.tensors) != len(told.natives) or not all(x is y for x, (y, _) in both):
        return None
    if told.inside != set(map(id, call.holders)):
        return None
    told.rows["spreads"] += [(told.object(spread), count) for spread, count, _ in reach.spreads]
    told.rows["written"] = [(number,) for number in written]
    _enter_memory(told)
    _enter_run(told, stands, result.values)
    cells = _enter_leaves(told, result.leaves)
    told.head |= {
        "options": told.object(options),
        "names": told.object(tuple(call.kwargs)) if call.kwargs else 0,
        "positional": len(call.args),
        "build": result.build if type(result.build) is int else told.object(result.build),
        "numbers": told.object(partial(_told_of, again, stands.told[1], cells)) if call.mask else 0,
        "numbered": sum(numbers),
    }
    return Kind(told.words(), (told.held, stands))


def _told_of(
    again: Again, packed: Callable[[Sequence[Any]], bytes], cells: Sequence[int], numbers: Sequence[Any]
) -> tuple[Any, ...] | None:
    """Return what machine code asks for: of the numbers of a call, the words for the run, and what is in some cells."""
    found = again.of(numbers)
    return None if found is None else (packed(found), *[found[cell] for cell in cells])


def _enter_leaves(told: _Told, leaves: Sequence[tuple[int, Any]]) -> list[int]:
    """Enter the leaves of a result; return the cells of those that are computed of numbers."""
    cells = [value for kind, value in leaves if kind == told.form.CELL]
    for kind, value in leaves:
        if kind == told.form.OBJECT:
            value = told.object(value)
        elif kind == told.form.CELL:
            value = 1 + cells.index(value)
        told.rows["leaves"].append((kind, value))
    return cells


def _enter_memory(told: _Told) -> None:
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


def _enter_run(told: _Told, stands: Standing, values: Sequence[int]) -> None:
    """Enter the run: where it is told of tensors and results, and what these are."""
    told.head |= {"run": stands.begin, "driver": stands.driver, "noted": stands.noted}
    told.rows["cells"] = [(word,) for word in stands.told[0]]
    for number in range(len(told.natives)):
        if number in stands.places:
            told.rows["moves"].append((number, stands.places[number]))
    for number, made in enumerate(stands.makes):
        shape = made.layout.shape
        kind = told.object(made.dtype), len(shape), told.lengths(*shape), int(number in values)
        told.rows["results"].append((*kind, stands.places[made.word]))
