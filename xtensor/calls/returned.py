"""Numbers that a captured function only returns: `return params, float(loss)`. Each later call returns its own.

A Python number shows its value to whatever uses it. That nothing but the result does is told by the byte code of the
function: the number is that of `float(...)`, `int(...)` or `.item()`, and goes from there into the result, by way of
variables, tuples, lists and dicts.
"""

from __future__ import annotations

import dis
import re
import sys
from collections import Counter
from collections.abc import Sequence
from functools import lru_cache
from types import CodeType, FrameType
from typing import TYPE_CHECKING, Any, NamedTuple

from ..autograd.rules import xt
from ..tensor.face import Tensor

if TYPE_CHECKING:
    from ..run.capture import Capture

_PACKAGE = __name__.partition(".")[0] + "."
_CONVERSIONS = {"float": float, "int": int}


class Handed(NamedTuple):
    """A number among the leaves of a result, and the tensor whose only element it is."""

    value: float | int
    of: Tensor


class HandedOut:
    """The numbers that a captured call asks for and only returns. caller: the code that calls the function."""

    def __init__(self, capture: Capture, caller: CodeType) -> None:
        self._capture, self._caller = capture, caller
        self._numbers: dict[int, Handed] = {}
        self._is_unclear = False

    def __call__(self, x: Tensor, kind: type[float] | type[int]) -> Any:
        """Return the only element of a tensor as a number of a kind, None if that is not only returned."""
        if not _is_only_returned(self._caller):
            return None
        own = xt.astype(xt.reshape(x.detach(), ()), x.dtype, copy=True).evaluate()  # nobody writes to it
        with self._capture.inside():
            value = kind(own.blob.shallow_copy().native())
        self._is_unclear |= id(value) in self._numbers  # equal small integers are one object
        self._numbers[id(value)] = Handed(value, own)
        return value

    def among(self, leaves: list[Any]) -> list[Any]:
        """Return the leaves of the result with the numbers in place of their values. The call is not captured if one is
        missing, or if an integer is there twice, as it may also be a constant.
        """
        times = Counter(map(id, leaves))
        for own, one in self._numbers.items():
            self._is_unclear |= not times[own] or (type(one.value) is int and times[own] > 1)
        if self._is_unclear:
            self._capture.looked(None)
        return [self._numbers.get(id(leaf), leaf) for leaf in leaves]


def _is_only_returned(caller: CodeType) -> bool:
    """Return whether a number is asked for by the captured function's own code, which only returns it."""
    frame = sys._getframe(1)
    while frame.f_back is not None and str(frame.f_globals.get("__name__")).startswith(_PACKAGE):
        if frame.f_code.co_name not in _ASKING:
            return False
        frame = frame.f_back
    is_own = frame.f_back is not None and frame.f_back.f_code is caller
    return is_own and _returns(frame.f_code, frame.f_lasti, all(_means(frame, *one) for one in _CONVERSIONS.items()))


# The functions of this package between the one that is captured and this file.
_ASKING = frozenset(("__call__", "__float__", "__int__", "_scalar", "counted", "handed_out", "item"))

# Names of functions by which variables are found that no instruction loads.
_SHOWING = frozenset(("_getframe", "currentframe", "eval", "exec", "locals", "stack", "vars"))


def _means(frame: FrameType, name: str, kind: type) -> bool:
    """Return whether a global name means a built-in type in a frame."""
    return frame.f_globals.get(name, frame.f_builtins.get(name)) is kind


class _Step(NamedTuple):
    """An instruction: where it is, its name and its value, and by how much it makes the stack higher."""

    offset: int
    name: str
    value: Any
    effect: int


# Instructions that do nothing to the stack, and those that only push.
_IDLE = frozenset(("CACHE", "EXTENDED_ARG", "NOP", "NOT_TAKEN", "PRECALL", "KW_NAMES", "RESUME"))
_PUSHES = frozenset(
    (
        *("COPY_FREE_VARS", "LOAD_CLOSURE", "LOAD_COMMON_CONSTANT", "LOAD_CONST", "LOAD_DEREF", "LOAD_FAST"),
        *("LOAD_GLOBAL", "LOAD_NAME", "LOAD_SMALL_INT", "PUSH_NULL"),
    )
)

# How many values an instruction takes from the stack.
_TAKES = {"LOAD_ATTR": 1, "LOAD_METHOD": 1, "UNARY_NEGATIVE": 1, "UNARY_INVERT": 1, "BINARY_OP": 2, "BINARY_SUBSCR": 2}
_TAKES |= {"COMPARE_OP": 2, "POP_TOP": 1, "STORE_FAST": 1}


@lru_cache(maxsize=1024)
def _steps_of(code: CodeType) -> tuple[_Step, ...]:
    """Return the instructions of code that do something; those that load or store two variables are two."""
    steps: list[_Step] = []
    begin = None  # of a call in Python 3.11, whose first instruction may do all
    for one in dis.get_instructions(code):
        begin = one.offset if one.opname == "PRECALL" else begin
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
        steps += [_Step(one.offset if begin is None else begin, *part) for part in parts]
        begin = None
    return tuple(steps)


@lru_cache(maxsize=1024)
def _returns(code: CodeType, at: int, usual: bool) -> bool:
    """Return whether the instruction at an offset makes a number that is only returned. usual: whether `float` and
    `int` are Python's own here.
    """
    flow = _Flow(_steps_of(code))
    place = sum([step.offset <= at for step in flow.steps]) - 1  # there may be caches in between
    begin = flow.conversion(place, usual) if _SHOWING.isdisjoint(code.co_names) else None
    return begin is not None and flow.goes_out(begin, place + 1)


_METHODS = frozenset(("LOAD_ATTR", "LOAD_METHOD"))


class _Flow:
    """Where the values of a function's steps go."""

    def __init__(self, steps: Sequence[_Step]) -> None:
        self.steps = steps
        self._asked: set[str] = set()  # variables; one that fails decides, so each is looked into once

    def conversion(self, place: int, usual: bool) -> int | None:
        """Return where a call of `float` or `int`, or of a method `item`, begins; None if a step is none."""
        if self.steps[place].name != "CALL" or not place:
            return None
        if self.steps[place].value == 0:
            before = self.steps[place - 1]
            is_item = before.name in _METHODS and before.value == "item"
            return self._begin(place - 1, 1) if is_item else None
        begin = self._begin(place, 3)  # what calls the function, its place beside it, and the argument
        first = self.steps[begin or 0]
        return begin if usual and first.name == "LOAD_GLOBAL" and first.value in _CONVERSIONS else None

    def _begin(self, place: int, height: int) -> int | None:
        """Return the first of the steps before a place that push so many values; None if there are jumps among them."""
        while height > 0 and place:
            place -= 1
            if "JUMP" in self.steps[place].name:
                return None
            height -= self.steps[place].effect
        return None if height else place

    def goes_out(self, begin: int | None, place: int) -> bool:
        """Return whether the value on top of the stack, before a step, only becomes part of the result. begin: where
        its expression begins.
        """
        above = 0  # values above it
        for name, value, effect in [step[1:] for step in self.steps[place:]]:
            if name == "RETURN_VALUE":
                return above == 0
            if name in ("BUILD_TUPLE", "BUILD_LIST", "BUILD_MAP", "BUILD_CONST_KEY_MAP"):
                if above <= -effect:
                    if name == "BUILD_MAP" and above % 2:  # it is a key
                        return False
                    above, begin = 0, None  # it is in there
                    continue
                takes = 1 - effect
            elif name == "STORE_FAST" and above == 0:
                return self._variable_goes_out(value, is_list=False)
            elif name == "CALL":
                if above == 0:
                    return value == 1 and self._is_appended(begin or 0)
                takes = value + 2
            elif name in _PUSHES:
                takes = 0
            else:
                takes = _TAKES.get(name, above + 1)
            if takes > above:
                return False
            above += effect
        return False

    def _is_appended(self, begin: int) -> bool:
        """Return whether the expression that begins with a step is what is appended to a list of the function's own,
        which only becomes part of the result.
        """
        if begin < 2:
            return False
        owner, method = self.steps[begin - 2 : begin]
        appends = method.name in _METHODS and method.value == "append" and owner.name == "LOAD_FAST"
        return appends and self._variable_goes_out(owner.value, is_list=True)

    def _variable_goes_out(self, variable: str, *, is_list: bool) -> bool:
        """Return whether a variable that is assigned once only becomes part of the result, but for being appended to.
        is_list: whether it must be a list that is made here.
        """
        if variable in self._asked:
            return not is_list or f"{variable}[]" in self._asked
        self._asked |= {variable, f"{variable}[]"} if is_list else {variable}
        uses = [place for place, one in enumerate(self.steps) if "_FAST" in one.name and one.value == variable]
        names = [self.steps[place].name for place in uses]
        if names != ["STORE_FAST", *["LOAD_FAST"] * (len(uses) - 1)]:
            return False
        if is_list and self.steps[uses[0] - 1][1:3] != ("BUILD_LIST", 0):
            return False
        return all(self._is_kept(place, is_list=is_list) for place in uses[1:])

    def _is_kept(self, place: int, *, is_list: bool) -> bool:
        """Return whether the variable that a step loads is appended to, or only becomes part of the result."""
        after = self.steps[place + 1]
        return (is_list and after.name in _METHODS and after.value == "append") or self.goes_out(place, place + 1)
