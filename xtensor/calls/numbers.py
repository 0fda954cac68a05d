"""Python numbers that differ from call to call, and become inputs of later calls of a captured function.

When a call differs from a captured one only in numbers - arguments, attributes, elements of lists and dicts - it is
traced with Numbers in their places (graph/number.py). Its signature has `VARYING` in place of them; if comparisons of
numbers lead to several kinds with that signature, each is tried in turn.
"""

from __future__ import annotations

from collections.abc import Container, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, cast

from ..base.locks import fork_safe_lock
from ..graph.number import KINDS, MOST_VALUES, Arithmetic, Number, value_of
from ..run.executor import before_write
from ..tensor.face import Tensor
from ..tensor.trees import above_leaves
from .given import bounds_of, is_remade, remade
from .rebound import Left

if TYPE_CHECKING:
    from ..run.capture import Capture
    from ..storage.blob import TBlob

# Stands for a number in a signature where it is an input.
VARYING = object()

# Names by which code can tell a Number from a number: functions that mention them are not traced.
TELLING = frozenset(("type", "__class__"))

# Held while Numbers are in lists, dicts and objects; and how often they were put there or taken away.
_placing, placed = fork_safe_lock(), [0]

# Limits: of sets of numbers that are inputs of a function, of kinds that comparisons of these may lead to, and of bytes
# that a traced call writes, as they are copied before.
MOST_MASKS, MOST_WAYS, MOST_COPIED = 8, MOST_VALUES, 1 << 30

# For each number its place in a signature, its value, and the index of its holder and its name there: -1 and None for
# an argument, -1 and the id of the tuple for an element of a tuple.
Numbers = Sequence[tuple[int, Any, int, Any]]


def masked(signature: tuple[Any, ...], places: Iterable[int]) -> tuple[Any, ...]:
    """Return a signature with VARYING for the numbers in some places."""
    key = list(signature)
    for place in places:
        key[place] = VARYING
    return tuple(key)


def differing(signature: tuple[Any, ...], other: tuple[Any, ...], numbers: Numbers) -> list[int]:
    """Return the indices of the numbers in which a signature differs from another one; none where anything else
    differs.
    """
    if len(other) != len(signature):
        return []
    order = {one[0]: number for number, one in enumerate(numbers)}
    found = []
    for place, (old, new) in enumerate(zip(other, signature, strict=True)):
        if old is not new and old != new:
            if place not in order:
                return []
            found.append(order[place])
    return found


class Traced:
    """A call that is traced, with Numbers in place of some numbers.

    found: the result of signature_of. chosen: the indices of these numbers; args, kwargs: the function's arguments.
    indexes: as of an Arithmetic. Within its `with` block Numbers are also in lists, dicts and objects that hold such
    numbers (`has_held`), but only if `places`: another thread may have put its own into the same holders.
    """

    def __init__(
        self,
        found: Sequence[Any],
        chosen: Sequence[int],
        args: Sequence[Any],
        kwargs: dict[str, Any],
        *,
        indexes: bool = False,
    ) -> None:
        _, tensors, _, _, self._holders, numbers = found
        self.chosen = chosen
        self.arithmetic = Arithmetic([numbers[number][1] for number in chosen], indexes=indexes)
        given = dict(zip(chosen, self.arithmetic.given, strict=True))
        arguments = iter([number for number, one in enumerate(numbers) if one[2] < 0])
        tuples = {one[3] for one in numbers if one[2] < 0}
        order = _replaced((*args, *kwargs.values()), arguments, given, tuples)
        self.args = [next(order) for _ in args]
        self.kwargs = {name: next(order) for name in kwargs}
        held = [(numbers[number], one) for number, one in given.items()]
        self._held = [(Left(holder, name, True), one) for (_, _, holder, name), one in held if holder >= 0]
        self.has_held, self.places = bool(self._held), False
        self._written: list[TBlob] = []
        self._owners = {x.owner: x.owner.version for x in tensors}
        self._copies: list[Any] = []

    def __enter__(self) -> Traced:
        self.places = self.has_held and _placing.acquire(False)
        try:
            placed[0] += self.places
            for left, number in self._held if self.places else ():
                left.put(self._holders, number)
        except BaseException:  # an interrupt
            self.__exit__()
            raise
        return self

    def __exit__(self, *failure: object) -> None:
        """Put plain numbers where Numbers of this call are."""
        self.arithmetic.close()
        for left, _ in self._held if self.places else ():
            value = left.value(self._holders)
            if type(value) is Number and value.arithmetic is self.arithmetic:
                left.put(self._holders, value_of(value))
        if self.places:
            self.places = False
            placed[0] += 1
            _placing.release()

    def keep(self, written: Sequence[Tensor]) -> bool:
        """Copy the tensors that the call is expected to write; return False where it cannot be traced: these are too
        large, or a number is behind a property.
        """
        held = [(type(self._holders[cast(int, left.where)]), left.key) for left, _ in self._held]
        hidden = [isinstance(key, str) and isinstance(getattr(kind, key, None), property) for kind, key in held]
        if any(hidden) or sum([x.nbytes for x in written]) > MOST_COPIED:
            return False
        self._written = [x.blob for x in written]
        self._copies = [blob.device.backend.call(blob.shallow_copy().native().copy) for blob in self._written]
        return True

    def asked(self) -> set[int]:
        """Return the indices of the numbers whose values were asked for."""
        return {self.chosen[place] for place in self.arithmetic.asked}

    def undone(self, capture: Capture) -> bool:
        """Restore the tensors that a failed call has written, which may have failed because it was traced; return
        whether it had no other effect that a second call would repeat.
        """
        self.arithmetic.close()
        written = {owner for owner, version in self._owners.items() if owner.version != version}
        if capture.draws or not written <= {blob.owner for blob in self._written} or capture.reaches_out:
            return False
        with capture.inside():
            for blob, copy in zip(self._written, self._copies, strict=True):
                before_write(blob.owner)
                blob.device.backend.assign(blob.shallow_copy().native(), ..., copy)
                blob.owner.changes += 1
        return True


def settle_keys(tree: Any, whole: Container[int]) -> None:
    """Put plain numbers in place of Numbers among the keys of dicts in a result; hashing has asked for their values.

    whole: the ids of lists, dicts and objects that existed before the call.
    """
    for one in above_leaves(tree, whole):
        if isinstance(one, dict) and any(map(_has_number, one)):
            items = [(_settled(key), value) for key, value in one.items()]
            one.clear()
            one.update(items)


def _has_number(key: Any) -> bool:
    return type(key) is Number or (isinstance(key, (tuple, frozenset)) and any(map(_has_number, key)))


def _settled(key: Any) -> Any:
    if not _has_number(key):
        return key
    parts = [_settled(part) for part in key] if isinstance(key, (tuple, frozenset)) else []
    if hasattr(key, "_fields"):
        return type(key)(*parts)
    return type(key)(parts) if parts else value_of(key)


def others_placed(traced: Traced | None) -> bool:
    """Return whether another thread has put Numbers into objects, which a call may read."""
    if traced is not None and traced.has_held:
        return not traced.places
    free = _placing.acquire(False)
    if free:
        _placing.release()
    return not free


def _replaced(
    values: Iterable[Any], numbers: Iterator[int], given: dict[int, Number], tuples: Container[int]
) -> Iterator[Any]:
    """Yield arguments with some of the numbers among them, and in tuples, replaced. numbers: the indices of arguments'
    numbers among all. tuples: the ids of those tuples.
    """
    made: dict[int, Any] = {}  # by the ids of tuples, which may be given twice

    def replaced(value: Any, *, is_told: bool) -> Any:
        if type(value) in KINDS:
            return given.get(next(numbers), value) if is_told else value
        if type(value) is slice:
            bounds = [replaced(part, is_told=id(value) in tuples) for part in bounds_of(value)]
            return slice(*bounds) if Number in map(type, bounds) else value
        if not is_remade(value):
            return value
        if id(value) not in made:
            made[id(value)] = value  # for a tuple that contains itself
            made[id(value)] = remade(value, [replaced(part, is_told=id(value) in tuples) for part in value])
        return made[id(value)]

    for value in values:
        yield replaced(value, is_told=True)
