"""The doors: the decorators that make a public function of a row, and its short ways for small operands.

A public function is written once, as a real `def` under a decorator that holds what is mathematically true of
it; the decorator replaces the empty body by the door.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import Any, TypeVar, cast

import numpy as np

from .devices.cpu import CPU, quickly
from .dtypes import ANY, Category
from .errors import expected, one_of
from .op import SCALARS, Op, apply, reduce
from .options import always_somewhere
from .tensor import Scalar, Tensor, wrap

F = TypeVar("F", bound=Callable[..., Any])


def _finish(op: Op, call: Callable[..., Any]) -> None:
    """Give a row's function its record, and its docstring what the record knows."""
    call.op = op  # type: ignore[attr-defined]
    others = "" if op.accepts is ANY else ", others where NumPy converts them"
    shapes = " Raises ValueError where shapes do not broadcast." if len(op.parameters) > 1 else ""
    call.__doc__ = f"""{(op.stub.__doc__ or "").rstrip()}

    Takes {op.accepts.word} dtypes{others}; raises TypeError for the rest.{shapes}
    Chapter of the standard: {op.chapter.capitalize()} Functions.
    """


def elementwise(
    accepts: Category,
    *,
    element: Callable[..., Any] | None = None,
    domain: tuple[float, float] = (-2.0, 2.0),
    fails_on_values: Callable[..., bool] | None = None,
) -> Callable[[F], F]:
    """Declare an elementwise function: a stub with one to three positional parameters."""

    def decorate(stub: F) -> F:
        op = Op(stub, "elementwise", accepts, element=element, domain=domain, fails_on_values=fails_on_values)
        door = {1: _unary, 2: _binary}.get(len(op.parameters), _several)
        call = wraps(stub)(door(op))
        _finish(op, call)
        return cast(F, call)

    return decorate


# The doors of small operands: no settings, shapes or dtypes are looked at, the library's function is called at
# once. Whatever it refuses goes through apply(), which says what is wrong.
_REFUSED = (TypeError, ValueError, OverflowError, RuntimeError)


def _unary(op: Op) -> Callable[..., Tensor]:
    kernel: Any = None

    def call(x: Any, /) -> Tensor:
        nonlocal kernel
        if type(x) is Tensor and x._small is not None and not always_somewhere[0]:
            kernel = kernel or op.kernel(CPU)
            try:
                result = quickly(kernel, x._small)
            except _REFUSED:
                return apply(op, (x,))
            return wrap(result if type(result) is np.ndarray else np.asarray(result), x.device)
        return apply(op, (x,))

    return call


def _binary(op: Op) -> Callable[..., Tensor]:
    kernel: Any = None

    def call(x1: Any, x2: Any, /) -> Tensor:
        nonlocal kernel
        if type(x1) is Tensor:
            device = x1.device
            a = x1._small
            b = x2._small if type(x2) is Tensor else x2 if type(x2) in SCALARS else None
        elif type(x2) is Tensor:
            device = x2.device
            a = x1 if type(x1) in SCALARS else None
            b = x2._small
        else:
            return apply(op, (x1, x2))
        if a is None or b is None or always_somewhere[0]:
            return apply(op, (x1, x2))
        kernel = kernel or op.kernel(CPU)
        try:
            result = quickly(kernel, a, b)
        except _REFUSED:
            return apply(op, (x1, x2))
        return wrap(result if type(result) is np.ndarray else np.asarray(result), device)

    return call


def _several(op: Op) -> Callable[..., Tensor]:
    kernel: Any = None
    count = len(op.parameters)

    def call(*operands: Any) -> Tensor:
        nonlocal kernel
        if len(operands) != count:
            raise TypeError(expected(op.name, "the call", f"have {count} arguments", len(operands)))
        natives = [x._small if type(x) is Tensor else x if type(x) in SCALARS else None for x in operands]
        first = operands[0]
        if type(first) is not Tensor or always_somewhere[0] or any(native is None for native in natives):
            return apply(op, operands)
        kernel = kernel or op.kernel(CPU)
        try:
            result = quickly(kernel, *natives)
        except _REFUSED:
            return apply(op, operands)
        return wrap(result if type(result) is np.ndarray else np.asarray(result), first.device)

    return call


def reduction(
    accepts: Category,
    *,
    of_nothing: Scalar | None = None,
    one_axis: bool = False,
    domain: tuple[float, float] = (-2.0, 2.0),
    composed: Callable[..., Tensor | None] | None = None,
) -> Callable[[F], F]:
    """Declare a reduction: a stub taking x and keyword-only axis, keepdims and perhaps dtype or correction."""

    def decorate(stub: F) -> F:
        op = Op(stub, "reduction", accepts, of_nothing=of_nothing, one_axis=one_axis, domain=domain, composed=composed)
        defaults: dict[str, Any] = cast(Any, stub).__kwdefaults__

        kernel = CPU.kernel(op.name)
        simple = getattr(kernel, "__name__", "") == "reduce"  # a ufunc's own reduction, which takes an axis alone

        @wraps(stub)
        def call(x: Any, /, **given: Any) -> Tensor:
            if simple and not given and type(x) is Tensor and x._small is not None and not always_somewhere[0]:
                try:
                    return wrap(np.asarray(quickly(cast(Any, kernel), x._small, None)), x.device)
                except _REFUSED:
                    pass  # the long way says what is wrong
            params = defaults | given
            if len(params) != len(defaults):
                unknown = next(iter(given.keys() - defaults.keys()))
                raise TypeError(expected(op.name, "a keyword", one_of(list(defaults)), repr(unknown)))
            if "ddof" in params:
                ddof = params.pop("ddof")
                params["correction"] = params["correction"] if ddof is None else ddof
            return reduce(op, x, params)

        _finish(op, call)
        return cast(F, call)

    return decorate
