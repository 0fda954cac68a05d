"""fuse: a function of tensors whose recorded expression is remembered, so that later calls only launch its kernels.

The first call with arguments of a kind is a plain call that is watched. Nothing is remembered unless its result is an
expression of the arguments alone: nobody asked for a value, nothing was written, and all memory that is read is an
argument's or a view's of one. Such an expression holds for all arguments of the same dtypes, shapes and strides.
"""

from __future__ import annotations

from collections.abc import Callable
from enum import Enum
from functools import update_wrapper
from operator import is_
from types import BuiltinFunctionType, FunctionType, MethodType, ModuleType
from typing import Any, Generic, ParamSpec, TypeVar, cast

import numpy as np

from ..autograd.tape import active, steps_of
from ..base.errors import expected
from ..base.options import Settings, options, settings
from ..devices import Device
from ..devices.cpu import CPU
from ..graph.node import Node, Part
from ..plan.costs import CAPTURED_STEPS
from ..run import executor as run
from ..storage.blob import TBlob
from ..storage.storage import watchers
from ..tensor.face import Tensor, evaluate, face, small
from ..tensor.trees import flatten, rebuilt
from .record import record_part
from .watch import DISTURBED, Watch, is_watched

P = ParamSpec("P")
R = TypeVar("R")

# Kinds of arguments that one function remembers; of more, the ones used longest ago are forgotten.
REMEMBERED = 64

# First calls that are not watched after one for which something had to be forgotten that was never used again.
UNWATCHED = 15

# Calls with small arguments that are plain ones without being looked up, where library calls cost less for the kind of
# arguments that came last, and came twice.
NOT_LOOKED_UP = 15

# Why a call is a plain one, where it is not for something that the function did.
NEW = "no call with such arguments has been watched, or it was forgotten"
RETURNS = "it returns something else than tensors, or nested tuples, lists, dicts or dataclasses of them"
COMPUTED = "a result was computed at once, or is an argument or a view of one"
NO_TENSOR = "no argument is a tensor"
GRADIENT = "an argument takes part in a gradient (fuse the function that computes the gradient)"
REQUIRES = "a result has a gradient, which the function asks for itself"
ELSEWHERE = "an argument is not on the CPU"
ASKED = "the options ask for plain calls (lazy='never', engine='direct' or show)"
INSIDE = "another function is being watched, which calls this one"


def fuse(function: Callable[P, R], /) -> Fused[P, R]:
    """Return a function that gives what `function` gives and remembers the expression it computes.

    function: takes tensors, Python scalars, strings and other constants, and returns a tensor, or tuples, lists, dicts
    or dataclasses of tensors, nested as they like. The first call with arguments of some dtypes, shapes and strides,
    and with some constants, runs it; later ones launch the kernels at once, whose results are evaluated. Where that
    could differ from a plain call, and for small arrays, where library calls cost less, it is simply called: `why`, a
    method of what is returned, says why.

    What the function finds out elsewhere - a global number, the value of another tensor, whether two arguments are one
    object - is taken for constant, and what it does besides returning its result is done only in calls that run it.
    Memory that an argument shares with a NumPy array is read when the call ends: the function itself must not write to
    it through that array.

    Raises TypeError for what cannot be called; calls raise what the function raises.

    >>> @xt.fuse
    ... def gelu(x):
    ...     return 0.5 * x * (1.0 + xt.tanh(0.7978845608 * (x + 0.044715 * x**3)))

    Source: cupy.fuse, jax.jit.
    """
    if not callable(function):
        raise TypeError(expected("fuse", "function", "be callable", type(function).__name__))
    return Fused(function)


class Fused(Generic[P, R]):
    """A function made by `fuse`. It is called as the function is, and works as a method; `why` explains a call."""

    def __init__(self, function: Callable[P, R]) -> None:
        update_wrapper(self, function)
        self._function: Callable[..., R] = function
        self._known: dict[tuple[Any, ...], _Known] = {}
        self._uses = self._unwatched = self._not_looked_up = 0
        self._last: _Known | None = None
        self._plain: Settings | None = None

    def __repr__(self) -> str:
        return f"fuse({getattr(self._function, '__qualname__', repr(self._function))})"

    def __get__(self, instance: Any, owner: type | None = None) -> Any:
        return self if instance is None else MethodType(self, instance)

    def __reduce__(self) -> str:
        return str(getattr(self, "__qualname__", self))  # a decorated function is found by its name

    def __call__(self, /, *args: P.args, **kwargs: P.kwargs) -> R:
        if self._not_looked_up and not kwargs and self._plain is settings():
            for x in args:
                if type(x) is Tensor and small(x) is None:
                    break
            else:
                self._not_looked_up -= 1
                return self._function(*args)
        if not watchers or not is_watched():
            found = _signature(args, kwargs)
            if type(found) is not str:
                signature, blobs = found
                known = self._known.get(signature)
                if known is None:
                    return self._first_call(signature, args, kwargs)
                known.used = self._uses = self._uses + 1
                results = known.results(blobs)
                if results is not None:
                    return cast(R, known.rebuild([face(blob) for blob in results]))
                self._not_looked_up = NOT_LOOKED_UP * (known is self._last)
                self._plain, self._last = known.plain, known
        return self._function(*args, **kwargs)

    def why(self, /, *args: P.args, **kwargs: P.kwargs) -> str:
        """Return why the next call with such arguments runs the function itself, "" if it launches kernels."""
        found = _signature(args, kwargs)
        if is_watched() or type(found) is str:
            return INSIDE if is_watched() else str(found)
        known = self._known.get(found[0])
        return NEW if known is None else known.why()

    def _first_call(self, signature: tuple[Any, ...], args: Any, kwargs: Any) -> R:
        """Call the function, watched, and remember what it computes, or why that is not known."""
        self._unwatched -= 1
        if self._unwatched >= 0 or _asks_for_plain_calls(settings()):
            return self._function(*args, **kwargs)
        watch = Watch()
        given = [watch.stand_in(x) for x in args]
        named = {name: watch.stand_in(x) for name, x in kwargs.items()}
        steps = max(settings().fuse_limit, CAPTURED_STEPS)  # a gradient has many, and is planned once
        with run.at_once(watch.buffers):
            with watch, options(lazy="always", fuse_limit=steps):
                result: Any = self._function(*given, **named)
                given, rebuild = _taken_apart(result)
                parts = [watch.own(part) for part in given]
                for part in parts:
                    if type(part) is Tensor and type(part._data) is Part:
                        record_part(part)
            with run.turn():
                known = _known(parts, rebuild, watch)
        if known.reason != DISTURBED:
            self._remember(signature, known)
        return cast(R, result if all(map(is_, parts, given)) else rebuild(parts))

    def _remember(self, signature: tuple[Any, ...], known: _Known) -> None:
        """Remember a kind of arguments, and forget the one used longest ago if they are too many."""
        if len(self._known) >= REMEMBERED:
            oldest, forgotten = min(list(self._known.items()), key=lambda item: item[1].used)
            self._known.pop(oldest, None)
            self._unwatched = UNWATCHED if forgotten.used == forgotten.made else 0
        known.used = known.made = self._uses = self._uses + 1
        self._known[signature] = known


def _asks_for_plain_calls(limits: Settings) -> bool:
    return limits.lazy == "never" or limits.engine == "direct" or bool(limits.show)


# ---- signatures


# Kinds of constants that are equal only where nobody can tell them apart, or that are compared by identity.
_PLAIN = frozenset((int, bool, str, bytes, type(None), type(Ellipsis), FunctionType, BuiltinFunctionType, ModuleType))
_IMMUTABLE = (np.dtype, np.ufunc, type, Enum, Device)


def _signature(args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Return what calls of one expression have in common, and the memory of the tensors; or why there is no such.

    Pending tensors are evaluated.
    """
    key: list[Any] = [tuple(kwargs)] if kwargs else []
    blobs = []
    for x in (*args, *kwargs.values()) if kwargs else args:
        if type(x) is Tensor:
            if active[0] and steps_of((x,)) is not None:
                return GRADIENT
            blob = x.blob
            layout = blob.layout
            if blob.device.backend is not CPU:
                return ELSEWHERE
            key += (blob.dtype.num, layout.shape, layout.strides)
            blobs.append(blob)
        else:
            constant = _constant(x)
            if constant is None:
                return f"an argument is of type {type(x).__name__}, which may change"
            key += constant
    return (tuple(key), blobs) if blobs else NO_TENSOR


def _constant(x: Any) -> tuple[Any, ...] | None:
    """Return what tells a constant from all others, its type first; None for what is none, as it may change."""
    kind = type(x)
    if kind in _PLAIN:
        return kind, x
    if kind is float:
        return kind, x.hex()  # -0.0 is not 0.0, and NaN is NaN
    if kind is complex:
        return kind, x.real.hex(), x.imag.hex()
    if kind is tuple:
        parts = [_constant(part) for part in x]
        return None if None in parts else (kind, *parts)
    if kind is slice:
        return _constant((slice, x.start, x.stop, x.step))
    if isinstance(x, np.generic):
        return kind, x.tobytes()
    return (kind, x) if isinstance(x, _IMMUTABLE) else None


# ---- what is remembered


class _Known:
    """What is remembered of a signature: an expression, or the reason why there is none.

    rebuild: makes the result of its tensors. plain: the settings under which library calls cost less, as far as is
    known. made, used: the numbers of its first and its last call.
    """

    def __init__(self, expression: Any, rebuild: Callable[[list[Any]], Any], reason: str = "") -> None:
        self.expression = expression
        self.rebuild = rebuild
        self.reason = reason
        self.plain: Any = None
        self.made = self.used = 0

    def results(self, blobs: list[TBlob]) -> list[TBlob] | None:
        """Return the bytes of the results for these arguments; None where the function is to be called."""
        expression, limits = self.expression, settings()
        if self.plain is limits or self.reason or _asks_for_plain_calls(limits):
            return None
        with run.turn():
            found = cast("list[TBlob] | None", expression.run(blobs, limits))
        if found is None:
            self.plain = limits if expression.is_small else None
        return found

    def why(self) -> str:
        """Return why the next call runs the function, "" if it does not."""
        limits = settings()
        return self.reason or (ASKED if _asks_for_plain_calls(limits) else str(self.expression.why_not(limits)))


def _known(parts: list[Any], rebuild: Callable[[list[Any]], Any], watch: Watch) -> _Known:
    """Return what is to be remembered of a call that was watched; evaluate its result if that is an expression."""
    if not parts or not all(type(part) is Tensor for part in parts):
        return _Known(None, rebuild, RETURNS)
    if any(part.requires_grad for part in parts):
        return _Known(None, rebuild, REQUIRES)
    nodes = [part.value for part in parts]
    if watch.reason or not all(type(node) is Node and node.blob is None for node in nodes):
        return _Known(None, rebuild, watch.reason or COMPUTED)
    from ..run.expression import record  # the engines come with it

    found = record(nodes, watch.roots)
    if isinstance(found, str):
        return _Known(None, rebuild, found)
    evaluate(*parts)
    places = [found.results.index(number) for number in found.returned]
    if len(places) == len(found.results):
        return _Known(found, rebuild)
    return _Known(found, lambda tensors: rebuild([tensors[place] for place in places]))  # some come twice


def _taken_apart(result: Any) -> tuple[list[Any], Callable[[list[Any]], Any]]:
    """Return the tensors of a result, and what puts such tensors together again."""
    if type(result) is Tensor:
        return [result], _alone
    if type(result) in (tuple, list) and all(type(part) is Tensor for part in result):
        return list(result), type(result)
    leaves, rebuild = flatten(result)
    return leaves, lambda parts: rebuilt(rebuild, parts)


def _alone(parts: list[Any]) -> Any:
    return parts[0]
