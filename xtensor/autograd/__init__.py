"""Derivative rules, the tape of steps, the backward pass, and the transforms that users call."""

from importlib import import_module as _import_module
from typing import TYPE_CHECKING as _TYPE_CHECKING

if _TYPE_CHECKING:
    from .checking import check_grads as check_grads
    from .transforms import checkpoint as checkpoint
    from .transforms import custom_vjp as custom_vjp
    from .transforms import grad as grad
    from .transforms import hessian as hessian
    from .transforms import hvp as hvp
    from .transforms import jacobian as jacobian
    from .transforms import jvp as jvp
    from .transforms import no_grad as no_grad
    from .transforms import stop_gradient as stop_gradient
    from .transforms import value_and_grad as value_and_grad
    from .transforms import vjp as vjp

__all__ = [
    "checkpoint",
    "custom_vjp",
    "grad",
    "hessian",
    "hvp",
    "jacobian",
    "jvp",
    "no_grad",
    "stop_gradient",
    "value_and_grad",
    "vjp",
]


def __getattr__(name: str) -> object:
    """Load the functions that users call on first access: recording on the tape, as every call may do, needs none."""
    if name in ("checking", "direct", "transforms"):
        return _import_module(f".{name}", __name__)
    if name not in __all__ and name != "check_grads":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}", name=name)
    found: object = getattr(_import_module(".checking" if name == "check_grads" else ".transforms", __name__), name)
    globals()[name] = found
    return found


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__, "check_grads", "checking", "direct", "transforms"})
