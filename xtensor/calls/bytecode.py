"""The byte code of functions as steps, alike in all versions of Python: what puts a value on the stack, and where the
call of a function begins.
"""

from __future__ import annotations

import dis
import re
from bisect import bisect_right
from collections.abc import Callable, Sequence
from functools import lru_cache, wraps
from types import CodeType
from typing import Any, NamedTuple, TypeVar

_T = TypeVar("_T")

# The most places that are remembered, for each function.
_MOST_PLACES = 4096


class Step(NamedTuple):
    """An instruction: where it is, its name and its value, and by how much it makes the stack higher."""

    offset: int
    name: str
    value: Any
    effect: int


# Instructions that do nothing to the stack.
_IDLE = frozenset(("CACHE", "EXTENDED_ARG", "NOP", "NOT_TAKEN", "PRECALL", "KW_NAMES", "RESUME"))

# The step that stands where others than the one before may lead to.
LABEL = "JUMP_TARGET"


def by_place(function: Callable[[CodeType, int], _T]) -> Callable[[CodeType, int], _T]:
    """Remember what a function returns for code and an offset, by the id of the code, which is kept: its hash would be
    computed anew in each call, which takes up to a tenth of a millisecond.
    """
    known: dict[tuple[int, int], tuple[CodeType, _T]] = {}

    @wraps(function)
    def call(code: CodeType, at: int) -> _T:
        found = known.get((id(code), at))
        if found is None:
            if len(known) >= _MOST_PLACES:
                known.clear()
            found = known[id(code), at] = code, function(code, at)
        return found[1]

    return call


@lru_cache(maxsize=1024)
def steps_of(code: CodeType) -> tuple[Step, ...]:
    """Return the instructions of code that do something; those that load or store two variables are two."""
    steps: list[Step] = []
    begin = None  # of a call in Python 3.11, whose first instruction may do all
    for one in dis.get_instructions(code):
        begin = one.offset if one.opname == "PRECALL" else begin
        if one.is_jump_target:
            steps.append(Step(one.offset, LABEL, None, 0))
        if one.opname in _IDLE:
            continue
        variables = re.findall(r"(LOAD|STORE)_FAST(?:_BORROW|_CHECK)?(?=_LOAD|_STORE|$)", one.opname)
        if variables:
            names = one.argval if isinstance(one.argval, tuple) else (one.argval,)
            effects = [1 if way == "LOAD" else -1 for way in variables]
            parts = [(f"{way}_FAST", name, by) for way, name, by in zip(variables, names, effects, strict=True)]
        elif one.opname == "CALL":  # in Python 3.11 with the one before it, which takes the arguments
            parts = [("CALL", one.arg, -1 - (one.arg or 0))]
        else:
            parts = [(one.opname, one.argval, dis.stack_effect(one.opcode, one.arg, jump=False))]
        steps += [Step(one.offset if begin is None else begin, *part) for part in parts]
        begin = None
    return tuple(steps)


def is_method(step: Step, name: str) -> bool:
    """Return whether a step loads a method of a name to call it at once, with the object below its arguments."""
    return step.name in ("LOAD_ATTR", "LOAD_METHOD") and step.value == name and step.effect == 1


def place_of(steps: Sequence[Step], offset: int) -> int:
    """Return the place of the step at an offset, or before it where caches follow."""
    return bisect_right(steps, offset, key=lambda step: step.offset) - 1


def _branches(step: Step) -> bool:
    return "JUMP" in step.name or step.name in ("FOR_ITER", "SEND")


def begin_of(steps: Sequence[Step], place: int, height: int) -> int | None:
    """Return the first of the steps before a place that push so many values; None if there are jumps among them."""
    while height > 0 and place:
        place -= 1
        if _branches(steps[place]):
            return None
        height -= steps[place].effect
    return None if height else place


def maker_of(steps: Sequence[Step], place: int, above: int) -> int | None:
    """Return the place of the step that put a value on the stack, which lies below so many others before a step; None
    where that depends on jumps.
    """
    place -= 1
    while above > 0 and place >= 0:
        if _branches(steps[place]) or steps[place].name in ("COPY", "SWAP"):
            return None
        above -= steps[place].effect
        place -= 1
    return None if above or place < 0 or _branches(steps[place]) else place


def callee_of(steps: Sequence[Step], place: int) -> Step | None:
    """Return the step that loads the variable by which the function of a call is found: `np` of `np.linalg.norm(x)`.
    None for calls of anything else than attributes of variables.
    """
    name, given, _ = steps[place][1:]
    begin = begin_of(steps, place, given + 2 + (name == "CALL_KW"))
    if begin is None or steps[begin].name not in ("LOAD_FAST", "LOAD_GLOBAL", "LOAD_NAME", "LOAD_DEREF"):
        return None
    height, is_found = 0, False  # the function and the place beside it are two values
    for step in steps[begin:place]:
        if not is_found and height and step.name not in ("LOAD_ATTR", "LOAD_METHOD", "PUSH_NULL"):
            return None
        height += step.effect
        if is_found and height < 2:  # it was called itself
            return None
        is_found = is_found or height == 2
    return steps[begin]
