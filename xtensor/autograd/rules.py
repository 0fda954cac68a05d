"""Rules: the derivatives that functions declare, and the arithmetic of cotangents that all rules share."""

from __future__ import annotations

import inspect
import sys
from collections.abc import Sequence
from math import prod
from typing import Any, NamedTuple, cast

import numpy as np

from ..base.dtypes import DType
from ..base.layout import Shape
from ..devices import Device
from ..storage.blob import TBlob
from ..storage.storage import watchers
from ..tensor.face import Tensor, face

# The namespace itself: rules and the way back are written in its functions, which are lazy, fused and differentiable.
xt: Any = sys.modules[__name__.partition(".")[0]]


class Pull(NamedTuple):
    """The way from the cotangent of a result to that of one argument.

    function: a number, or a function of values that it names: `g` (the cotangent of the result), `y` (the result),
        `like` (shape, dtype and device of the argument), and the function's own arguments.
    takes: these names. asks: those of them whose values are to be kept.
    slope: whether it returns the partial derivative, with whose conjugate g is then multiplied.
    likes: whether it takes `like`.
    """

    function: Any
    takes: tuple[str, ...]
    asks: tuple[str, ...]
    slope: bool
    likes: bool


def pull_of(written: Any) -> Pull:
    """Return the Pull of a declaration: a slope, a number or a function of arguments or `y`, or a function of `g`."""
    takes = _parameters(written) if callable(written) else ()
    asks = tuple(name for name in takes if name not in ("g", "like"))
    return Pull(written, takes, asks, "g" not in takes, "like" in takes)


def _parameters(function: Any) -> tuple[str, ...]:
    """Return the names of a function's parameters: from its code, as `signature` would take a tenth of the import."""
    code = getattr(function, "__code__", None)
    if code is None:  # a callable object
        return tuple(inspect.signature(function).parameters)
    names: tuple[str, ...] = code.co_varnames[: code.co_argcount + code.co_kwonlyargcount]
    return names


class Rule:
    """The derivative of one function: a Pull for each argument through which a gradient goes.

    places: for elementwise functions, the positions of their operands by name.
    elementwise: whether operands broadcast, so that a cotangent is summed over the axes along which an operand was
    stretched.
    reduction: whether the function is a reduction; its rules treat a cotangent without axes as the same everywhere.
    view: whether the result shares the argument's memory.
    """

    __slots__ = ("_asked", "elementwise", "name", "places", "pulls", "reduction", "view")

    def __init__(
        self,
        name: str,
        pulls: dict[str, Pull],
        *,
        elementwise: bool = False,
        reduction: bool = False,
        view: bool = False,
        parameters: Sequence[str] = (),
    ) -> None:
        self.name = name
        self.pulls = pulls
        self.places = {name: place for place, name in enumerate(parameters)}
        self.elementwise = elementwise
        self.reduction = reduction
        self.view = view
        self._asked: dict[Any, tuple[tuple[str, int | None], ...]] = {}

    def asked(self, slots: tuple[tuple[str, Any], ...]) -> tuple[tuple[str, int | None], ...]:
        """Return the values that an elementwise rule asks for where these operands have a gradient: by name, with the
        positions of operands, None for the result.
        """
        found = self._asked.get(slots)
        if found is None:
            names = {wanted: None for name, _ in slots if name in self.pulls for wanted in self.pulls[name].asks}
            found = self._asked[slots] = tuple((one, None if one == "y" else self.places[one]) for one in names)
        return found


# Every rule, by the function's name: the docs' table is made from it.
RULES: dict[str, Rule] = {}


class Like(NamedTuple):
    """The properties of an argument that a rule can know without keeping its values."""

    shape: Shape
    dtype: DType
    device: Device

    @property
    def ndim(self) -> int:
        return len(self.shape)

    @property
    def size(self) -> int:
        return prod(self.shape)


# ---- cotangents


_ones: dict[Any, Tensor] = {}


def first_cotangent(like: Tensor) -> Tensor:
    """Return the cotangent of a scalar with respect to itself: 1."""
    key = (like.dtype, like.device)
    found = _ones.get(key)
    begun = found is not None and found._step is not None  # as where every call is recorded
    if found is None or begun or (watchers and type(found._content) is not TBlob):  # a thin face may have any memory
        blob = TBlob.adopt(like.device.backend.asarray(np.ones((), like.dtype)), like.device)
        blob.fixed = True
        found = _ones[key] = face(blob)
    return found


def times(g: Tensor, slope: Any) -> Tensor | None:
    """Return a cotangent times the conjugate of a derivative, which may be that derivative itself."""
    if type(slope) is Tensor:
        dtype = slope.dtype
        if not g.shape and g.dtype is dtype and g is _ones.get((dtype, g.device)) and g._step is None:
            return slope  # g is the 1 at the end of a real function
        product: Tensor = xt.multiply(g, xt.conj(slope) if dtype.kind == "c" else slope)
        return product
    if slope == 0:
        return None
    if type(slope) is complex:
        slope = slope.conjugate()
    return g if slope == 1 else cast(Tensor, -g if slope == -1 else g * slope)


def fit(g: Tensor, dtype: DType, shape: Shape, full: Shape | None) -> Tensor:
    """Return a cotangent converted for an operand: real where that is real, of its dtype, and of a shape that
    broadcasts to its shape.

    full: the shape that the operand was broadcast to, None if it was not.
    """
    if g.dtype != dtype:
        if g.dtype.kind == "c" and dtype.kind != "c":
            g = xt.real(g)
        g = xt.astype(g, dtype, copy=False)
    if full is not None and full != shape:
        g = sum_to(g, full, shape)
    return g


def sum_to(g: Tensor, full: Shape, target: Shape) -> Tensor:
    """Return a cotangent whose shape is or broadcasts to `full`, summed over the axes that `target` was stretched on.

    The result has a shape that broadcasts to `target`.
    """
    lead, missing = len(full) - len(target), len(full) - g.ndim
    shape = (1,) * missing + g.shape
    stretched = [a for a, n in enumerate(full) if n != 1 and (a < lead or target[a - lead] == 1)]
    times = prod([full[a] for a in stretched if shape[a] == 1])
    inner = tuple(a - missing for a in stretched if a >= lead and shape[a] != 1)
    if inner:
        g = xt.sum(g, axis=inner, keepdims=True)
    if lead > missing:
        g = xt.sum(g, axis=tuple(range(lead - missing)))
    return g if times == 1 else g * float(times)


def conjugate(x: Tensor) -> Tensor:
    """Return the complex conjugate; real tensors are returned unchanged."""
    return cast(Tensor, xt.conj(x)) if x.dtype.kind == "c" else x
