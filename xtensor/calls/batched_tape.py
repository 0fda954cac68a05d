"""The tape of a function that was called for one row, turned into the tape of all rows (batching.py).

Every step that depends on the row becomes one step of all rows. Rules of elementwise functions, reductions, views and
matrix products also hold with the row axis in front, once their axes are moved by one; any other rule is applied to
each row, and is itself mapped over rows. A step that is the same for every row stays on the tape as it is, and gets the
sum of the rows' cotangents.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from operator import attrgetter
from typing import Any, NamedTuple, cast

from ..autograd.back import walk_back
from ..autograd.rules import RULES, Like, Pull, Rule, times, xt
from ..autograd.tape import Deferred, Kept, Leaf, Output, Saved, Several, Step
from ..autograd.transforms import is_users_own
from ..base.layout import Shape, axes_of
from ..tensor.face import Tensor

_X = (("x", None),)


class StayApartError(Exception):
    """Rows have to be computed one by one."""


def kept_below(ends: Iterable[Step], first: int) -> Iterator[Tensor]:
    """Yield the tensors kept by the steps that were recorded from a serial number on."""
    for step in walk_back(ends, lambda step: step.serial < first):
        if step.serial >= first:
            yield from [one.tensor(None) for one in _kept_in((step.given or {}).values())]


def _kept_in(values: Iterable[Any]) -> Iterator[Kept]:
    for value in values:
        if type(value) is Kept:
            yield value
        elif type(value) is Several:
            yield from _kept_in(value)


class Tape:
    """The steps of all rows, by the steps of one. first: the serial number at which the one row's steps begin.
    value_of: returns a saved value and whether it is that of all rows, or of one; over_rows: maps a function over rows;
    is_bare: whether steps have kept nothing, as they only record dependencies.
    """

    def __init__(
        self,
        rows: int,
        first: int,
        value_of: Callable[[Saved], tuple[Any, bool]],
        over_rows: Callable[..., tuple[list[Tensor], Any]],
        is_bare: bool,
    ) -> None:
        self._is_bare = is_bare
        self.rows, self._first, self._value_of, self.over_rows = rows, first, value_of, over_rows
        self._wholes: dict[Step, Step] = {}
        self._values: dict[Saved, tuple[Any, bool]] = {}
        self._views: dict[tuple[str, Step, Shape], Step] = {}

    def enter(self, one: Step | None, whole: Step | None) -> None:
        """Map an argument's step of one row to its step of all rows."""
        if one is not None and whole is not None:
            self._wholes[one] = whole

    def take(self, ends: Iterable[Step]) -> None:
        """Turn the steps that results of one row depend on into steps of all rows; raises StayApartError."""
        found = walk_back(ends, lambda step: step.serial < self._first or step in self._wholes)
        for step in sorted(found, key=attrgetter("serial")):
            if step.serial >= self._first and step not in self._wholes:
                whole = self._of_all(step)
                if whole is not None:
                    self._wholes[step] = whole

    def is_whole(self, step: Step | None) -> bool:
        """Return whether a step of one row differs between rows."""
        return step in self._wholes

    def whole(self, step: Step) -> Step:
        """Return a step of one row as one of all rows."""
        found = self._wholes.get(step)
        return self.view("broadcast_to", step, (self.rows, *step.shape)) if found is None else found

    def view(self, name: str, step: Step, shape: Shape) -> Step:
        """Return the step of a view of a step's result, whose rule needs no kept values."""
        if name == "reshape" and step.shape == shape:
            return step
        found = self._views.get((name, step, shape))
        if found is None:
            found = self._views[name, step, shape] = Step(RULES[name], (step,), _like(step, shape), _X)
        return found

    def _of_all(self, step: Step) -> Step | None:
        """Return a step for all rows, None where it is the same for each."""
        if type(step) is Deferred or (type(step) is Leaf and step.asked):
            raise StayApartError
        if type(step) is Leaf:
            return None  # of a gradient computed inside the row, which has ended
        like = _like(step, (self.rows, *step.shape))
        is_whole = not self._wholes.keys().isdisjoint(step.parents)
        if type(step) is Output:
            return Output(self.whole(step.parents[0]), step.place, like) if is_whole else None
        rule = step.rule
        if self._is_bare:
            return Step(rule, tuple(map(self.whole, step.parents)), like, step.slots) if is_whole else None
        if step.given is None or rule is None or is_users_own(rule):
            raise StayApartError
        given, marks = {}, {}
        for name, value in step.given.items():
            given[name], marks[name] = self._kept(value)
        if not is_whole and not any(_marked_in(marks.values())):
            return None
        call = _Call(self, step, rule, given, marks, like)
        direct = _aligned if rule.elementwise else _reduced if rule.reduction else _DIRECT.get(rule.name, _by_rows)
        return direct(call)

    def _kept(self, value: Any) -> tuple[Any, Any]:
        """Return a kept value, as that of all rows if it or its step differs between rows; and whether it does."""
        if type(value) is Several:
            both = [self._kept(one) for one in value]
            return Several([one for one, _ in both]), tuple([mark for _, mark in both])
        if type(value) is not Kept:
            return value, False
        found = self._values.get(value.saved)
        if found is None:
            found = self._values[value.saved] = self._value_of(value.saved)
        tensor, is_whole = found
        if not is_whole and value.step not in self._wholes:
            return value, False
        tensor = tensor if is_whole else xt.broadcast_to(tensor, (self.rows, *tensor.shape))
        return Kept(tensor, None if value.step is None else self.whole(value.step)), True

    def aligned(self, step: Step, ndim: int) -> Step:
        """Return an operand's step, shaped to broadcast as one row's does with a result of `ndim` axes."""
        whole = self._wholes.get(step)
        if whole is None:
            return step
        return self.view("reshape", whole, (self.rows, *(1,) * (ndim - len(step.shape)), *step.shape))

    def aligned_kept(self, kept: Any, mark: Any, ndim: int) -> Any:
        """Return a kept operand, shaped to broadcast as it does for one row."""
        if mark is not True:
            return kept
        x, step = kept.tensor(None), kept.step
        if x.ndim > ndim:
            return kept
        shape = (self.rows, *(1,) * (ndim + 1 - x.ndim), *x.shape[1:])
        return Kept(xt.reshape(x, shape), None if step is None else self.view("reshape", step, shape))


def _marked_in(marks: Iterable[Any]) -> Iterator[bool]:
    for mark in marks:
        if mark is True:
            yield True
        elif mark:
            yield from _marked_in(mark)


class _Call(NamedTuple):
    """A step to be turned into one of all rows: its kept values, of all rows where marked, and its result."""

    tape: Tape
    step: Step
    rule: Rule
    given: dict[str, Any]
    marks: dict[str, Any]
    like: Like

    def made(self, parents: Iterable[Step], given: dict[str, Any]) -> Step:
        """Return the step of all rows with these parents, and `given` in place of kept values of the same names."""
        found = Step(self.rule, tuple(parents), self.like, self.step.slots)
        found.given = {**self.given, **given}
        return found

    def wholes(self) -> list[Step]:
        return [self.tape.whole(parent) for parent in self.step.parents]


# ---- rules that hold with the rows in front


def _aligned(call: _Call) -> Step:
    """Return the step of a function whose operands broadcast."""
    ndim = len(call.step.shape)
    kept = {name: call.tape.aligned_kept(value, call.marks[name], ndim) for name, value in call.given.items()}
    return call.made([call.tape.aligned(parent, ndim) for parent in call.step.parents], kept)


def _reduced(call: _Call) -> Step:
    ndim = len(call.step.parents[0].shape)
    return call.made(call.wholes(), {"axis": tuple([axis % ndim + 1 for axis in axes_of(call.given["axis"], ndim)])})


def _permuted(call: _Call) -> Step:
    axes = call.given["axes"]
    return call.made(call.wholes(), {"axes": (0, *[axis % len(axes) + 1 for axis in axes])})


def _expanded(call: _Call) -> Step:
    axes = axes_of(call.given["axis"], 0)
    return call.made(call.wholes(), {"axis": tuple([axis % len(call.step.shape) + 1 for axis in axes])})


def _indexed(call: _Call) -> Step:
    key = call.given["key"]
    items = key if type(key) is tuple else (key,)
    if not all(item is None or item is Ellipsis or type(item) in (int, slice) for item in items):
        return _by_rows(call)
    return call.made(call.wholes(), {"key": (slice(None), *items)})


# ---- products


def _product(call: _Call) -> Step:
    """Return the step of a product of matrices or vectors: a single product if one operand is the same for all rows."""
    tape, shape = call.tape, call.like.shape
    a, b = _side(call, "x1"), _side(call, "x2")
    if a.ndim > 2 or b.ndim > 2:
        return _by_rows(call)
    if not a.whole and b.ndim == 1:
        a, b = b, a.turned(tape)
    if a.whole and a.ndim == 2 and not b.whole:
        rows, n, terms = a.shape
        a = a.shaped(tape, (rows * n, terms))
        return tape.view("reshape", _multiplied(a, b, (rows * n, *b.shape[1:])), shape)
    if a.whole and b.whole:
        x = a.shaped(tape, (shape[0], *(1,) * (2 - a.ndim), *a.shape[1:]))
        y = b.shaped(tape, (*b.shape, *(1,) * (2 - b.ndim)))
        return tape.view("reshape", _multiplied(x, y, (shape[0], x.shape[1], y.shape[2])), shape)
    return _multiplied(a, b, shape)


def _side(call: _Call, name: str) -> _Side:
    """Return one operand of a product."""
    both = zip(call.step.slots, call.step.parents, strict=True)
    step = next((parent for (slot, _), parent in both if slot == name), None)
    kept, mark = call.given.get(name), call.marks.get(name)
    is_whole = mark is True or call.tape.is_whole(step)
    if step is not None and is_whole:
        step = call.tape.whole(step)
    value = kept.tensor(None) if type(kept) is Kept else None
    shape = value.shape if value is not None else cast(Step, step).shape
    return _Side(step, value, is_whole, shape)


class _Side(NamedTuple):
    """An operand of a product: its step, None for a constant; its value, None where no rule needs it."""

    step: Step | None
    value: Tensor | None
    whole: bool
    shape: Shape

    @property
    def ndim(self) -> int:
        return len(self.shape) - self.whole

    def shaped(self, tape: Tape, shape: Shape) -> _Side:
        step = None if self.step is None else tape.view("reshape", self.step, shape)
        return _Side(step, None if self.value is None else xt.reshape(self.value, shape), self.whole, shape)

    def turned(self, tape: Tape) -> _Side:
        """Return an operand that is the same for every row: a matrix transposed, a vector as it is."""
        if self.ndim < 2:
            return self
        shape = self.shape[::-1]
        step = None if self.step is None else tape.view("matrix_transpose", self.step, shape)
        return _Side(step, None if self.value is None else xt.matrix_transpose(self.value), self.whole, shape)


def _like(step: Step, shape: Shape) -> Like:
    return Like(shape, step.dtype, step.device)


def _multiplied(a: _Side, b: _Side, shape: Shape) -> Step:
    """Return the step of the product of two operands."""
    both = [(name, side) for name, side in (("x1", a), ("x2", b)) if side.step is not None]
    steps = [cast(Step, side.step) for _, side in both]
    found = Step(RULES["matmul"], tuple(steps), _like(steps[0], shape), tuple([(name, None) for name, _ in both]))
    sides = (("x1", a), ("x2", b))
    found.given = {name: Kept(side.value, side.step) for name, side in sides if side.value is not None}
    return found


# ---- all other rules


def _by_rows(call: _Call) -> Step:
    """Return a step whose gradient is computed row by row, by a function that is itself mapped over rows."""
    step, pulls = call.step, {}
    likes: dict[str, dict[int | None, Like]] = {}
    for (name, place), parent in zip(step.slots, step.parents, strict=True):
        likes.setdefault(name, {})[place] = parent.like
    for name, wanted in likes.items():
        pull = call.rule.pulls.get(name)
        if pull is not None and pull.takes:
            like = wanted[None] if None in wanted else call.given[f"like {name}"]
            marks = [call.marks.get(one, False) for one in pull.asks]
            by_rows = _PullByRows(pull, like, wanted, marks, call.tape)
            pull = Pull(by_rows, ("g", *pull.asks), pull.asks, slope=False, likes=False)
        if pull is not None:
            pulls[name] = pull
    found = Step(Rule(call.rule.name, pulls), tuple(call.wholes()), call.like, step.slots)
    found.given = call.given
    return found


class _PullByRows:
    """Computes the cotangent of one argument from the results' cotangents, for all rows, by the rule for one row.

    like: the argument's meta-data for the rule; wanted: the same by index in a sequence, or None for a tensor.
    """

    def __init__(self, pull: Pull, like: Any, wanted: dict[int | None, Like], marks: Sequence[Any], tape: Tape) -> None:
        self._pull, self._like, self._wanted, self._marks = pull, like, wanted, marks
        self._rows, self._over_rows = tape.rows, tape.over_rows

    def __call__(self, g: Any, *kept: Any) -> Any:
        marks = [tuple([one is not None for one in g]) if type(g) is tuple else True, *self._marks]
        given = (g, *kept)
        wholes = [x for value, mark in zip(given, marks, strict=True) for x in _marked(value, mark)]
        places: list[int | None] = []

        def pulled(rows: Sequence[Tensor]) -> list[Tensor]:
            left = iter(rows)
            found = self._of_row([_row_of(value, mark, left) for value, mark in zip(given, marks, strict=True)])
            several = {place: found if place is None else found[place] for place in self._wanted}
            places[:] = [place for place, one in several.items() if one is not None]
            return [several[place] for place in places]

        columns, _ = self._over_rows(pulled, wholes, self._rows)
        every = {place: _fitted(x, self._wanted[place]) for place, x in zip(places, columns, strict=True)}
        return every.get(None) if None in self._wanted else {place: every.get(place) for place in self._wanted}

    def _of_row(self, values: Sequence[Any]) -> Any:
        pull = self._pull
        names = {**dict(zip(("g", *pull.asks), values, strict=True)), "like": self._like}
        found = pull.function(*[names[name] for name in pull.takes])
        return times(names["g"], found) if pull.slope else found


def _fitted(column: Tensor, like: Like) -> Tensor:
    """Return the cotangents of all rows with the axes of their tensor, of which they may have fewer."""
    missing = like.ndim + 1 - column.ndim
    if missing <= 0:
        return column
    first, *own = column.shape
    return cast(Tensor, xt.reshape(column, (first, *(1,) * missing, *own)))


# Functions whose rules hold for all rows, some unchanged.
_DIRECT: dict[str, Callable[[_Call], Step]] = {
    "astype": _aligned,
    "broadcast_to": _aligned,
    "copied": _aligned,
    "expand_dims": _expanded,
    "getitem": _indexed,
    "identity": _aligned,
    "matmul": _product,
    "matrix_transpose": _aligned,
    "permute_dims": _permuted,
    "reshape": _aligned,
    "squeeze": _aligned,
}


def _marked(value: Any, mark: Any) -> Iterator[Tensor]:
    """Yield the tensors in a value that have the rows in front."""
    if mark is True:
        yield value
    elif mark:
        for one, own in zip(value, mark, strict=True):
            yield from _marked(one, own)


def _row_of(value: Any, mark: Any, rows: Iterator[Tensor]) -> Any:
    """Return a value with the next of `rows` in place of each tensor that has the rows in front."""
    if mark is True:
        return next(rows)
    return tuple([_row_of(one, own, rows) for one, own in zip(value, mark, strict=True)]) if mark else value
