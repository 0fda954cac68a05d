"""How functions are declared here: as formulas of the namespace's functions, or as SciPy's function of their name."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from math import pi
from typing import Any, TypeVar, cast

from ..autograd.rules import xt
from ..autograd.tape import differentiable
from ..base.dtypes import FLOATING, REAL_FLOATING, Category, float64, real_of
from ..base.errors import expected
from ..calls.compositions import macro
from ..calls.library import on
from ..tensor.face import Tensor
from ..tensor.operands import as_operand, as_tensor, common_device

F = TypeVar("F", bound=Callable[..., Any])

# The square roots by which densities and their inverses are scaled.
ROOT_PI, ROOT_2_PI = pi**0.5, (2 * pi) ** 0.5


def composed(accepts: Category = REAL_FLOATING, **pulls: Any) -> Callable[[F], F]:
    """Declare a formula: the stub's body gets tensors of one floating dtype; the functions it calls are recorded.

    pulls: the derivatives by argument, for all or none; without any, the gradient is that of the formula.
    """

    def decorate(stub: F) -> F:
        formula: Any = macro(stub)
        if pulls:
            formula = differentiable(elementwise=True, **pulls)(formula)
        return cast(F, _door(stub, formula, accepts))

    return decorate


def library(accepts: Category = REAL_FLOATING, **pulls: Any) -> Callable[[F], F]:
    """Declare a function that is computed by SciPy's of the same name, on a GPU by CuPy's; the stub's body is empty.

    pulls: the derivatives by argument; going back to any other argument raises NotImplementedError.
    """

    def decorate(stub: F) -> F:
        name = stub.__name__.lstrip("_")

        @wraps(stub)
        def compute(*operands: Tensor) -> Any:
            return by_library(name, operands)

        rules = {one: pulls.get(one, unknown(name, one)) for one in parameters_of(stub)}
        return cast(F, _door(stub, differentiable(elementwise=True, **rules)(compute), accepts))

    return decorate


def parameters_of(stub: Any) -> tuple[str, ...]:
    """Return the names of a stub's parameters."""
    code = stub.__code__
    return cast(tuple[str, ...], code.co_varnames[: code.co_argcount])


def _door(stub: Any, function: Any, accepts: Category) -> Callable[..., Tensor]:
    """Return the public function: it converts operands to tensors of one floating dtype and calls the given one."""
    name, parameters = stub.__name__.lstrip("_"), parameters_of(stub)

    @wraps(stub)
    def call(*operands: Any) -> Tensor:
        if len(operands) != len(parameters):
            raise TypeError(expected(name, "the arguments", f"be {', '.join(parameters)}", f"{len(operands)} of them"))
        if accepts is not FLOATING and any(map(is_complex, operands)) and has_complex(name, operands):
            return cast(Tensor, door(name, "")(*operands))
        return cast(Tensor, function(*floats(name, accepts, parameters, operands)))

    several = " They broadcast; ValueError where they do not." if len(parameters) > 1 else ""
    call.__doc__ = f"""{(stub.__doc__ or "").rstrip()}

    Takes {accepts.word} dtypes, and integers and booleans as float64; raises TypeError for others.{several}
    Source: scipy.special.{name}.
    """
    if hasattr(function, "rule"):
        call.rule = function.rule  # type: ignore[attr-defined]
    return call


def floats(
    function: str, accepts: Category, parameters: tuple[str, ...], operands: tuple[Any, ...]
) -> tuple[Tensor, ...]:
    """Return operands as tensors of their common floating dtype, which Python numbers also take on."""
    device = common_device(function, operands)
    given = [as_operand(x, function, name, device) for name, x in zip(parameters, operands, strict=True)]
    for name, x in zip(parameters, given, strict=True):
        if isinstance(x, Tensor) and x.dtype.kind not in accepts.letters + accepts.widens:
            raise TypeError(expected(function, name, f"be {accepts.word}", x.dtype))
        if isinstance(x, complex) and accepts is not FLOATING:
            raise TypeError(expected(function, name, f"be {accepts.word}", repr(x)))
    tensors = [x for x in given if isinstance(x, Tensor)]
    dtype = xt.result_type(*given) if tensors else as_tensor(sum(given), function).dtype
    if dtype.kind not in "fc":
        dtype = float64
    reals = real_of(dtype) if dtype.kind == "c" else dtype  # Bessel functions take complex numbers with real orders
    kinds = [dtype if is_complex(x) else reals for x in given]
    found = [as_tensor(x, function, like=device) for x in given]
    return tuple([xt.astype(x, kind, copy=False) for x, kind in zip(found, kinds, strict=True)])


def is_complex(x: Any) -> bool:
    """Return whether an operand is complex."""
    return x.dtype.kind == "c" if isinstance(x, Tensor) else isinstance(x, complex)


def with_complex(function: F) -> F:
    """Return a function of real tensors that calls SciPy's of its name for complex ones, without a gradient."""
    name = function.__name__

    @wraps(function)
    def call(x: Any, /) -> Any:
        return door(name, "")(x) if is_complex(x) and has_complex(name, (x,)) else function(x)

    call.__module__ = str(__package__)  # where a pickle finds it
    return cast(F, call)


def has_complex(name: str, operands: tuple[Any, ...]) -> bool:
    """Return whether the library's function of a name takes complex numbers."""
    function = _of_library(name, operands)[0]
    return any("D" in loop.partition("->")[0] for loop in getattr(function, "types", ()))


def unknown(function: str, argument: str) -> Callable[[Tensor], Tensor]:
    """Return the rule for an argument whose derivative is not known: it raises an error on the way back."""

    def refuse(g: Tensor) -> Tensor:
        raise NotImplementedError(f"{function}: no derivative with respect to {argument} is known")

    refuse.refuses = True  # type: ignore[attr-defined]  # for the table in the docs
    return refuse


def by_library(name: str, operands: tuple[Any, ...]) -> Any:
    """Call SciPy's function of a name, or CuPy's on a GPU, with tensors and Python numbers; it runs at once."""
    function, device = _of_library(name, operands)
    if function is None:
        raise NotImplementedError(f"{name}: {device} has no function of this name")
    complexes = [x.dtype for x in operands if isinstance(x, Tensor) and x.dtype.kind == "c"]
    if complexes and not has_complex(name, operands):
        raise TypeError(expected(name, "the arguments", "be real", complexes[0]))
    tensors = tuple([x for x in operands if isinstance(x, Tensor)])
    numbers = tuple([None if isinstance(x, Tensor) else x for x in operands])

    def run(xp: Any, *natives: Any) -> Any:
        left = iter(natives)
        return function(*[next(left) if number is None else number for number in numbers])

    return on(tensors, name, run)


def _of_library(name: str, operands: tuple[Any, ...]) -> tuple[Any, Any]:
    """Return the function of a name of SciPy's, or of CuPy's where operands lie on a GPU, if there is one, and the
    device.
    """
    device = common_device(name, operands)
    return native_of(getattr(device.backend.special(name), name, None)), device


def native_of(function: Any) -> Any:
    """Return SciPy's universal function itself: under SCIPY_ARRAY_API its module has functions that dispatch."""
    return getattr(function, "__wrapped__", function)


def door(name: str, doc: str) -> Callable[..., Any]:
    """Return SciPy's function of a name as a function of tensors, Python numbers and arrays, without a gradient."""

    def call(*operands: Any) -> Any:
        device = common_device(name, operands)
        given = [as_operand(x, name, f"argument {n}", device) for n, x in enumerate(operands, 1)]
        if given and not any(isinstance(x, Tensor) for x in given):
            given[0] = as_tensor(given[0], name)
        return by_library(name, tuple(given))

    call.__name__ = call.__qualname__ = name
    call.__module__ = str(__package__)  # where a pickle finds it
    call.__doc__ = doc
    return differentiable(operands=unknown(name, "its arguments"))(call)
