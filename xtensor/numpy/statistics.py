"""Order statistics, histograms, covariances, differences and interpolation, under NumPy's signatures."""

from __future__ import annotations

from functools import partial
from typing import Any, NamedTuple, cast

import numpy

from ..autograd.rules import xt
from ..autograd.tape import active, differentiable, steps_of
from ..base.dtypes import DType
from ..base.errors import expected
from ..base.layout import as_axes, as_axis
from ..calls.library import on
from ..storage.storage import refuse_capture, watchers, watching
from ..tensor.face import CPU_DEVICE, Tensor, created
from ..tensor.operands import common_device
from ..tensor.scalars import valued
from .common import as_array, as_arrays, give, has_gradient, numbers, with_slope
from .door import through
from .folding import average, mean
from .selecting import searchsorted

# ---- order statistics


def _in_rows(x: Tensor, axis: Any, function: str) -> tuple[Tensor, tuple[int, ...]]:
    """Return an array whose reduced axes are joined to one, the last, and the shape of results with keepdims."""
    axes = as_axes(tuple(axis) if isinstance(axis, list) else axis, x.ndim, function)
    others = tuple(a for a in range(x.ndim) if a not in axes)
    moved = xt.permute_dims(x, (*others, *axes))
    lengths = [x.shape[a] for a in others]
    rows = xt.reshape(moved, (*lengths, int(numpy.prod([x.shape[a] for a in axes], dtype=int))))
    return rows, tuple(1 if a in axes else n for a, n in enumerate(x.shape))


def _ordered(rows: Tensor, places: set[int]) -> Tensor:
    """Return rows in which the elements at some places are those of the sorted rows; with a gradient all are sorted."""
    if active[0] and steps_of((rows,)) is not None:
        return xt.sort(rows)
    found: Tensor = on(rows, "partition", lambda xp, a: xp.partition(a, sorted(places), axis=-1))
    return found


def _ordered_numbers(rows: Tensor, part: Any) -> Tensor:
    """Return rows in which the elements around some parts of the way through all non-NaNs are those of sorted rows."""
    if isinstance(part, Tensor) or (active[0] and steps_of((rows,)) is not None):
        return xt.sort(rows)

    def order(xp: Any, a: Any) -> Any:
        lost = xp.isnan(a).sum(axis=-1)
        if not lost.size or int(lost.min()) < int(lost.max()):  # the places differ from row to row
            return xp.sort(a, axis=-1)
        last = max(a.shape[-1] - int(lost.max()) - 1, 0)
        first = numpy.floor(part.reshape(-1) * last).astype(int)
        places = {*first.tolist(), *numpy.minimum(first + 1, last).tolist()}
        return xp.partition(a, sorted(places), axis=-1)

    found: Tensor = on(rows, "partition", order)
    return found


def median(a: Any, axis: Any = None, out: Any = None, overwrite_input: bool = False, keepdims: bool = False) -> Tensor:
    x = as_array(a, "median")
    rows, kept = _in_rows(x, axis, "median")
    count = rows.shape[-1]
    if not count:
        return give("median", mean(x, axis, keepdims=keepdims), out)
    ordered = _ordered(rows, {(count - 1) // 2, count // 2, count - 1})
    middle = mean(ordered[..., (count - 1) // 2 : count // 2 + 1], -1)
    if x.dtype.kind in "fc":
        last = ordered[..., -1]
        middle = xt.where(xt.isnan(last), last, middle)
    return give("median", xt.reshape(middle, kept) if keepdims else valued(middle), out)


def _quantiles(name: str, whole: int) -> Any:
    """Return a function for quantiles that are given as parts of `whole`."""

    def found(
        a: Any,
        q: Any,
        axis: Any = None,
        out: Any = None,
        overwrite_input: bool = False,
        method: str = "linear",
        keepdims: bool = False,
        *,
        weights: Any = None,
    ) -> Tensor:
        x = as_array(a, name)
        if _is_unusual(x, method, weights):
            if x.dtype.kind == "f" and has_gradient(x) and not (isinstance(q, Tensor) and q.requires_grad):
                return give(name, _with_slope(name, x, q, axis, method, keepdims, weights), out)
            return through(name, None, (x, q), _given(axis, out, method, keepdims, weights))
        return _quantile(x, _parts(x, q, whole), axis, out, keepdims)

    found.__name__ = found.__qualname__ = name
    return found


quantile, percentile = _quantiles("quantile", 1), _quantiles("percentile", 100)


def _is_unusual(x: Tensor, method: str, weights: Any) -> bool:
    """Return whether a quantile is one that only the library computes."""
    return method != "linear" or weights is not None or x.dtype.kind == "c"


def _given(axis: Any, out: Any, method: str, keepdims: bool, weights: Any) -> dict[str, Any]:
    return {"axis": axis, "out": out, "method": method, "keepdims": keepdims, "weights": weights}


def _with_slope(name: str, x: Tensor, q: Any, axis: Any, method: str, keepdims: bool, weights: Any) -> Tensor:
    """Return a quantile as the library computes it, with its gradient."""
    value: Tensor = through(name, None, (x.detach(), q), _given(axis, None, method, keepdims, weights))
    rows, kept = _in_rows(x, axis, name)
    part = numpy.asarray(q)
    if weights is not None:  # it is one of the elements
        found = rows == xt.reshape(value, (*part.shape, *rows.shape[:-1], 1))
        same = xt.sum(xt.where(found, rows, 0), axis=-1) / xt.sum(found, axis=-1)
        return with_slope(value, xt.reshape(same, value.shape))
    # the same quantile of the places of sorted elements says where between two of these it lies
    place = getattr(numpy, name)(numpy.arange(float(rows.shape[-1])), part.reshape(-1), method=method)
    below, ordered = numpy.floor(place), xt.sort(rows)
    low, high = (xt.take(ordered, created(one.astype(int), x.device), axis=-1) for one in (below, numpy.ceil(place)))
    same = low + created(place - below, x.device) * (high - low)
    return with_slope(value, _arranged(name, same, part.shape, kept, keepdims, None))


class _Parts(NamedTuple):
    """Parts of the way through sorted elements, as float64: a tensor, or a NumPy array.

    dtype: in which numbers between two elements are computed. whole: whether the parts are integers, 0 or 1.
    """

    way: Any
    dtype: DType
    whole: bool


def _computed_in(x: Tensor, parts: _Parts, function: str) -> Tensor:
    """Return an array in the floating dtype of its quantiles."""
    x = x if function == "nanmedian" else _no_booleans(function, x)
    return x if x.dtype.kind == "f" else xt.astype(x, xt.result_type(x, parts.dtype))


def _quantile(x: Tensor, parts: _Parts, axis: Any, out: Any, keepdims: bool) -> Tensor:
    """Return the quantiles at parts of the way through the sorted elements along axes."""
    part = parts.way
    x = x if parts.whole else _computed_in(x, parts, "quantile")
    rows, kept = _in_rows(x, axis, "quantile")
    last = rows.shape[-1] - 1
    if last < 0:
        raise IndexError("index -1 is out of bounds for axis 0 with size 0")
    place = part.reshape(-1) * last
    if isinstance(part, Tensor):
        below = xt.floor(place)
        first = xt.astype(below, xt.int64)
        ordered, second, rest = xt.sort(rows), xt.clip(first + 1, 0, last), place - below
    else:
        below = numpy.floor(place)
        places = below.astype(int), numpy.minimum(below.astype(int) + 1, last)
        ordered = _ordered(rows, {last, *places[0].tolist(), *places[1].tolist()})
        first, second, rest = (created(one, x.device) for one in (*places, place - below))
    values = _between(xt.take(ordered, first, axis=-1), xt.take(ordered, second, axis=-1), rest, parts)
    if x.dtype.kind == "f":
        largest = ordered[..., -1:]
        values = xt.where(xt.isnan(largest), largest, values)
    return _arranged("quantile", values, part.shape, kept, keepdims, out)


def _parts(x: Tensor, q: Any, whole: int = 1) -> _Parts:
    """Return the parts of the way for q, which is given as parts of 1 or of 100."""
    found = q if isinstance(q, Tensor) else numpy.asarray(q)
    if found.ndim > 2:
        raise ValueError(expected("quantile", "q", "have at most 2 axes", f"shape {found.shape}"))
    dtype = found.dtype if found.dtype.kind == "f" else numpy.dtype(float)
    is_weak = isinstance(q, (int, float)) and not isinstance(q, (bool, numpy.generic))
    dtype = x.dtype if is_weak and x.dtype.kind == "f" else dtype
    is_whole, found = found.dtype.kind in "biu" and whole == 1, found.astype(float)
    if not bool(((found >= 0) & (found <= whole)).all()):
        what = "Quantiles must be in the range [0, 1]" if whole == 1 else "Percentiles must be in the range [0, 100]"
        raise ValueError(what)
    return _Parts(found if whole == 1 else found / whole, dtype, is_whole)


def _between(low: Tensor, high: Tensor, part: Tensor, parts: _Parts) -> Tensor:
    """Return the numbers at a part of the way between two numbers, computed from the nearer one."""
    if parts.whole:
        return low
    step, part = high - low, xt.astype(part, parts.dtype, copy=False)
    return xt.where(part >= 0.5, high - step * (1 - part), low + step * part)


def _arranged(
    name: str, values: Tensor, shape: tuple[int, ...], kept: tuple[int, ...], keepdims: bool, out: Any
) -> Tensor:
    """Return quantiles, given along the last axis, with the axes of q first. shape: that of q."""
    moved = xt.moveaxis(values, -1, 0)
    return give(name, valued(xt.reshape(moved, (*shape, *(kept if keepdims else moved.shape[1:])))), out)


def _of_numbers(name: str, a: Any, parts: _Parts, axis: Any, out: Any, keepdims: bool) -> Tensor:
    """Return quantiles of the elements of each row that are not NaN: these come first when the row is sorted."""
    x, part = as_array(a, name), parts.way
    x = x if parts.whole else _computed_in(x, parts, name)
    rows, kept = _in_rows(x, axis, name)
    if not rows.shape[-1]:
        return _arranged(name, xt.full((*rows.shape[:-1], part.size), numpy.nan), part.shape, kept, keepdims, out)
    ordered = _ordered_numbers(rows, part)
    count = xt.count_nonzero(xt.logical_not(xt.isnan(ordered)), axis=-1, keepdims=True)
    flat = part.reshape(-1)
    place = (flat if isinstance(flat, Tensor) else created(flat, x.device)) * xt.astype(count - 1, xt.float64)
    below = xt.floor(place)
    first = xt.clip(xt.astype(below, xt.int64), 0, rows.shape[-1] - 1)
    second = xt.clip(xt.minimum(first + 1, count - 1), 0, rows.shape[-1] - 1)
    low, high = (xt.take_along_axis(ordered, one, axis=-1) for one in (first, second))
    if name == "nanmedian":  # the mean of the two in the middle, which also is right for infinities
        values = xt.where(place == below, low, mean(xt.stack([low, high]), 0))
    else:
        values = _between(low, high, place - below, parts)
    return _arranged(name, values, part.shape, kept, keepdims, out)


def nanquantile(
    a: Any,
    q: Any,
    axis: Any = None,
    out: Any = None,
    overwrite_input: bool = False,
    method: str = "linear",
    keepdims: bool = False,
    **options: Any,
) -> Tensor:
    parts = q if isinstance(q, _Parts) else _parts(as_array(a), q)
    if method != "linear" or options or as_array(a).dtype.kind == "c":
        given = {"axis": axis, "out": out, "method": method, "keepdims": keepdims, **options}
        return through("nanquantile", None, (a, parts.way if q is parts else q), given)
    return _of_numbers("nanquantile", a, parts, axis, out, keepdims)


def nanpercentile(a: Any, q: Any, axis: Any = None, out: Any = None, *args: Any, **options: Any) -> Tensor:
    return nanquantile(a, _parts(as_array(a), q, 100), axis, out, *args, **options)


def nanmedian(
    a: Any, axis: Any = None, out: Any = None, overwrite_input: bool = False, keepdims: bool = False
) -> Tensor:
    x = as_array(a, "nanmedian")
    if x.dtype.kind == "c":
        return through("nanmedian", None, (x, axis, out), {"keepdims": keepdims})
    return _of_numbers("nanmedian", x, _parts(x, 0.5), axis, out, keepdims)


# ---- counting


@differentiable(weights=lambda g, x: xt.take(g, x, axis=0))
def _counted(x: Tensor, weights: Tensor, minlength: int) -> Tensor:
    return on((x, weights), "bincount", lambda xp, a, w: xp.bincount(a, w, minlength))


def _check_below(count: int, native: Any) -> None:
    """Raise ValueError if an integer is not below a count, as the result would be longer than that."""
    if native.size and native.max() >= count:
        raise ValueError(expected("bincount", "x", f"be below minlength {count}", int(native.max())))


def bincount(x: Any, /, weights: Any = None, minlength: int = 0) -> Tensor:
    given, x = x, as_array(x, "bincount")
    if isinstance(given, (list, tuple)) and not x.size:  # an empty list has no dtype; NumPy accepts it
        x = xt.astype(x, xt.int64)
    capture = watching() if watchers else None
    if capture is not None and not (minlength and capture.holds(partial(_check_below, minlength), x.blob, "bincount")):
        capture.refuse_call("bincount")
    if weights is None:
        return on(x, "bincount", lambda xp, a: xp.bincount(a, minlength=minlength))
    return _counted(x, xt.astype(as_array(weights), xt.float64, copy=False), minlength)


def histogram(
    a: Any, bins: Any = 10, range: Any = None, density: bool | None = None, weights: Any = None
) -> tuple[Tensor, Tensor]:
    values = as_array(a, "histogram").detach()  # the bin of a value has no derivative
    bins = as_array(bins) if isinstance(bins, numpy.ndarray) else bins
    given = bins if isinstance(bins, Tensor) and bins.ndim == 1 else None  # edges, which are returned as they are
    if isinstance(bins, (str, Tensor)) and given is None:  # their number depends on values
        refuse_capture("histogram")
    if not isinstance(weights, Tensor) or not weights.requires_grad:
        counts, edges = through("histogram", None, (values, bins, range, density, weights), {})
        return counts, edges if given is None else given
    edges = through("histogram_bin_edges", None, (values, bins, range, weights.detach()), {})
    count, values = edges.size - 1, values.ravel()
    inside = xt.logical_and(values >= edges[0], values <= edges[-1])
    places = xt.minimum(searchsorted(edges, values, "right") - 1, count - 1)
    counts = xt.astype(bincount(places[inside], weights.ravel()[inside], count), weights.dtype, copy=False)
    return counts / xt.diff(edges) / xt.sum(counts) if density else counts, edges


# ---- covariances


def cov(
    m: Any,
    y: Any = None,
    rowvar: bool = True,
    bias: bool = False,
    ddof: int | None = None,
    fweights: Any = None,
    aweights: Any = None,
    *,
    dtype: Any = None,
) -> Tensor:
    x = _observed(m, y, rowvar, dtype)
    if not x.shape[0]:
        return xt.zeros((0, 0))
    correction = (0 if bias else 1) if ddof is None else ddof
    if correction != int(correction):
        raise ValueError(expected("cov", "ddof", "be an integer", ddof))
    weights = _weights(fweights, aweights, x.shape[1])
    total: Any
    if weights is None:
        centre, total = mean(x, 1, keepdims=True), x.shape[1] - correction
    else:
        centre, sum_ = average(x, 1, weights, returned=True, keepdims=True)
        sum_ = sum_[0, 0]
        spread = xt.sum(weights * as_array(aweights)) / sum_ if aweights is not None else 1
        total = sum_ - correction * spread
    distance = x - centre
    other = distance if weights is None else distance * weights
    turned = xt.matrix_transpose(other)  # of the same memory: the BLAS then computes only half of the product
    product = xt.matmul(distance, xt.conj(turned) if turned.dtype.kind == "c" else turned)
    total = xt.maximum(total, 0) if isinstance(total, Tensor) else max(float(total), 0.0)
    return (product / total).squeeze()


def _observed(m: Any, y: Any, rowvar: bool, dtype: Any) -> Tensor:
    """Return observations as columns, with the variables of a second array below those of the first, if it has any."""
    x = as_array(m, "cov")
    for name, one in (("m", x), ("y", x if y is None else as_array(y, "cov"))):
        if one.ndim > 2:
            raise ValueError(expected("cov", name, "have at most 2 axes", f"shape {one.shape}"))
    wanted = xt.result_type(x, xt.float64, *(() if y is None else (as_array(y),))) if dtype is None else dtype
    parts: list[Tensor] = []
    for one in (x,) if y is None else (x, as_array(y)):
        one = xt.astype(one, wanted, copy=False)
        one = xt.reshape(one, (1, -1)) if one.ndim < 2 else one
        is_row = one.shape[0] == 1 if parts else x.ndim < 2  # a second array of one row is never turned
        parts.append(one if rowvar or is_row else xt.matrix_transpose(one))
    return parts[0] if y is None or not parts[0].shape[0] else xt.concat(parts)


def _weights(fweights: Any, aweights: Any, count: int) -> Any:
    """Return the weights of so many observations, None without any; fweights are counts, and must be integers."""
    given = []
    for name, one in (("fweights", fweights), ("aweights", aweights)):
        if one is None:
            continue
        found = xt.astype(as_array(one, "cov"), xt.float64)
        if found.shape != (count,):
            raise RuntimeError(expected("cov", name, f"have shape ({count},), as there are observations", found.shape))
        if name == "fweights" and bool(xt.any(found != xt.round(found))):
            raise TypeError(expected("cov", name, "hold integers", found.dtype))
        if bool(xt.any(found < 0)):
            raise ValueError(expected("cov", name, "not be negative", "negative numbers"))
        given.append(found)
    return None if not given else given[0] if len(given) == 1 else given[0] * given[1]


def corrcoef(x: Any, y: Any = None, rowvar: bool = True, *, dtype: Any = None) -> Tensor:
    c = cov(x, y, rowvar, dtype=dtype)
    if not c.ndim:
        return c / c
    deviation = xt.sqrt(xt.real(xt.diag(c)))
    found = c / xt.expand_dims(deviation, axis=1) / deviation
    if found.dtype.kind == "c":
        return xt.clip(xt.real(found), -1, 1) + 1j * xt.clip(xt.imag(found), -1, 1)
    return cast(Tensor, xt.clip(found, -1, 1))


# ---- neighbours


def diff(a: Any, n: int = 1, axis: int = -1, prepend: Any = None, append: Any = None) -> Tensor:
    ends = {"prepend": prepend, "append": append}
    given = {name: as_array(end) for name, end in ends.items() if end is not None}
    return xt.diff(as_array(a, "diff"), axis=axis, n=n, **given)


def ediff1d(ary: Any, to_end: Any = None, to_begin: Any = None) -> Tensor:
    x = as_array(ary, "ediff1d").ravel()
    parts = [x[1:] - x[:-1]]
    for name, end in (("to_begin", to_begin), ("to_end", to_end)):
        if end is None:
            continue
        found = as_array(end, "ediff1d").ravel()
        if not numpy.can_cast(found.dtype, x.dtype, "same_kind"):
            raise TypeError(expected("ediff1d", name, f"fit into {x.dtype}", found.dtype))
        parts.insert(0 if name == "to_begin" else len(parts), xt.astype(found, x.dtype))
    return xt.concat(parts) if len(parts) > 1 else parts[0]


def _no_booleans(function: str, x: Tensor) -> Tensor:
    """Return an array; raises TypeError for booleans, which cannot be subtracted."""
    if x.dtype.kind == "b":
        raise TypeError(expected(function, "the array", "not hold booleans", x.dtype))
    return x


def gradient(f: Any, *varargs: Any, axis: Any = None, edge_order: int = 1) -> Any:
    x = numbers(_no_booleans("gradient", as_array(f, "gradient")), "gradient")
    axes = as_axes(axis, x.ndim, "gradient")
    steps = list(varargs or (1.0,))
    if len(steps) == 1 and (isinstance(steps[0], (int, float)) or not as_array(steps[0], "gradient").ndim):
        steps *= len(axes)
    if len(steps) != len(axes):
        raise TypeError("invalid number of arguments")
    if edge_order not in (1, 2):
        raise ValueError("'edge_order' greater than 2 not supported")
    found = [
        _slopes(x, _widths(step, x.shape[along]), along, edge_order) for step, along in zip(steps, axes, strict=True)
    ]
    return found[0] if len(found) == 1 else tuple(found)


def _widths(step: Any, length: int) -> Any:
    """Return the distances between places, as one number if they are equal."""
    if isinstance(step, (int, float)):
        return step
    places = numbers(step, "gradient")
    if not places.ndim:
        return places
    if places.shape != (length,):
        raise ValueError("when 1d, distances must match the length of the corresponding dimension")
    widths = xt.diff(places)
    if watchers and watching() is not None:  # whether they are equal depends on values
        return widths
    return widths[0] if bool(xt.all(widths == widths[0])) else widths


def _slopes(x: Tensor, width: Any, along: int, edge_order: int) -> Tensor:
    """Return slopes along an axis: of parabolas inside, of lines or parabolas at both ends."""
    if x.shape[along] < edge_order + 1:
        raise ValueError("Shape of array too small to calculate a numerical gradient")
    y = xt.moveaxis(x, along, -1)
    if isinstance(width, Tensor) and width.ndim:
        left, right = width[:-1], width[1:]
        both = left + right
        inside = -right / (left * both) * y[..., :-2] + (right - left) / (left * right) * y[..., 1:-1]
        inside = inside + left / (right * both) * y[..., 2:]
        first, last = width[0], width[-1]
    else:
        inside = (y[..., 2:] - y[..., :-2]) / (2.0 * width)
        first = last = width
    if edge_order == 1:
        ends = (y[..., 1:2] - y[..., :1]) / first, (y[..., -1:] - y[..., -2:-1]) / last
    else:
        ends = _curved(y[..., :3], width, 0), _curved(xt.flip(y, axis=-1)[..., :3], width, -1)
    return xt.astype(xt.moveaxis(xt.concat([ends[0], inside, ends[1]], axis=-1), -1, along), x.dtype, copy=False)


def _curved(y: Tensor, width: Any, end: int) -> Tensor:
    """Return the slope of the parabola through three values at the first of them; end: 0, or -1 for the last end."""
    sign = 1.0 if end == 0 else -1.0
    if isinstance(width, Tensor) and width.ndim:
        near, far = (width[0], width[1]) if end == 0 else (width[-1], width[-2])
    else:
        near = far = width
    factors = -(2.0 * near + far) / (near * (near + far)), (near + far) / (near * far), -near / (far * (near + far))
    return sign * (factors[0] * y[..., :1] + factors[1] * y[..., 1:2] + factors[2] * y[..., 2:3])


def trapezoid(y: Any, x: Any = None, dx: Any = 1.0, axis: int = -1) -> Tensor:
    values = as_array(y, "trapezoid")
    along = as_axis(axis, values.ndim, "trapezoid")
    width: Any = dx
    if x is not None:
        places = as_array(x)
        width = xt.diff(places, axis=-1 if places.ndim == 1 else axis)  # counted in the axes of x
        if places.ndim == 1:
            width = xt.reshape(width, tuple([-1 if a == along else 1 for a in range(values.ndim)]))
    before = (slice(None),) * along
    return xt.sum(width * (values[(*before, slice(1, None))] + values[(*before, slice(None, -1))]) / 2.0, axis=along)


def interp(x: Any, xp: Any, fp: Any, left: Any = None, right: Any = None, period: Any = None) -> Tensor:
    x, xp, fp = as_arrays("interp", x, xp, fp)
    is_plain = {type(None), int, float}.issuperset(map(type, (left, right, period)))
    if is_plain and not has_gradient(x, xp, fp) and common_device("interp", (x, xp, fp)) is CPU_DEVICE:
        return valued(through("interp", None, (x, xp, fp, left, right, period), {}))  # it searches fast if x is sorted
    places, values = xt.astype(xp, xt.float64), xt.astype(fp, xt.result_type(fp, xt.float64))
    x = xt.astype(x, xt.float64)
    if period is not None:
        x, places, values = _within(x, places, values, abs(period))
    if places.shape != values.shape or places.ndim != 1 or not places.size:
        raise ValueError("fp and xp are not of the same length.")
    if places.size == 1:
        result = xt.broadcast_to(values[0], x.shape) + 0 * x
    else:
        below = xt.clip(searchsorted(places, x.detach(), "right") - 1, 0, places.size - 2)
        start, height = xt.take(places, below, axis=0), xt.take(values, below, axis=0)
        slope = xt.take(xt.diff(values) / xt.diff(places), below, axis=0)
        line = slope * (x - start) + height
        # the values are exact at the places, where the slope is that of the segment above
        exact = xt.where(x == places[-1], values[-1], xt.where(x == start, height, line)).detach()
        result = with_slope(exact, line)
    result = xt.where(x < places[0], values[0] if left is None else left, result)
    return valued(xt.where(x > places[-1], values[-1] if right is None else right, result))


def _within(x: Tensor, places: Tensor, values: Tensor, period: float) -> tuple[Tensor, Tensor, Tensor]:
    """Return x, places and values for periodic interpolation, sorted and with one more place at each end."""
    x, places = xt.remainder(x, period), xt.remainder(places, period)
    order = xt.argsort(places)
    places, values = xt.take(places, order, axis=0), xt.take(values, order, axis=0)
    places = xt.concat([places[-1:] - period, places, places[:1] + period])
    return x, places, xt.concat([values[-1:], values, values[:1]])
