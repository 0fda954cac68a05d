"""Samples of the elementwise functions, away from their kinks and poles (tests/test_conventions.py stands on those)."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from tests.samples import Array, Sample, complexes, normal, positive

A, B, ROW = normal(3, 4), normal(3, 4, seed=1), normal(4, seed=2)
POSITIVE, INSIDE = positive(3, 4), positive(3, 4) - 1.1
Z, W = complexes(3, 4), complexes(3, 4, seed=5)
WHOLE = np.asarray([[1], [2], [3]])
TRUTH = np.asarray([True, False, True, True])

# Of functions of one argument: where they are looked at for real numbers, and whether complex ones are taken.
ONE: dict[str, tuple[Array, bool]] = {
    "abs": (A, True),
    "acos": (INSIDE, True),
    "acosh": (POSITIVE + 1, True),
    "asin": (INSIDE, True),
    "asinh": (A, True),
    "atan": (A, True),
    "atanh": (INSIDE, True),
    "ceil": (A, False),
    "conj": (A, True),
    "cos": (A, True),
    "cosh": (A, True),
    "exp": (A, True),
    "expm1": (A, True),
    "floor": (A, False),
    "imag": (A, True),
    "log": (POSITIVE, True),
    "log10": (POSITIVE, True),
    "log1p": (INSIDE, True),
    "log2": (POSITIVE, True),
    "negative": (A, True),
    "positive": (A, True),
    "real": (A, True),
    "reciprocal": (A, True),
    "round": (A, True),
    "sign": (A, True),
    "sin": (A, True),
    "sinh": (A, True),
    "sqrt": (POSITIVE, True),
    "square": (A, True),
    "tan": (INSIDE, True),
    "tanh": (A, True),
    "trunc": (A, False),
}

# Of functions of two: the arguments, whether complex ones are taken, and whether integers and booleans are.
TWO: dict[str, tuple[Array, Array, bool, bool]] = {
    "add": (A, B, True, True),
    "atan2": (A, B, False, False),
    "copysign": (A, B, False, False),
    "divide": (A, B, True, False),
    "floor_divide": (A, B, False, False),
    "hypot": (A, B, False, False),
    "logaddexp": (A, B, False, False),
    "maximum": (A, B, False, True),
    "minimum": (A, B, False, True),
    "multiply": (A, B, True, True),
    "nextafter": (A, B, False, False),
    "pow": (POSITIVE, B, True, True),
    "remainder": (A, POSITIVE, False, False),
    "subtract": (A, B, True, True),
}


def _of_one() -> Iterator[Sample]:
    for name, (x, complex_too) in ONE.items():

        def call(xp: Any, x: Any, name: str = name) -> Any:
            return getattr(xp, name)(x)

        yield Sample(name, call, (x,))
        yield Sample(name, call, (x[:0],), "empty")
        if complex_too:
            yield Sample(name, call, (Z,), "complex")
            yield Sample(name, call, (complexes(),), "complex scalar")


def _of_two() -> Iterator[Sample]:
    for name, (x, y, complex_too, integer_too) in TWO.items():

        def call(xp: Any, x: Any, y: Any, name: str = name) -> Any:
            return getattr(xp, name)(x, y)

        def same(xp: Any, x: Any, name: str = name) -> Any:
            return getattr(xp, name)(x, x)

        yield Sample(name, call, (x, y))
        yield Sample(name, call, (x, y[:1]), "broadcast row")
        yield Sample(name, call, (x[:, :1], np.abs(ROW)), "broadcast both")
        yield Sample(name, call, (x[0, 0], y), "scalar first")
        yield Sample(name, call, (x[:, None], y[0, 0]), "scalar second")
        yield Sample(name, call, (x[:0], y[:1]), "empty")
        if name not in ("divide", "maximum", "minimum", "floor_divide", "remainder"):
            yield Sample(name, same, (x,), "with itself")
        yield from _with_constants(name, x)
        if complex_too:
            yield Sample(name, call, (Z, W), "complex")
            yield Sample(name, call, (x, W[0]), "complex second")
            yield Sample(name, call, (Z[:, :1], y), "complex first")
            if name != "divide":
                yield Sample(name, same, (Z,), "complex with itself")
            yield from _with_complex_constants(name, x, y)
        if integer_too:
            yield from _with_integers(name, x, y)


def _with_constants(name: str, x: Array) -> Iterator[Sample]:
    """Python numbers and arrays of other dtypes on either side."""
    single = POSITIVE.astype(np.float32)

    def before(xp: Any, x: Any) -> Any:
        return getattr(xp, name)(1.3, x)

    def after(xp: Any, x: Any) -> Any:
        return getattr(xp, name)(x, 1.3)

    yield Sample(name, before, (x,), "number first")
    yield Sample(name, after, (x,), "number second")
    yield Sample(name, lambda xp, x: getattr(xp, name)(xp.asarray(single), x), (x,), "float32 first")
    yield Sample(name, lambda xp, x: getattr(xp, name)(x, xp.asarray(single)), (x,), "float32 second")


def _with_complex_constants(name: str, x: Array, y: Array) -> Iterator[Sample]:
    def before(xp: Any, y: Any) -> Any:
        return getattr(xp, name)(0.5 - 1.5j, y)

    def after(xp: Any, x: Any) -> Any:
        return getattr(xp, name)(x, 0.5 - 1.5j)

    for one, note in ((y, "real"), (W, "complex")):
        yield Sample(name, before, (one,), f"complex number first, {note} second")
    for one, note in ((x, "real"), (Z, "complex")):
        yield Sample(name, after, (one,), f"{note} first, complex number second")


def _with_integers(name: str, x: Array, y: Array) -> Iterator[Sample]:
    for partner, note in ((WHOLE, "integers"), (TRUTH, "booleans")):

        def before(xp: Any, y: Any, partner: Array = partner) -> Any:
            return getattr(xp, name)(xp.asarray(partner), y)

        def after(xp: Any, x: Any, partner: Array = partner) -> Any:
            return getattr(xp, name)(x, xp.asarray(partner))

        yield Sample(name, before, (np.abs(y),), f"{note} first")
        yield Sample(name, after, (x,), f"{note} second")


SAMPLES = [
    *_of_one(),
    *_of_two(),
    Sample("clip", lambda xp, x: xp.clip(x, -0.5, 0.5), (A,)),
    Sample("clip", lambda xp, x: xp.clip(x, None, 0.5), (A,), "above"),
    Sample("clip", lambda xp, x: xp.clip(x, min=-0.5), (A,), "below"),
    Sample("clip", lambda xp, x: xp.clip(x), (A,), "no bounds"),
    Sample("clip", lambda xp, x, low, high: xp.clip(x, low, high), (A, ROW - 1, ROW + 1), "bounds"),
    Sample("clip", lambda xp, x, low: xp.clip(x, low, 0.2), (A, normal(3, 1)), "one bound"),
    Sample("clip", lambda xp, x, low, high: xp.clip(x, low, high), (A, ROW + 1, ROW - 1), "crossed bounds"),
    Sample("pow", lambda xp, x: x**3, (A,), "integer exponent"),
    Sample("pow", lambda xp, x: x**-2, (A,), "negative exponent"),
    Sample("pow", lambda xp, x: x**2, (Z,), "complex square"),
    Sample("pow", lambda xp, x: x**0.5, (POSITIVE,), "root"),
    Sample("pow", lambda xp, x: 2**x, (A,), "integer base"),
    Sample("pow", lambda xp, x, y: x**y, (A, W), "negative base and complex exponent"),
    Sample("pow", lambda xp, y: xp.asarray(A) ** y, (W,), "constant base and complex exponent"),
    Sample("operators", lambda xp, x, y: (-x + y) * x / (y - 2j) - +y, (A, W)),
    Sample("operators", lambda xp, x, y: abs(2 - x) % 0.7 * (1 / y) ** 2 + 3 // y, (A, POSITIVE), "numbers"),
]
