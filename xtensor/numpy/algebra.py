"""Products, sums of products, convolutions, polynomials and numbers as numbers, under NumPy's signatures."""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import suppress
from typing import Any, cast

import numpy

from ..autograd.rules import conjugate, xt
from ..autograd.tape import differentiable
from ..base.errors import expected
from ..base.layout import as_index
from ..base.options import thin_closed
from ..calls.library import LONG_WAY, on
from ..tensor.face import Tensor
from ..tensor.scalars import is_value, valued
from .common import as_array, as_arrays, axes_of, give, has_gradient, numbers, with_slope
from .creation import vander
from .door import through
from .shaping import concatenate
from .thin import made_at_once

# How what stands in einsum's lists is written in subscripts. (Booleans, which equal numbers, are none.)
_LETTERS: dict[tuple[bool, Any], str] = {(False, Ellipsis): "..."}
_LETTERS |= {(False, n): one for n, one in enumerate("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz")}

# ---- products


def dot(a: Any, b: Any, out: Any = None) -> Tensor:
    if type(a) is Tensor and type(b) is Tensor and 0 < a.ndim < 3 and 0 < b.ndim < 3 and out is None:
        return xt.matmul(a, b)
    return give("dot", xt.standard.linear.dot(*as_arrays("dot", a, b)), out)


def inner(a: Any, b: Any, /) -> Tensor:
    a, b = as_arrays("inner", a, b)
    return valued(xt.tensordot(a, b, axes=((a.ndim - 1,), (b.ndim - 1,)))) if a.ndim and b.ndim else a * b


def outer(a: Any, b: Any, out: Any = None) -> Tensor:
    a, b = as_arrays("outer", a, b)
    return give("outer", xt.expand_dims(a.ravel(), axis=1) * b.ravel(), out)


def vdot(a: Any, b: Any, /) -> Tensor:
    a, b = as_arrays("vdot", a, b)
    return xt.matmul(conjugate(a).ravel(), b.ravel())


def tensordot(a: Any, b: Any, axes: Any = 2) -> Tensor:
    a, b = as_arrays("tensordot", a, b)
    if isinstance(axes, Iterable) and getattr(axes, "ndim", True):
        axes = tuple([one if isinstance(one, tuple) else (one,) for one in map(axes_of, axes)])
        return xt.tensordot(a, b, axes=axes)
    count, most = max(as_index(axes, "tensordot", "axes"), 0), min(a.ndim, b.ndim)
    if count > most:
        raise IndexError(expected("tensordot", "axes", f"be at most {most}", axes))
    return xt.tensordot(a, b, axes=count)


def kron(a: Any, b: Any) -> Tensor:
    a, b = as_arrays("kron", a, b)
    count = max(a.ndim, b.ndim)
    a, b = (xt.reshape(x, (1,) * (count - x.ndim) + x.shape) for x in (a, b))
    product = xt.expand_dims(a, axis=tuple(range(1, 2 * count, 2))) * xt.expand_dims(
        b, axis=tuple(range(0, 2 * count, 2))
    )
    return xt.reshape(product, tuple(m * n for m, n in zip(a.shape, b.shape, strict=True)))


def cross(a: Any, b: Any, axisa: int = -1, axisb: int = -1, axisc: int = -1, axis: int | None = None) -> Tensor:
    axisa, axisb, axisc = (axisa, axisb, axisc) if axis is None else (axis, axis, axis)
    a, b = as_arrays("cross", a, b)
    a, b = xt.moveaxis(a, axisa, -1), xt.moveaxis(b, axisb, -1)
    if a.shape[-1] not in (2, 3) or b.shape[-1] not in (2, 3):
        raise ValueError("incompatible dimensions for cross product\n(dimension must be 2 or 3)")
    if a.shape[-1] == b.shape[-1] == 2:
        return a[..., 0] * b[..., 1] - a[..., 1] * b[..., 0]
    parts = [_cross_part(a, b, i, j) for i, j in ((1, 2), (2, 0), (0, 1))]
    return xt.stack(xt.broadcast_arrays(*parts), axis=axisc)


def _cross_part(a: Tensor, b: Tensor, i: int, j: int) -> Tensor:
    """Return a[i] b[j] - a[j] b[i], without a product in which a vector of length 2 has no part."""
    first, second = (
        a[..., m] * b[..., n] if m < a.shape[-1] and n < b.shape[-1] else None for m, n in ((i, j), (j, i))
    )
    if first is None or second is None:
        return cast(Tensor, first if second is None else -second)
    return first - second


def einsum(*operands: Any, out: Any = None, optimize: Any = False, **options: Any) -> Tensor:
    if len(operands) > 1 and not isinstance(operands[0], str):
        operands = _in_letters(operands)
    if options or not (operands and isinstance(operands[0], str)):
        return through("einsum", None, operands, {"out": out, "optimize": optimize, **options})
    subscripts, *arrays = operands
    if len(arrays) <= 2 and out is None and not thin_closed[0]:  # with more arrays, NumPy's single loop is too slow
        with suppress(*LONG_WAY):
            return made_at_once(numpy.einsum, operands, {})
    return give("einsum", xt.einsum(subscripts, *[as_array(x, "einsum") for x in arrays], optimize=optimize), out)


def _in_letters(operands: tuple[Any, ...]) -> tuple[Any, ...]:
    """Return operands of einsum, each followed by a list of numbers, in the form that begins with subscripts; as they
    are where NumPy is to say what is wrong with the lists.
    """
    pairs = len(operands) // 2 * 2
    lists = [*operands[1:pairs:2], *operands[pairs:]]
    with suppress(TypeError, KeyError):
        terms = ["".join([_LETTERS[type(n) is bool, n] for n in one]) for one in lists]
        inputs = terms[: pairs // 2]
        return "->".join([",".join(inputs), *terms[pairs // 2 :]]), *operands[:pairs:2]
    return operands


# ---- convolutions


def _from_full(full: int, mode: str, shorter: int, longer: int) -> slice:
    """Return the part of a full convolution that a mode selects."""
    if mode == "full":
        return slice(0, full)
    return slice(shorter - 1, longer) if mode == "valid" else slice((shorter - 1) // 2, (shorter - 1) // 2 + longer)


def _whole(g: Tensor, mode: str, m: int, n: int) -> Tensor:
    """Return the cotangent of a full convolution from that of the part that a mode selects."""
    part = _from_full(m + n - 1, mode, min(m, n), max(m, n))
    ends = part.start, m + n - 1 - part.stop
    return xt.concat([xt.zeros((ends[0],), dtype=g.dtype), g, xt.zeros((ends[1],), dtype=g.dtype)])


def _back(g: Tensor, other: Any, mode: str, like: Any) -> Tensor:
    other = as_array(other)
    whole = _whole(g, mode, like.shape[0], other.shape[0])
    turned = conjugate(xt.flip(other))
    return _convolved(whole, turned, "full")[other.shape[0] - 1 :][: like.shape[0]]


@differentiable(a=lambda g, v, mode, like: _back(g, v, mode, like), v=lambda g, a, mode, like: _back(g, a, mode, like))
def _convolved(a: Tensor, v: Tensor, mode: str) -> Tensor:
    return on((a, v), "convolve", lambda xp, x, y: xp.convolve(x, y, mode))


def convolve(a: Any, v: Any, mode: str = "full") -> Tensor:
    a, v = (x if x.ndim else xt.reshape(x, (1,)) for x in as_arrays("convolve", a, v))
    return _convolved(a, v, mode)


def correlate(a: Any, v: Any, mode: str = "valid") -> Tensor:
    a, v = as_arrays("correlate", a, v)
    if mode == "same" and a.size < v.size:  # NumPy exchanges them, and counts the middle from the other end
        return conjugate(xt.flip(correlate(v, a, mode)))
    return convolve(a, conjugate(xt.flip(v)), mode)


# ---- polynomials, the highest power first


def polyval(p: Any, x: Any) -> Tensor:
    factors, x = as_array(p, "polyval"), as_array(x, "polyval")
    result = xt.zeros_like(x)
    for place in range(factors.shape[0]):
        result = result * x + factors[place]
    return result


def _aligned(a1: Any, a2: Any) -> tuple[Tensor, Tensor]:
    """Return the coefficients of two polynomials, padded with zeros to the same number."""
    a1, a2 = (x if x.ndim else xt.reshape(x, (1,)) for x in as_arrays("poly", a1, a2))
    count = max(a1.size, a2.size)
    first, second = (xt.concat([xt.zeros((count - x.size,), dtype=x.dtype), x]) for x in (a1, a2))
    return first, second


def polyadd(a1: Any, a2: Any) -> Tensor:
    a1, a2 = _aligned(a1, a2)
    return a1 + a2


def polysub(a1: Any, a2: Any) -> Tensor:
    a1, a2 = _aligned(a1, a2)
    return a1 - a2


def polymul(a1: Any, a2: Any) -> Tensor:
    return convolve(_trimmed(a1), _trimmed(a2))


def _trimmed(p: Any) -> Tensor:
    """Return coefficients without leading zeros."""
    x = as_array(p, "polymul").ravel()
    there = xt.nonzero(x)[0]
    return x[int(there[0]) :] if there.size else x[-1:]


def polyder(p: Any, m: int = 1) -> Tensor:
    if m < 0:
        raise ValueError("Order of derivative must be positive (see polyint)")
    x = as_array(p, "polyder")
    for _ in range(int(m)):
        x = x[:-1] * xt.arange(x.size - 1, 0, -1)
    return x


def polyint(p: Any, m: int = 1, k: Any = None) -> Tensor:
    if m < 0:
        raise ValueError("Order of integral must be positive (see polyder)")
    x = numbers(p, "polyint")
    constants = numbers(0.0 if k is None else k, "polyint").ravel()
    constants = xt.tile(constants, (m,)) if constants.size == 1 else constants
    if constants.size < m:
        raise ValueError("k must be a scalar or a rank-1 array of length 1 or >m.")
    for place in range(int(m)):
        x = concatenate([x / xt.arange(x.size, 0, -1), constants[place : place + 1]])
    return x


def poly(seq_of_zeros: Any) -> Tensor:
    x = as_array(seq_of_zeros, "poly")
    if not has_gradient(x):
        return through("poly", None, (seq_of_zeros,), {})
    found: Tensor = through("poly", None, (x.detach(),), {})
    zeros = xt.linalg.eigvals(x) if x.ndim == 2 else x
    same, nothing = xt.ones(1, dtype=zeros.dtype), xt.zeros(1, dtype=zeros.dtype)
    for place in range(zeros.size):
        same = xt.concat([same, nothing]) - xt.concat([nothing, same]) * zeros[place]
    return with_slope(found, xt.real(same) if found.dtype.kind == "f" and same.dtype.kind == "c" else same)


def polydiv(u: Any, v: Any) -> tuple[Tensor, Tensor]:
    left, divisor = (numbers(x, "polydiv") for x in as_arrays("polydiv", u, v))
    if not has_gradient(left, divisor):
        return through("polydiv", None, (u, v), {})
    quotient, rest = through("polydiv", None, (left.detach(), divisor.detach()), {})
    left, divisor, factors = left.ravel(), divisor.ravel(), []
    for _ in range(left.size - divisor.size + 1):
        factors.append(left[:1] / divisor[:1])
        left = xt.concat([left[1 : divisor.size] - factors[-1] * divisor[1:], left[divisor.size :]])
    left = xt.concat([xt.zeros(1, dtype=left.dtype), left])
    quotient = with_slope(quotient, xt.concat(factors)) if factors else quotient
    return quotient, with_slope(rest, left[-rest.size :])  # without zeros at the front


def roots(p: Any) -> Tensor:
    x = as_array(p, "roots")
    if not has_gradient(x):
        return through("roots", None, (p,), {})
    found: Tensor = through("roots", None, (x.detach(),), {})
    return with_slope(found, found - polyval(x, found) / polyval(polyder(x.detach()), found))  # a step of Newton's


def polyfit(x: Any, y: Any, deg: int, rcond: Any = None, full: bool = False, w: Any = None, cov: Any = False) -> Any:
    given = as_arrays("polyfit", x, y, *(() if w is None else (w,)))
    if full or cov or not has_gradient(*given):
        return through("polyfit", None, (x, y, deg, rcond, full, w, cov), {})
    places, values, *weights = [numbers(one, "polyfit") for one in given]
    constants = [one.detach() for one in (places, values, *weights)]
    found = through("polyfit", None, (*constants[:2], deg, rcond, False, *constants[2:]), {})
    columns = vander(places, deg + 1)
    for weight in weights:
        column = xt.expand_dims(weight, axis=1)
        columns, values = columns * column, values * (column if values.ndim > 1 else weight)
    scale = xt.sqrt(xt.sum(columns * columns, axis=0)).detach()  # the result does not depend on it
    rtol = places.size * float(numpy.finfo(places.dtype).eps) if rcond is None else rcond
    same = xt.linalg.pinv(columns / scale, rtol=rtol) @ values
    return with_slope(found, same / (xt.expand_dims(scale, axis=1) if same.ndim > 1 else scale))


# ---- numbers


def real(val: Any) -> Tensor:
    x = as_array(val, "real")
    return x.real if x.dtype.kind == "c" else x


def imag(val: Any) -> Tensor:
    return as_array(val, "imag").imag


def angle(z: Any, deg: bool = False) -> Tensor:
    z = as_array(z, "angle")
    z = xt.astype(z, xt.float64) if z.dtype.kind == "b" else z
    found: Tensor = xt.atan2(
        xt.imag(z) if z.dtype.kind == "c" else xt.zeros_like(z), xt.real(z) if z.dtype.kind == "c" else z
    )
    return found * (180.0 / numpy.pi) if deg else found


def real_if_close(a: Any, tol: float = 100) -> Tensor:
    x = as_array(a, "real_if_close")
    if x.dtype.kind != "c":
        return x[...] if is_value(x) else x  # an array, as in NumPy
    limit = tol * float(numpy.finfo(x.dtype).eps) if tol > 1 else tol
    found: Tensor = xt.real(x)
    return found if bool(xt.all(xt.abs(xt.imag(x)) < limit)) else x


def round(a: Any, decimals: int = 0, out: Any = None) -> Tensor:
    return give("round", as_array(a, "round").round(as_index(decimals, "round", "decimals")), out)


def fix(x: Any, out: Any = None) -> Tensor:
    return give("fix", xt.trunc(as_array(x, "fix")), out)


def clip(
    a: Any, a_min: Any = None, a_max: Any = None, out: Any = None, *, min: Any = None, max: Any = None, **given: Any
) -> Tensor:
    if (a_min is not None or a_max is not None) and (min is not None or max is not None):
        raise ValueError(expected("clip", "min and max", "not be given beside a_min or a_max", (min, max)))
    lower, upper = (a_min if min is None else min), (a_max if max is None else max)
    x = as_array(a, "clip")
    plain = {int, float} if x.dtype.kind == "f" else {int} if x.dtype.kind in "iu" else set()
    if not given and all(one is None or type(one) in plain for one in (lower, upper)):
        return give("clip", xt.clip(x, lower, upper), out)  # takes integers beyond the dtype's range, too
    if lower is not None:
        x = xt.numpy.maximum(x, lower)
    if upper is not None:
        x = xt.numpy.minimum(x, upper)
    dtype = given.pop("dtype", None)
    return give("clip", x if dtype is None else xt.astype(x, dtype), out, **given)


def sinc(x: Any) -> Tensor:
    y = numbers(x, "sinc") * numpy.pi
    zero = y == 0
    safe = xt.where(zero, 1.0, y)
    found: Tensor = xt.where(zero, 1.0, xt.sin(safe) / safe)
    return with_slope(found.detach(), xt.special.sinc(numbers(x, "sinc"))) if has_gradient(y) else found


def i0(x: Any) -> Tensor:
    found = as_array(x, "i0")
    return xt.special.i0(found) if has_gradient(found) else through("i0", None, (x,), {})


def nan_to_num(x: Any, copy: bool = True, nan: Any = 0.0, posinf: Any = None, neginf: Any = None) -> Tensor:
    given = as_array(x, "nan_to_num")
    if given.dtype.kind == "c":
        parts = [nan_to_num(part, True, nan, posinf, neginf) for part in (xt.real(given), xt.imag(given))]
        result = parts[0] + 1j * parts[1]
    elif given.dtype.kind == "f":
        most = numpy.finfo(given.dtype)
        result = xt.where(xt.isnan(given), nan, given)
        result = xt.where(given == numpy.inf, float(most.max) if posinf is None else posinf, result)
        result = xt.where(given == -numpy.inf, float(most.min) if neginf is None else neginf, result)
    else:
        return given.copy() if copy else given
    return result if copy or not isinstance(x, Tensor) else give("nan_to_num", result, x)
