"""Numbers that a captured function only returns: `return params, float(loss)`. Each later call returns its own.

A Python number shows its value to whatever uses it. That nothing but the result does is told by the byte code of the
function: the number is that of `float(...)` or `.item()`, and goes from there into the result, by way of variables,
tuples, lists and dicts. In the result it is recognised as the object that it is, which integers are not: equal small
ones are one object.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from functools import lru_cache, partial
from types import CodeType, FrameType, FunctionType, MethodType
from typing import TYPE_CHECKING, Any, NamedTuple, cast

from ..autograd.rules import xt
from ..tensor.face import Tensor
from .bytecode import Step, begin_of, is_method, place_of, steps_of
from .temporaries import users_frame

if TYPE_CHECKING:
    from ..run.capture import Capture


class Returned(NamedTuple):
    """A number among the leaves of a result, and the tensor whose only element it is."""

    value: float
    of: Tensor


class ReturnedNumbers:
    """The numbers that a captured call of a function asks for and only returns. caller: the code that calls it."""

    def __init__(self, capture: Capture, function: Callable[..., Any], caller: CodeType) -> None:
        self._capture, self._codes = capture, (_code_of(function), caller)
        self._found: dict[int, Returned] = {}

    def hand_out(self, x: Tensor) -> float | None:
        """Return the only element of a tensor as a number; None if that is not only returned."""
        if not _is_only_returned(self._codes):
            return None
        own = xt.astype(xt.reshape(x.detach(), ()), x.dtype, copy=True).evaluate()  # nobody writes to it
        with self._capture.inside():
            value = float(own.blob.shallow_copy().native())
        self._found[id(value)] = Returned(value, own)
        return value

    def among(self, leaves: list[Any]) -> list[Any]:
        """Return the leaves of the result with these numbers in place of their values. The call is not captured if one
        is missing: where it went is then unknown.
        """
        if not self._found.keys() <= set(map(id, leaves)):
            self._capture.looked(None)
        return [self._found.get(id(leaf), leaf) for leaf in leaves]


def _code_of(function: Any) -> CodeType | None:
    """Return the code whose result is that of a function; None for what is written in C and may call others."""
    while isinstance(function, (partial, MethodType)):
        function = function.func if isinstance(function, partial) else function.__func__
    own = function if isinstance(function, FunctionType) else type(function).__call__
    return getattr(own, "__code__", None)


# The functions between the one that is captured and this file: others would compute with the number.
_BETWEEN = frozenset(("__float__", "_scalar", "counted", "hand_out", "handed_out", "item"))

# Names of functions by which variables are found that no instruction loads.
_SHOWING = frozenset(("_getframe", "currentframe", "eval", "exec", "locals", "stack", "vars"))


def _is_only_returned(codes: tuple[CodeType | None, CodeType]) -> bool:
    """Return whether a number is asked for by the captured function's own code, which only returns it. codes: that one,
    and the one that calls it.
    """
    frame, inner = users_frame(), sys._getframe(1)
    if frame.f_back is None or (frame.f_code, frame.f_back.f_code) != codes:
        return False
    while inner is not frame:
        if inner.f_code.co_name not in _BETWEEN:
            return False
        inner = cast(FrameType, inner.f_back)
    is_usual = frame.f_globals.get("float", frame.f_builtins.get("float")) is float
    return _returns(frame.f_code, frame.f_lasti, is_usual)


# ---- byte code


# Instructions that only push.
_PUSHES = frozenset(
    (
        *("COPY_FREE_VARS", "LOAD_CLOSURE", "LOAD_COMMON_CONSTANT", "LOAD_CONST", "LOAD_DEREF", "LOAD_FAST"),
        *("LOAD_GLOBAL", "LOAD_NAME", "LOAD_SMALL_INT", "PUSH_NULL"),
    )
)

# How many values an instruction takes from the stack. Nothing else may come between a number and the result.
_TAKES = {"LOAD_ATTR": 1, "LOAD_METHOD": 1, "UNARY_NEGATIVE": 1, "UNARY_INVERT": 1, "BINARY_OP": 2, "BINARY_SUBSCR": 2}
_TAKES |= {"COMPARE_OP": 2, "POP_TOP": 1, "STORE_FAST": 1}


@lru_cache(maxsize=1024)
def _returns(code: CodeType, at: int, is_usual: bool) -> bool:
    """Return whether the instruction at an offset makes a number that is only returned. is_usual: whether `float` is
    Python's own here.
    """
    flow = _Flow(steps_of(code))
    place = place_of(flow.steps, at)
    begin = flow.conversion(place, is_usual) if _SHOWING.isdisjoint(code.co_names) else None
    return begin is not None and flow.reaches_result(begin, place + 1)


class _Flow:
    """Where the values of a function's steps go."""

    def __init__(self, steps: Sequence[Step]) -> None:
        self.steps = steps
        self._variables: dict[str, bool] = {}  # that were looked into, and whether as lists

    def conversion(self, place: int, is_usual: bool) -> int | None:
        """Return where a call of `float`, or of a method `item`, begins; None if a step is neither."""
        step, before = self.steps[place], self.steps[place - 1]
        if (step.name, step.value) == ("CALL", 0):
            return begin_of(self.steps, place - 1, 1) if is_method(before, "item") else None
        if (step.name, step.value) != ("CALL", 1) or not is_usual:
            return None
        begin = begin_of(self.steps, place, 3)  # what calls the function, its place beside it, and the argument
        is_float = begin is not None and self.steps[begin][1:3] == ("LOAD_GLOBAL", "float")
        return begin if is_float else None

    def reaches_result(self, begin: int | None, place: int) -> bool:
        """Return whether the value on top of the stack, before a step, only becomes part of the result. begin: where
        its expression begins. The steps are followed one by one, and any that is not known here says no: so do jumps.
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
                return self._variable_reaches_result(value, is_list=False)
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
        appends = is_method(method, "append") and owner.name == "LOAD_FAST"
        return appends and self._variable_reaches_result(owner.value, is_list=True)

    def _variable_reaches_result(self, variable: str, *, is_list: bool) -> bool:
        """Return whether a variable that is assigned once only becomes part of the result, but for being appended to.
        is_list: whether it must be a list that is made here.
        """
        if variable in self._variables:  # it is being looked into, and one use that says no decides for all
            return self._variables[variable] or not is_list
        self._variables[variable] = is_list
        uses = [place for place, one in enumerate(self.steps) if "_FAST" in one.name and one.value == variable]
        names = [self.steps[place].name for place in uses]
        if names != ["STORE_FAST", *["LOAD_FAST"] * (len(uses) - 1)]:
            return False
        if is_list and self.steps[uses[0] - 1][1:3] != ("BUILD_LIST", 0):
            return False
        return all(self._load_reaches_result(place, is_list=is_list) for place in uses[1:])

    def _load_reaches_result(self, place: int, *, is_list: bool) -> bool:
        """Return whether the variable that a step loads is appended to, or only becomes part of the result."""
        return (is_list and is_method(self.steps[place + 1], "append")) or self.reaches_result(place, place + 1)
