"""The kinds of SciPy's special functions, from which the module, its table in the docs and the tests are made."""

from __future__ import annotations

from typing import Any

import numpy

from ..devices.cpu import CPU
from . import bessel, formulas, gamma_functions, probability
from .declare import door, native_of

NATIVE, COMPOSED, LIBRARY = "native and fused", "composed", "through the library"
WITH, WITHOUT = "with a gradient", "without one"


def written() -> dict[str, Any]:
    """Return the functions that are defined here, by name."""
    return {
        name: getattr(file, name) for file in (formulas, gamma_functions, probability, bessel) for name in file.__all__
    }


def found(name: str) -> Any:
    """Return SciPy's universal function of a name over tensors; raises AttributeError if there is none."""
    if name[0] == "_" or not _is_universal(name):
        raise AttributeError(f"module 'xtensor.special' has no attribute {name!r}", name=name)
    return door(name, f"SciPy's function of this name, without a gradient. Source: scipy.special.{name}.")


def _scipy() -> Any:
    """Return scipy.special, None if SciPy is not installed."""
    try:
        return CPU.special("xtensor.special")
    except ImportError:
        return None


def groups() -> dict[str, tuple[str, str]]:
    """Return, for each function, whether it is native, composed or from the library, and whether it has a gradient."""
    others = [name for name in dir(_scipy()) if name[0] != "_" and name not in written()]
    kinds = {name: kind(name, call) for name, call in written().items()}
    kinds |= {name: (LIBRARY, WITHOUT) for name in others if _is_universal(name)}
    return dict(sorted(kinds.items(), key=lambda item: item[0].lower()))


def _is_universal(name: str) -> bool:
    return isinstance(native_of(getattr(_scipy(), name, None)), numpy.ufunc)


def kind(name: str, call: Any) -> tuple[str, str]:
    """Return the kind of a function that is defined here, in the words of the table."""
    if hasattr(call, "op"):
        return NATIVE, WITH
    return (COMPOSED if name in formulas.__all__ else LIBRARY), WITH


def constants(name: str) -> list[str]:
    """Return the arguments with respect to which no derivative is known, if there is one with respect to others."""
    pulls = getattr(getattr(written().get(name), "rule", None), "pulls", {})
    return [argument for argument, pull in pulls.items() if getattr(pull.function, "refuses", False)]
