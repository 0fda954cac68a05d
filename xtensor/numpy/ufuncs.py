"""NumPy's universal functions: rows, or formulas of them, with `out`, `where` and `dtype`, and their methods."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from math import log, pi
from typing import Any, cast

import numpy

from ..autograd.rules import conjugate, xt
from ..autograd.tape import active, differentiable, steps_of
from ..base.dtypes import canonical
from ..base.errors import UnheldError, expected
from ..base.layout import Shape
from ..base.options import thin_closed
from ..calls.library import LONG_WAY, on
from ..calls.thin import Called
from ..devices.cpu import CPU, NUMBERS
from ..graph.number import is_traced
from ..plan.costs import CHEAP, CHEAP_BELOW, FAST_LAUNCH_PAYS, limit_of
from ..standard.elementwise import share
from ..standard.indexing import added
from ..standard.statistical import running_extremes
from ..storage.storage import watchers
from ..tensor.face import Tensor
from ..tensor.operands import numpy_of
from .common import (
    SPELLED,
    answers_itself,
    as_array,
    as_mask,
    as_tensors,
    beside,
    give,
    lone_axis,
    own_answer,
    refuse_derived,
)
from .door import door, summary, through
from .thin import changed_at_once, made_at_once, tell, written_at_once

# The functions of the namespace that do the same as `reduce`, or `accumulate`, of universal functions.
FOLDS = {
    "add": ("sum", 0),
    "multiply": ("prod", 1),
    "maximum": ("max", None),
    "minimum": ("min", None),
    "logical_and": ("all", True),
    "logical_or": ("any", False),
}
RUNS = {"add": "cumulative_sum", "multiply": "cumulative_prod"}
EXTREMES = ("maximum", "minimum")

# The types of operands that functions take as they are; others are checked first.
_ARRAYS = Tensor, numpy.ndarray
_PLAIN = frozenset((Tensor, numpy.ndarray, bool, int, float, complex, *NUMBERS))


# With `out`, NumPy's cheap functions pay for arrays so many times as large: no memory has to be allocated.
_INTO = FAST_LAUNCH_PAYS // CHEAP_BELOW


class Ufunc(Called):
    """A universal function of NumPy over tensors.

    native: NumPy's function, which determines the number of operands and the dtypes.
    function: the function that computes it: one of the namespace, a formula, or the library's own.
    """

    def __init__(self, name: str, function: Callable[..., Any], native: Any) -> None:
        self.__name__ = self.__qualname__ = name
        self.__module__ = str(__package__)  # where a pickle finds it
        self.__doc__ = summary(native)
        self.function = function
        self.native = native
        cheap = function.__name__ in CHEAP
        self.below, self.times = limit_of(function.__name__), _INTO if cheap else 1
        self.is_native = native.nout == 1 and CPU.kernel(function.__name__) is native
        self._is_composed = name in FORMULAS and name not in _AS_THE_STANDARD
        self._is_told = not (self.is_native or (self._is_composed and native.nout == 1 and not native.signature))
        self.nin, self.nout, self.nargs = native.nin, native.nout, native.nargs
        self.identity, self.signature, self.types, self.ntypes = (
            native.identity,
            native.signature,
            native.types,
            native.ntypes,
        )

    def __repr__(self) -> str:
        return f"<ufunc {self.__name__!r}>"

    def __reduce__(self) -> str:
        return self.__name__

    def _answer(self, *operands: Any, **options: Any) -> Any:
        """Compute the function for operands that broadcast; out, where, dtype and casting are NumPy's."""
        if not self._is_told:
            self._tell()
        try:
            if not options and len(operands) == self.nin:
                if not _PLAIN.issuperset(map(type, operands)):
                    if any(answers_itself(x) for x in operands):  # with tensors: a DataArray may hold some
                        return as_tensors(self.native(*operands))
                    operands = self._taken(operands)
                if self._is_composed and not thin_closed[0]:
                    try:
                        return made_at_once(self.native, operands, {})
                    except LONG_WAY:
                        pass
                return self.function(*operands)
            out = operands[self.nin] if len(operands) == self.nargs and not options else options.get("out")
            most = self.below[0] * self.times
            if (
                type(out) is Tensor
                and len(options) <= 1
                and self.is_native
                and written_at_once(self.native, operands[: self.nin], out, most)
            ):
                return out
            return self._with_options(operands, **options)
        except UnheldError:
            return own_answer(self.native, *operands, **options)

    def _tell(self) -> None:
        """Tell machine code of this function."""
        self._is_told = True
        tell(self, self.native, self.nin, is_universal=True)

    def _taken(self, operands: tuple[Any, ...]) -> tuple[Any, ...]:
        """Return operands with nested sequences, which may hold tensors, and with objects that have `__array__` as
        arrays.
        """
        for x in operands:
            refuse_derived(x, self.__name__)
        return tuple([self._as_operand(x) for x in operands])

    def _as_operand(self, x: Any) -> Any:
        """Return an operand as the functions take it; numbers of a captured function stay numbers."""
        if isinstance(x, (list, tuple)):
            return as_array(x, self.__name__)
        return x if is_traced(x) or answers_itself(x) else numpy_of(x)

    def _with_options(
        self,
        operands: tuple[Any, ...],
        out: Any = None,
        where: Any = True,
        dtype: Any = None,
        casting: str = "same_kind",
        order: str = "K",
        subok: bool = True,
        **others: Any,
    ) -> Any:
        if out is None and self.nin < len(operands) <= self.nargs:
            operands, out = operands[: self.nin], operands[self.nin :]
            out = out[0] if self.nout == 1 else (*out, *(None,) * (self.nout - len(out)))
        if others or len(operands) != self.nin or (self.signature and (dtype or not watchers)):
            usual = (
                ("out", out, None),
                ("where", where, True),
                ("dtype", dtype, None),
                ("casting", casting, "same_kind"),
            )
            others |= {name: value for name, value, default in usual if value is not default}
            return through(self.__name__, self.native, operands, others)
        if not _PLAIN.issuperset(map(type, operands)):
            operands = self._taken(operands)
        if dtype is not None:
            operands = self._cast(operands, canonical(dtype, self.__name__), casting)
        result = self.function(*operands)
        if self.nout > 1:
            outs = out or (None,) * self.nout
            return tuple([give(self.__name__, *pair, where, casting) for pair in zip(result, outs, strict=True)])
        if out is None and where is not True:  # zeros, where NumPy leaves memory unset
            condition = as_mask(where, self.__name__)
            return xt.where(condition, result, xt.zeros((), dtype=result.dtype, device=result.device))
        if out is None and order in ("F", "C"):
            return xt.numpy.asarray(result, order=order)
        if type(out) is Tensor and out.shape != result.shape and _fits(result.shape, out.shape):
            result = xt.broadcast_to(result, out.shape)
        return give(self.__name__, result, out, where, casting)

    def _cast(self, operands: tuple[Any, ...], dtype: Any, casting: str) -> tuple[Any, ...]:
        """Return operands in the dtypes in which NumPy computes a result of some dtype."""
        known = [x if type(x) in (int, float, complex) else as_array(x).dtype for x in operands]
        nothing = [numpy.empty(0, x) if isinstance(x, numpy.dtype) else x for x in known]
        self.native(*nothing, dtype=dtype, casting=casting)  # refuses what cannot be cast
        kinds = [x if isinstance(x, numpy.dtype) else type(x) for x in known]
        wanted = (None,) * self.nin + (dtype,) * self.nout
        found = self.native.resolve_dtypes((*kinds, *(None,) * self.nout), signature=wanted, casting="unsafe")
        return tuple([xt.astype(as_array(x), one, copy=False) for x, one in zip(operands, found, strict=False)])

    # ---- methods

    def reduce(
        self,
        array: Any,
        axis: Any = 0,
        dtype: Any = None,
        out: Any = None,
        keepdims: bool = False,
        initial: Any = None,
        where: Any = True,
    ) -> Tensor:
        """Return the function's result over all elements along axes."""
        fold = FOLDS.get(self.__name__)
        if fold is None or isinstance(array, numpy.ma.MaskedArray):
            given = {"axis": axis, "dtype": dtype, "out": out, "keepdims": keepdims, "where": where}
            if initial is not None:
                given["initial"] = initial
            return self._method("reduce", (array,), given)
        options = {"dtype": dtype} if fold[0] in ("sum", "prod") else {}
        return folded(fold[0], array, axis, out, keepdims, initial, where, **options)

    def accumulate(self, array: Any, axis: int = 0, dtype: Any = None, out: Any = None) -> Tensor:
        """Return the results over all elements up to each one along an axis."""
        name = RUNS.get(self.__name__)
        is_extreme = self.__name__ in EXTREMES and dtype is None  # with a dtype, NumPy casts first
        if is_extreme and type(array) is Tensor and array.ndim and array.device.backend is CPU:
            return give(self.__name__, running_extremes(self.__name__, array, axis), out)
        if name is None:
            return self._method("accumulate", (array,), {"axis": axis, "dtype": dtype, "out": out})
        try:
            x = as_array(array, self.__name__)
        except UnheldError:
            return cast(Tensor, own_answer(self.native.accumulate, array, axis, dtype, out))
        return give(name, getattr(xt, name)(x, axis=axis, dtype=dtype), out, casting="unsafe")

    def outer(self, a: Any, b: Any, /, **options: Any) -> Any:
        """Return the function's results for all pairs of one element of a and one of b."""
        try:
            a, b = beside(self.__name__, a, b)
        except UnheldError:
            return own_answer(self.native.outer, a, b, **options)
        return self(xt.reshape(a, (*a.shape, *(1,) * b.ndim)), b, **options)

    def at(self, a: Tensor, indices: Any, b: Any = None, /) -> None:
        """Compute the function in place at indices; an index that occurs several times counts each time."""
        if active[0] and _is_sum_at(self.__name__, a, indices, b):
            total = added(xt.astype(b, a.dtype, copy=False), indices, 0, a.shape[0])
            a[...] = a + total if self.__name__ == "add" else a - total
            return
        operands = (indices,) if b is None else (indices, b)
        if not changed_at_once(self.native.at, a, operands):
            through("ufunc.at", self.native.at, (a, *operands), {})

    def reduceat(self, array: Any, indices: Any, axis: int = 0, dtype: Any = None, out: Any = None) -> Tensor:
        """Return the function's results over the elements from each index up to the next."""
        return self._method("reduceat", (array, indices), {"axis": axis, "dtype": dtype, "out": out})

    def resolve_dtypes(self, *args: Any, **options: Any) -> Any:
        return self.native.resolve_dtypes(*args, **options)

    def _method(self, method: str, args: tuple[Any, ...], given: dict[str, Any]) -> Any:
        if not thin_closed[0] and given["out"] is None:
            with suppress(*LONG_WAY):
                return made_at_once(getattr(self.native, method), args, given)
        return through(f"{self.__name__}.{method}", None, args, given)


def _fits(shape: Shape, wider: Shape) -> bool:
    """Return whether arrays of one shape broadcast to another one."""
    return len(shape) <= len(wider) and all(n in (1, m) for n, m in zip(shape[::-1], wider[::-1], strict=False))


# Types of what NumPy reduces without a tensor.
_LISTED = frozenset((numpy.ndarray, list, tuple))


def _answered(
    name: str, x: Any, axis: Any, out: Any, keepdims: bool, initial: Any, where: Any, options: dict[str, Any]
) -> Tensor:
    """Return NumPy's own reduction of what no tensor holds, or of what answers itself."""
    given = {"out": out, "keepdims": keepdims or None, "initial": initial, "where": None if where is True else where}
    stated = {key: value for key, value in (given | options).items() if value is not None}
    return cast(Tensor, own_answer(getattr(numpy, name), x, axis, **stated))


def folded(
    name: str, x: Any, axis: Any, out: Any, keepdims: bool, initial: Any = None, where: Any = True, **options: Any
) -> Tensor:
    """Return a reduction of the namespace with NumPy's options.

    Elements that are left out count as the neutral element, which for max and min is `initial`. A 0-d array is also
    reduced along axis 0 or -1, except for its mean, as in NumPy.
    """
    if type(x) is not Tensor and answers_itself(x):
        return _answered(name, x, axis, out, keepdims, initial, where, options)
    if type(x) in _LISTED and out is None and initial is None and where is True and not thin_closed[0]:
        try:
            return cast(Tensor, made_at_once(getattr(numpy, name), (x, axis), options | {"keepdims": bool(keepdims)}))
        except LONG_WAY:
            pass
    try:
        x = as_array(x, name)
    except UnheldError:
        return _answered(name, x, axis, out, keepdims, initial, where, options)
    if isinstance(out, _ARRAYS) and "dtype" in options and options["dtype"] is None and out.dtype.kind in "iufc":
        options["dtype"] = numpy.promote_types(x.dtype, out.dtype)  # in which NumPy adds up, too
    axis = axis if name == "mean" else lone_axis(x, axis)
    if where is True and initial is None:
        options = {key: value for key, value in options.items() if value is not None}
        if out is None and not (keepdims or options):
            found: Tensor = getattr(x, name)(axis=axis)
            return found
        if keepdims:
            options["keepdims"] = bool(keepdims)
        return give(name, getattr(xt, name)(x, axis=axis, **options), out, casting="unsafe")
    if getattr(initial, "ndim", 0) or isinstance(initial, (list, tuple)):
        raise ValueError(expected(name, "initial", "be a number", type(initial).__name__))
    neutral = next((value for fold, value in FOLDS.values() if fold == name), None)
    if where is not True:
        if neutral is None and initial is None:
            raise ValueError(
                expected(name, "initial", "be given with where, as max and min begin with nothing", initial)
            )
        aside = initial if neutral is None else neutral
        x = xt.where(as_mask(where, name), x, xt.asarray(aside, dtype=x.dtype, device=x.device))
    if initial is not None and not x.size and neutral is None:
        shape = xt.sum(x, axis=axis, keepdims=bool(keepdims)).shape
        first = xt.asarray(initial, dtype=x.dtype, device=x.device)
        return give(name, xt.asarray(xt.broadcast_to(first, shape), copy=True), out, casting="unsafe")
    result = getattr(xt, name)(x, axis=axis, keepdims=bool(keepdims), **options)
    if initial is not None:
        join = next(ufunc for ufunc, (fold, _) in FOLDS.items() if fold == name)
        result = getattr(xt, join)(result, xt.asarray(initial, dtype=result.dtype, device=result.device))
    return give(name, result, out, casting="unsafe")  # as NumPy's reductions


# ---- formulas of functions that the standard does not have


def _divmod(x1: Any, x2: Any) -> tuple[Tensor, Tensor]:
    return xt.floor_divide(x1, x2), xt.remainder(x1, x2)


def _modf(x: Any) -> tuple[Tensor, Tensor]:
    x = _floating("modf", x)
    whole = xt.trunc(x)
    return xt.copysign(xt.where(xt.isinf(x), xt.zeros_like(x), x - whole), x), whole


def _rint(x: Any) -> Tensor:
    return xt.round(_floating("rint", x))


def _fabs(x: Any) -> Tensor:
    return xt.abs(_floating("fabs", x))


def _floating(name: str, x: Any) -> Tensor:
    """Return an operand in the dtype in which NumPy computes a function."""
    x = as_array(x, name)
    if x.dtype.kind == "f":
        return x
    native = getattr(numpy, name)
    return xt.astype(x, native.resolve_dtypes((x.dtype, *(None,) * native.nout))[0], copy=False)


def _times(name: str, factor: float) -> Callable[[Any], Tensor]:
    return lambda x: xt.multiply(_floating(name, x), factor)


def _fmax(x1: Any, x2: Any) -> Tensor:
    x1, x2 = beside("fmax", x1, x2)
    return xt.where(xt.logical_or(x1 >= x2, xt.isnan(x2)), x1, x2)


def _fmin(x1: Any, x2: Any) -> Tensor:
    x1, x2 = beside("fmin", x1, x2)
    return xt.where(xt.logical_or(x1 <= x2, xt.isnan(x2)), x1, x2)


def _heaviside(x1: Any, x2: Any) -> Tensor:
    operands = beside("heaviside", x1, x2)
    dtypes = numpy.heaviside.resolve_dtypes((*[x.dtype for x in operands], None))
    x1, x2 = (xt.astype(x, dtype, copy=False) for x, dtype in zip(operands, dtypes, strict=False))
    step = xt.astype(x1 > 0, xt.result_type(x1, x2))
    return xt.where(xt.isnan(x1), x1, xt.where(x1 == 0, x2, step))


def _float_power(x1: Any, x2: Any) -> Tensor:
    x1, x2 = as_array(x1), as_array(x2)
    dtype = xt.result_type(x1, x2, xt.float64)
    return xt.pow(xt.astype(x1, dtype, copy=False), xt.astype(x2, dtype, copy=False))


def vecdot(x1: Any, x2: Any, axis: int = -1) -> Tensor:
    """Return dot products along an axis; of booleans, which the standard refuses, whether any pair is True."""
    x1, x2 = as_array(x1), as_array(x2)
    if x1.dtype.kind == x2.dtype.kind == "b":
        return on((x1, x2), "vecdot", lambda xp, a, b: xp.vecdot(a, b, axis=axis))
    dtype = xt.result_type(x1, x2)
    return xt.vecdot(*[xt.astype(x, dtype, copy=False) if x.dtype.kind == "b" else x for x in (x1, x2)], axis=axis)


def _matvec(x1: Any, x2: Any) -> Tensor:
    return xt.squeeze(xt.matmul(as_array(x1), xt.expand_dims(as_array(x2), axis=-1)), axis=-1)


def _vecmat(x1: Any, x2: Any) -> Tensor:
    return xt.squeeze(xt.matmul(xt.expand_dims(conjugate(as_array(x1)), axis=-2), as_array(x2)), axis=-2)


@differentiable(x=lambda g, y: g / (3 * xt.square(y)))
def _cbrt(x: Tensor) -> Tensor:
    return on(x, "cbrt", lambda xp, a: xp.cbrt(a))


@differentiable(x=lambda g, y: g * conjugate(y) * log(2))
def _exp2(x: Tensor) -> Tensor:
    return on(x, "exp2", lambda xp, a: xp.exp2(a))


@differentiable(x1=lambda g: g, x2=lambda g, x1, x2: -g * xt.trunc(x1 / x2), elementwise=True)
def _fmod(x1: Tensor, x2: Tensor) -> Tensor:
    kind = x1.dtype.kind if x1.dtype == x2.dtype else ""
    if kind == "f":
        return xt.copysign(xt.remainder(xt.abs(x1), xt.abs(x2)), x1)
    if kind == "u":
        return xt.remainder(x1, x2)
    if kind == "i":  # whose remainder has the sign of the divisor
        rest = xt.remainder(x1, x2)
        return xt.where((rest != 0) & ((x1 < 0) != (x2 < 0)), rest - x2, rest)
    return on((x1, x2), "fmod", lambda xp, a, b: xp.fmod(a, b))


@differentiable(a=lambda g, a, b: g * share(a, b, log(2)), b=lambda g, a, b: g * share(b, a, log(2)), elementwise=True)
def _logaddexp2(a: Tensor, b: Tensor) -> Tensor:
    return on((a, b), "logaddexp2", lambda xp, a, b: xp.logaddexp2(a, b))


@differentiable(x1=lambda g, x2: xt.numpy.ldexp(g, x2), elementwise=True)
def _ldexp(x1: Tensor, x2: Tensor) -> Tensor:
    return on((x1, x2), "ldexp", lambda xp, a, b: xp.ldexp(a, b))


def _ready(function: Callable[..., Tensor], name: str) -> Callable[..., Tensor]:
    """Return a function of tensors as one of operands."""
    return lambda *operands: function(*beside(name, *operands))


FORMULAS: dict[str, Callable[..., Any]] = {
    "cbrt": _ready(_cbrt, "cbrt"),
    "deg2rad": _times("deg2rad", pi / 180.0),
    "degrees": _times("degrees", 180.0 / pi),
    "divmod": _divmod,
    "exp2": _ready(_exp2, "exp2"),
    "fabs": _fabs,
    "float_power": _float_power,
    "fmax": _fmax,
    "fmin": _fmin,
    "fmod": _ready(_fmod, "fmod"),
    "heaviside": _heaviside,
    "ldexp": lambda x1, x2: _ldexp(as_array(x1, "ldexp"), as_array(x2, "ldexp")),
    "logaddexp2": _ready(_logaddexp2, "logaddexp2"),
    "matvec": _matvec,
    "modf": _modf,
    "rad2deg": _times("rad2deg", 180.0 / pi),
    "radians": _times("radians", pi / 180.0),
    "rint": _rint,
    "vecdot": vecdot,
    "vecmat": _vecmat,
}


# The formulas whose values differ from NumPy's.
_AS_THE_STANDARD = frozenset(("divmod",))


def ufunc(name: str) -> Ufunc:
    """Return NumPy's universal function of this name over tensors."""
    own = getattr(xt, SPELLED.get(name, name), None)
    native = getattr(numpy, name)
    return Ufunc(name, FORMULAS.get(name) or own or door(name), native)


def _is_sum_at(name: str, a: Any, indices: Any, b: Any) -> bool:
    """Return whether `at` adds to, or subtracts from, elements or slices along the first axis, each at its own index,
    with a gradient.
    """
    if name not in ("add", "subtract") or type(a) is not Tensor or type(b) is not Tensor or not a.ndim:
        return False
    where = indices if type(indices) is Tensor else numpy.asarray(indices) if type(indices) in _PLACES else None
    if where is None or where.dtype.kind not in "iu" or a.dtype.kind not in "fc" or steps_of((a, b)) is None:
        return False
    return bool(b.shape == (*where.shape, *a.shape[1:]))


_PLACES = (list, numpy.ndarray)
