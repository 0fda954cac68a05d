"""The few exceptions, and the one template of every message: `function: argument must ..., got ...`.

The class follows the kind of mistake: TypeError for a wrong dtype or object, ValueError for a wrong value or
shape, IndexError for an index or axis out of range, BufferError for memory that cannot be shared,
NotImplementedError for what exists in the standard's text but not here.
"""

from __future__ import annotations

from collections.abc import Collection

from numpy.exceptions import AxisError


class StrangerError(TypeError):
    """An operand of a type unknown to xtensor; operators then return NotImplemented."""


class UnheldError(TypeError):
    """Elements that no tensor holds: texts, objects, records, dates. Under NumPy's names NumPy computes with these."""


# The errors of library functions for operands that they refuse.
REFUSED = (TypeError, ValueError, IndexError, OverflowError, RuntimeError)


def expected(function: str, argument: str, must: str, got: object) -> str:
    """Return the message for one wrong argument: `clip: min must be real, got complex64`."""
    return f"{function}: {argument} must {must}, got {got}"


def mismatch(function: str, x1: object, x2: object, why: str) -> str:
    """Return the message for two arguments that do not fit: `matmul: x1 (3, 4) and x2 (5, 6) do not match: 4 != 5`."""
    return f"{function}: x1 {x1} and x2 {x2} do not match: {why}"


class UntouchedError(LookupError):
    """A schedule stopped, as at a bad index, before any visible effect: the function can be called instead."""


def prefixed(function: str, error: Exception) -> Exception:
    """Return a library's error as one that begins with our function's name, of the class users expect."""
    text = str(error)
    if text.startswith(f"{function}:"):
        return error
    if type(error).__name__ == "LinAlgError":
        return type(error)(f"{function}: {text}")
    kinds = (AxisError, IndexError, OverflowError, ValueError, UnheldError, TypeError)
    kind = next((kind for kind in kinds if isinstance(error, kind)), RuntimeError)
    return kind(f"{function}: {text}")


def one_of(choices: Collection[object]) -> str:
    """Return the 'must' part for a closed set of choices."""
    return "be one of " + ", ".join(repr(choice) for choice in choices)


def check_choice(function: str, argument: str, value: object, choices: Collection[object]) -> None:
    """Raise ValueError for a value that is none of a closed set of choices."""
    if value not in choices:
        raise ValueError(expected(function, argument, one_of(choices), repr(value)))


def of_device(number: int, error: Exception) -> Exception:
    """Return an error of a CUDA device or its driver with the device's name; any other as it is."""
    if not type(error).__module__.startswith("cupy_backends."):
        return error
    named = RuntimeError(f"cuda:{number}: {error}")
    named.__cause__ = error
    return named
