"""Gradient programs: the slope of a number that a program computes, by xtensor's tape and by dual numbers over NumPy.

A dual number is a pair of arrays, a value and its slope in one direction. Views are views of both, and writes write
both, so that programs that overwrite their own operands are followed like any others; the rules of the tape take no
part.
Source: Wengert, A simple automatic derivative evaluation program, CACM 7 (1964).
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import nullcontext
from functools import lru_cache
from typing import Any

import numpy as np

import xtensor as xt

from .captured import CALLS, arguments, function_of, other_elements, parted
from .kinds import Kind
from .maker import Maker, SmoothMaker
from .plain import all_elided
from .sides import Oracle, Ours, Side, numbers, quiet

MODES: dict[str, dict[str, Any]] = {
    "auto": {},
    "always": {"lazy": "always"},
    "direct": {"lazy": "always", "engine": "direct"},
    "llvm": {"lazy": "always", "engine": "llvm", "cache_dir": ""},
    "captured": {"engine": "llvm", "cache_dir": ""},
    "backward": {"engine": "llvm", "cache_dir": ""},
    "elided": {},
}
# Calls of a program by mode, where there are more than one: of "backward" every other one adds to gradients.
CALLS_OF = {"captured": CALLS, "backward": 4}
# Of slopes of this size relative to the sum of all products of the direction and the gradient: float64, and programs of
# some sixteen steps.
TOLERANCE = 1e-9


class Dual:
    """A value and its slope: two arrays, or two of NumPy's scalars."""

    def __init__(self, value: Any, slope: Any) -> None:
        is_scalar = isinstance(value, np.generic)
        self.value, self.slope = [np.asarray(x)[()] if is_scalar else np.asarray(x) for x in (value, slope)]

    def __getitem__(self, key: Any) -> Dual:
        return Dual(self.value[key], self.slope[key])

    def __setitem__(self, key: Any, other: Any) -> None:
        value, slope = _parts(other)
        self.value[key] = value
        self.slope[key] = slope

    def _into(self, other: Dual) -> Dual:
        if isinstance(self.value, np.generic):
            return other
        self.value[...], self.slope[...] = other.value, other.slope
        return self

    def __add__(self, other: Any) -> Dual:
        value, slope = _parts(other)
        return Dual(self.value + value, self.slope + slope)

    def __sub__(self, other: Any) -> Dual:
        return self + -_dual(other)

    def __mul__(self, other: Any) -> Dual:
        value, slope = _parts(other)
        return Dual(self.value * value, self.slope * value + self.value * slope)

    def __truediv__(self, other: Any) -> Dual:
        value, slope = _parts(other)
        return Dual(self.value / value, (self.slope - self.value / value * slope) / value)

    def __neg__(self) -> Dual:
        return Dual(-self.value, -self.slope)

    def __abs__(self) -> Dual:
        return Dual(abs(self.value), np.sign(self.value) * self.slope)

    def __radd__(self, other: Any) -> Dual:
        return self + other

    def __rmul__(self, other: Any) -> Dual:
        return self * other

    def __rsub__(self, other: Any) -> Dual:
        return _dual(other) - self

    def __rtruediv__(self, other: Any) -> Dual:
        return _dual(other) / self

    def __iadd__(self, other: Any) -> Dual:
        return self._into(self + other)

    def __isub__(self, other: Any) -> Dual:
        return self._into(self - other)

    def __imul__(self, other: Any) -> Dual:
        return self._into(self * other)

    def __gt__(self, other: Any) -> Any:
        return self.value > _parts(other)[0]

    def __lt__(self, other: Any) -> Any:
        return self.value < _parts(other)[0]

    def __ne__(self, other: object) -> Any:
        return self.value != _parts(other)[0]

    __hash__ = None  # type: ignore[assignment]


def _parts(x: Any) -> tuple[Any, Any]:
    return (x.value, x.slope) if isinstance(x, Dual) else (x, 0.0)


def _dual(x: Any) -> Dual:
    return x if isinstance(x, Dual) else Dual(x, np.zeros_like(x))


class Duals:
    """Dual numbers as `xp`: what is linear is done to both parts, and the others have their derivatives here."""

    def __getattr__(self, name: str) -> Callable[..., Any]:
        function = getattr(Oracle(), name)
        if isinstance(function, type):  # a dtype
            return function

        def both(x: Any, *args: Any, **keywords: Any) -> Any:
            group = x if isinstance(x, tuple) else (x,)
            if not any(isinstance(one, Dual) for one in group):
                return function(x, *args, **keywords)
            if isinstance(x, tuple):
                parts = [function(one, *args, **keywords) for one in zip(*map(_parts, x), strict=True)]
            else:
                parts = [function(one, *args, **keywords) for one in _parts(x)]
            return [Dual(*pair) for pair in zip(*parts, strict=True)] if name == "unstack" else Dual(*parts)

        return both

    @staticmethod
    def asarray(x: Any, **keywords: Any) -> Any:
        if isinstance(x, Dual):
            return Dual(np.array(x.value), np.array(x.slope))
        x = np.array(x, **{name: value for name, value in keywords.items() if name != "copy"})
        return x if x.dtype.kind != "f" else Dual(x, np.zeros_like(x))

    @staticmethod
    def apart(x: Any) -> Any:
        return Dual(np.array(x.value), np.array(x.slope)) if isinstance(x, Dual) else x

    @staticmethod
    def logical_not(x: Dual) -> Any:
        return np.logical_not(x.value)

    @staticmethod
    def square(x: Dual) -> Dual:
        return x * x

    @staticmethod
    def sin(x: Dual) -> Dual:
        return Dual(np.sin(x.value), np.cos(x.value) * x.slope)

    @staticmethod
    def exp(x: Dual) -> Dual:
        return Dual(np.exp(x.value), np.exp(x.value) * x.slope)

    @staticmethod
    def multiply(a: Any, b: Any) -> Any:
        return a * b

    @staticmethod
    def where(condition: Any, a: Any, b: Any) -> Dual:
        return Dual(*[np.where(condition, *pair)[()] for pair in zip(_parts(a), _parts(b), strict=True)])

    @staticmethod
    def maximum(a: Any, b: Any) -> Dual:
        return _extreme(np.greater, a, b)

    @staticmethod
    def minimum(a: Any, b: Any) -> Dual:
        return _extreme(np.less, a, b)

    @staticmethod
    def matmul(a: Dual, b: Dual) -> Dual:
        return Dual(a.value @ b.value, a.slope @ b.value + a.value @ b.slope)

    @staticmethod
    def var(x: Dual, *, axis: Any, keepdims: bool) -> Dual:
        how: Any = {"axis": axis, "keepdims": keepdims}
        centre = x.value - np.mean(x.value, axis=axis, keepdims=True)
        return Dual(np.var(x.value, **how), 2 * np.mean(centre * x.slope, **how))

    @staticmethod
    def max(x: Dual, *, axis: Any, keepdims: bool) -> Dual:
        return _largest(np.max, x, axis, keepdims)

    @staticmethod
    def min(x: Dual, *, axis: Any, keepdims: bool) -> Dual:
        return _largest(np.min, x, axis, keepdims)


def _extreme(beats: Any, a: Any, b: Any) -> Dual:
    """Return the larger or smaller of two; where they tie, both count half."""
    (x, dx), (y, dy) = _parts(a), _parts(b)
    slope = np.where(beats(x, y), dx, np.where(np.equal(x, y), (dx + dy) / 2, dy))
    return Dual(np.where(beats(x, y), x, y)[()], slope)


def _largest(function: Any, x: Dual, axis: Any, keepdims: bool) -> Dual:
    """Return the largest or smallest element; those that tie count evenly."""
    ties = x.value == function(x.value, axis=axis, keepdims=True)
    slope = np.sum(x.slope * ties, axis=axis, keepdims=keepdims) / np.sum(ties, axis=axis, keepdims=keepdims)
    return Dual(function(x.value, axis=axis, keepdims=keepdims), slope)


ENDING = [
    "loss = xp.zeros(())",
    "for x in [x for name, x in locals().items() if name[0] == 'v' and x.dtype == xp.float64]:",
    "    loss = loss + xp.sum(x * xp.reshape(xp.cos(xp.arange(x.size, dtype=xp.float64)), x.shape))",
    "return loss",
]


@lru_cache(max(CALLS_OF.values()))
def slope_of(makers: tuple[str, ...], body: tuple[str, ...]) -> float:
    """Return the slope of a program's loss, in one direction of all arguments; once for all modes."""
    side = Side(Duals(), lambda x: x)
    with quiet():
        for line in makers:
            side.step(line)
        for place, name in enumerate(arguments(makers)):
            side.names[name].slope = direction(place, side.names[name].value.shape)
        for line in body:
            side.step(line)
        found = [x for x in side.variables().values() if isinstance(x, Dual) and x.value.dtype.kind == "f"]
        return float(sum([np.sum(x.slope.ravel() * np.cos(np.arange(float(x.slope.size)))) for x in found]))


def direction(place: int, shape: tuple[int, ...]) -> np.ndarray:
    """Return the direction in which an argument is moved."""
    return numbers(1000 + place, shape)


def gradients_of(function: Callable[..., Any], count: int, mode: str) -> Callable[..., Any]:
    """Return a function of the number of a call and the arguments, which returns their gradients."""
    if mode != "backward":
        slopes = xt.grad(function, argnums=tuple(range(count)))
        slopes = xt.fuse(slopes) if mode == "captured" else slopes
        return lambda call, *args: slopes(*args)

    @xt.fuse
    def go_back(*args: Any) -> None:
        loss = function(*[xt.asarray(x, copy=True) for x in args])  # a program may write into them
        if loss.requires_grad:
            loss.backward()

    def found(call: int, *args: Any) -> list[Any]:
        for x in args:
            x.requires_grad = True
            x.grad = xt.zeros_like(x.detach()) if call % 2 else None
        go_back(*args)
        return [xt.zeros_like(x.detach()) if x.grad is None else x.grad for x in args]

    return found


def difference(lines: list[str], mode: str) -> str | None:
    """Return how a gradient differs from dual numbers, None where it does not."""
    makers, body = parted(lines)
    names = arguments(makers)
    if not names:
        return None
    function = gradients_of(function_of(names, body, ENDING), len(names), mode)
    with xt.options(**MODES[mode]), all_elided() if mode == "elided" else nullcontext():
        for call in range(CALLS_OF.get(mode, 1)):
            changed = other_elements(makers, call)
            right = slope_of(tuple(changed), tuple(body))
            side = Side(Ours(), lambda x: x)
            for line in changed:
                side.step(line)
            try:
                gradients = [one.numpy() for one in function(call, *[side.names[name] for name in names])]
            except Exception as error:  # whatever it is, it is no gradient
                return f"call {call}: {error!r}"
            terms = [one * direction(place, one.shape) for place, one in enumerate(gradients)]
            found, size = (float(sum([np.sum(f(one)) for one in terms])) for f in (lambda x: x, abs))
            if np.isfinite(right) and abs(found - right) > TOLERANCE * max(size, 1.0):
                return f"call {call}: slope {found!r}, dual numbers {right!r}"
    return None


@lru_cache(8)
def made(seed: int) -> Maker:
    """Return the program of a seed."""
    return SmoothMaker(seed)


GRADIENT = Kind("gradient", tuple(MODES), lambda seed, mode: made(seed), difference)
