"""Linear algebra functions of the main namespace."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import prod
from typing import TYPE_CHECKING, Any, cast

import numpy as np

from ..autograd.rules import Like, conjugate, sum_to, xt
from ..autograd.tape import differentiable, is_recording
from ..base.dtypes import NUMERIC, is_held
from ..base.errors import REFUSED, StrangerError, expected, mismatch
from ..base.layout import Layout, Shape, as_axes, as_axis, as_index, broadcast_shapes, dense_like, product_strides
from ..base.options import thin_closed
from ..base.threads import dismiss
from ..calls.library import on, rearranged, thin_call, thin_view
from ..calls.op import library_later
from ..calls.record import is_node
from ..calls.thin import Door, add_door
from ..calls.writes import check_cast
from ..devices import Backend
from ..devices.cpu import CPU, quickly
from ..plan.costs import DIRECT_BELOW, PRODUCT_LEAST
from ..storage.blob import TBlob
from ..storage.storage import watchers
from ..tensor.face import CPU_DEVICE, Tensor, face, thin_arrays, wrap
from ..tensor.operands import Operand, as_tensor, as_tensors
from ..tensor.operators import Operators

if TYPE_CHECKING:
    from ..plan.layouts import Meta
    from ..run.joined import Ending

__all__ = ["matmul", "matrix_transpose", "tensordot", "vecdot"]


@differentiable(x1=lambda g, x2, like: _matmul_by_x1(g, x2, like), x2=lambda g, x1, like: _matmul_by_x2(g, x1, like))
def matmul(x1: Operand, x2: Operand, /) -> Tensor:
    """Return the matrix product: shapes (..., n, k) and (..., k, m) give (..., n, m).

    A 1-d operand counts as a row or a column, and the result loses that axis. Raises ValueError for a scalar operand
    and if shapes do not match. Standard: Linear Algebra Functions, matmul.
    """
    a = x1._content if type(x1) is Tensor else _beside(x1, x2)
    b = x2._content if type(x2) is Tensor else _beside(x2, x1)
    if type(a) is np.ndarray and type(b) is np.ndarray and not thin_closed[0]:
        is_small = a.nbytes <= DIRECT_BELOW and b.nbytes <= DIRECT_BELOW
        if is_small or a.ndim == 1 or b.ndim == 1 or _is_small_product(a, b):
            if not is_small:
                dismiss()  # the library has threads of its own
            try:
                native = _by_kernel(a, b)
                return wrap(quickly(_MATMUL, a, b) if native is None else native, CPU_DEVICE)
            except REFUSED:
                pass  # the code below says what is wrong
    if type(x1) is not Tensor or type(x2) is not Tensor:
        x1, x2 = as_tensors("matmul", x1=x1, x2=x2)
    shape = _product_shape(x1, x2)
    if watchers and x1.dtype != x2.dtype:
        x1, x2 = _cast_alike(x1, x2)
    if x1.dtype == x2.dtype and x1.dtype.kind in "fc":
        vectors = min(x1.ndim, x2.ndim) == 1 or 1 in shape[-2:]
        if x1.shape[-1] == 1 and x1.ndim + x2.ndim > 2 and (x1.dtype.kind == "f" or not vectors):
            return _of_one_term(x1, x2)
        later = library_later(_PRODUCT, (x1, x2), {"turned": (False, False)}, shape, x1.dtype)
        if later is not None:
            return later
        if prod(shape) * x1.itemsize > DIRECT_BELOW and x1.ndim > 1 and x2.ndim > 1 and not watchers:
            blob = _room(x1, x2, shape)  # from the pool: fresh pages would cost as much as the product
            on((x1, x2), "matmul", lambda xp, a, b: _multiplied(xp, a, b, blob.native()))
            return face(blob)
    return on((x1, x2), "matmul", _multiplied)


def _cast_alike(x1: Tensor, x2: Tensor) -> tuple[Tensor, Tensor]:
    """Return operands of a product of floats in its dtype, as NumPy casts them: in C order."""
    both = np.result_type(x1.dtype, x2.dtype)
    if both.kind != "f":
        return x1, x2
    flat = [x if x.dtype == both else xt.astype(xt.reshape(x, (-1,)), both) for x in (x1, x2)]
    return xt.reshape(flat[0], x1.shape), xt.reshape(flat[1], x2.shape)


def _of_one_term(x1: Tensor, x2: Tensor) -> Tensor:
    """Return a product whose sums have one term, as of a column and a row; adding 0.0 leaves no negative zeros."""
    if x2.ndim == 1:
        x1 = x1[..., 0]
    elif x1.ndim == 1:
        x2 = x2[..., 0, :]
    return x1 * x2 + 0.0


_MATMUL: Any = np.matmul


def _is_small_product(a: Any, b: Any) -> bool:
    """Return whether the product of two matrices is small, and not one of a column and a row; with a vector, the time
    is that of reading the other operand.
    """
    return a.ndim == b.ndim == 2 and a.shape[1] > 1 and a.shape[0] * b.shape[1] * a.itemsize <= DIRECT_BELOW


def _beside(x: Any, other: Any) -> Any:
    """Return an operand that is a NumPy array beside a tensor, and can be read at once; None for any other."""
    return x if type(x) is np.ndarray and type(other) is Tensor and is_held(x.dtype) else None


def _least_product(a: Any, b: Any) -> Any:
    """Return the matrix product of small native arrays; raises ValueError if generated code may compute it, or if b is
    a number.
    """
    if type(b) is not np.ndarray or _is_counted(a, b):
        raise ValueError
    return _MATMUL(a, b)


add_door(Door(Operators, "__matmul__", Operators.__matmul__, "binary formula", _least_product))


def _room(x1: Tensor, x2: Tensor, shape: Shape) -> TBlob:
    """Return memory for a product, as the library would lay it out."""
    blob = TBlob.empty(shape, x1.dtype, x1.device)
    if len(shape) == 2 or x1.device is not CPU_DEVICE:
        return blob
    strides = product_strides(shape, x1.itemsize, x1.blob.layout, x2.blob.layout)
    return blob.view(Layout(shape, strides))


def _product_shape(x1: Tensor, x2: Tensor) -> Shape:
    """Return the shape of a matrix product; raises ValueError where shapes do not match."""
    if not x1.shape or not x2.shape:
        raise ValueError(expected("matmul", "x2" if x1.shape else "x1", "have at least 1 axis", "shape ()"))
    inner = x2.shape[-2] if x2.ndim > 1 else x2.shape[-1]
    if x1.shape[-1] != inner:
        raise ValueError(mismatch("matmul", x1.shape, x2.shape, f"{x1.shape[-1]} != {inner}"))
    try:
        lead = broadcast_shapes(x1.shape[:-2], x2.shape[:-2])
    except ValueError as error:
        raise ValueError(mismatch("matmul", x1.shape, x2.shape, str(error))) from None
    return (*lead, *x1.shape[-2:-1], *(x2.shape[-1:] if x2.ndim > 1 else ()))


def _is_counted(a: Any, b: Any) -> bool:
    """Return whether generated code may compute the matrix product of native arrays; run/products.py asks the same."""
    return (a.size >= PRODUCT_LEAST or b.size >= PRODUCT_LEAST) and a.ndim > 1 and b.ndim > 1


def _by_kernel(a: Any, b: Any, out: Any = None) -> Any:
    """Return the matrix product of native arrays by generated code, None if the library is to compute it."""
    if not _is_counted(a, b):
        return None
    from ..run.matmul import product_of  # the code generator comes with it

    return product_of(a, b, out)


def _multiplied(xp: Any, a: Any, b: Any, out: Any = None) -> Any:
    """Return the matrix product of native arrays, by whichever code is faster; out: the array for it, in C order."""
    found = _by_kernel(a, b, out)
    return xp.matmul(a, b, out=out) if found is None else found


def _contracted_over(xp: Any, a: Any, b: Any, first: Sequence[int], second: Sequence[int]) -> Any:
    """Return tensordot of native arrays; for integers it is computed as a product of matrices."""
    if a.dtype.kind in "iu" and b.dtype.kind in "iu":
        (order, rows), (other, columns), shape = _as_matrices(a.shape, b.shape, first, second)
        return _multiplied(xp, a.transpose(order).reshape(rows), b.transpose(other).reshape(columns)).reshape(shape)
    return xp.tensordot(a, b, axes=(first, second))


def _as_matrices(a: Shape, b: Shape, first: Sequence[int], second: Sequence[int]) -> tuple[Any, Any, Shape]:
    """Return how operands of tensordot become matrices: for each the order of its axes and a shape; and the shape of
    the result.
    """
    own, others = _left_out(len(a), first), _left_out(len(b), second)
    rows, columns = tuple([a[axis] for axis in own]), tuple([b[axis] for axis in others])
    terms = prod([a[axis] for axis in first])
    one, other = ((*own, *first), (prod(rows), terms)), ((*second, *others), (terms, prod(columns)))
    return one, other, rows + columns


def _is_product_later(x1: Tensor, x2: Tensor) -> bool:
    """Return whether `dot` or tensordot is recorded as a matrix product in a captured function. It is not for operands
    with gaps or negative strides, which NumPy copies first, as the last bits of the two would differ.
    """
    if not watchers or x1.device.backend is not CPU:
        return False
    return all(x.dtype.kind == "f" and x.size and _is_packed(x.blob.layout, x.itemsize) for x in (x1, x2))


def _is_packed(layout: Layout, itemsize: int) -> bool:
    """Return whether elements lie without gaps, by axes in any order."""
    return dense_like(layout, itemsize).strides == layout.strides


def _contracted_later(x1: Tensor, x2: Tensor, first: Sequence[int], second: Sequence[int]) -> Tensor:
    """Return tensordot as steps of a captured function: a product of matrices, as NumPy computes it."""
    (order, rows), (other, columns), shape = _as_matrices(x1.shape, x2.shape, first, second)
    a, b = xt.reshape(xt.permute_dims(x1, order), rows), xt.reshape(xt.permute_dims(x2, other), columns)
    return cast(Tensor, xt.reshape(matmul(a, b), shape))


class _Product:
    """The matrix product as an operation that can be recorded; turned: which operands are conjugate-transposed."""

    name = "matmul"
    kind = "contraction"
    element = None

    def channels(self, ndim: int, turned: tuple[bool, bool]) -> int:
        return ndim - 1

    def strides(self, operands: Sequence[Meta], shape: Shape, itemsize: int, turned: tuple[bool, bool]) -> Shape:
        return product_strides(shape, itemsize, operands[0].layout, operands[1].layout)

    def refusal(self, operands: Sequence[Meta], result: Meta, turned: tuple[bool, bool], *, is_light: bool) -> str:
        from ..run.joined import refuse_product  # the code generator comes with it

        return "an operand is turned" if any(turned) else refuse_product(operands[0], operands[1], result)

    def write(self, operands: Sequence[Any], ending: Ending, turned: tuple[bool, bool]) -> None:
        from ..run.joined import write_product

        write_product(operands[0], operands[1], ending)

    def kernel(self, backend: Backend) -> Callable[..., Any]:
        def product(a: Any, b: Any, turned: tuple[bool, bool]) -> Any:
            dismiss()
            a, b = _turned(a) if turned[0] else a, _turned(b) if turned[1] else b
            if a.ndim != 2 or b.ndim != 2 or backend is not CPU:
                return _multiplied(np if backend is CPU else backend.xp, a, b)
            shape = (a.shape[0], b.shape[1])
            room = CPU.allocate(prod(shape) * a.itemsize)
            return _multiplied(np, a, b, room.view(a.dtype).reshape(shape))

        return product


_PRODUCT = _Product()


def _turned(matrix: Any) -> Any:
    """Return a native matrix transposed and conjugated."""
    return (matrix.conj() if matrix.dtype.kind == "c" else matrix).T


def _turned_product(x1: Tensor, x2: Tensor, first: bool) -> Tensor:
    """Return the product of a matrix and a matrix or vector; either the first or the second is conjugate-transposed."""
    x, terms = x1 if first else x2, x1.shape[0 if first else -1]
    if is_node(x) and terms > 1 and x1.dtype == x2.dtype and not is_recording():  # a view of it would be computed now
        rows, columns = x1.shape[1:] if first else x1.shape[:1], x2.shape[1:] if first else x2.shape[:1]
        turned = (first, not first)
        later = library_later(_PRODUCT, (x1, x2), {"turned": turned}, (*rows, *columns), x1.dtype)
        if later is not None:
            return later
    return matmul(adjoint(x1), x2) if first else matmul(x1, adjoint(x2))


def adjoint(x: Tensor) -> Tensor:
    """Return matrices transposed and conjugated."""
    return conjugate(matrix_transpose(x))


def _matmul_by_x1(g: Tensor, x2: Any, like: Like) -> Tensor:
    """g @ x2^H, with 1-d operands as the row and column they count as."""
    x2 = as_tensor(x2, "matmul", "x2", g)
    if len(like.shape) == 2 and x2.ndim <= 2:  # the most common case, without views in between
        if x2.ndim == 2:
            return _turned_product(g, x2, first=False)
        return cast(Tensor, xt.expand_dims(g, axis=-1) * conjugate(x2))
    if len(like.shape) == 1 and x2.ndim == 2:
        x2 = conjugate(x2)
        return matmul(x2, g) if x2.shape[1] != 1 else cast(Tensor, xt.squeeze(x2, axis=-1) * g)
    rows = _with_axes(g, column=x2.ndim == 1, row=len(like.shape) == 1)
    product = matmul(rows, adjoint(x2 if x2.ndim > 1 else xt.expand_dims(x2, axis=-1)))
    product = product if len(like.shape) > 1 else xt.squeeze(product, axis=-2)
    return sum_to(product, product.shape, like.shape)


def _matmul_by_x2(g: Tensor, x1: Any, like: Like) -> Tensor:
    """x1^H @ g, with 1-d operands as the row and column they count as."""
    x1 = as_tensor(x1, "matmul", "x1", g)
    if x1.ndim == 2 and len(like.shape) <= 2:  # the most common case, without views in between
        return _turned_product(x1, g, first=True)
    if x1.ndim == 1 and len(like.shape) == 2:
        return cast(Tensor, xt.expand_dims(conjugate(x1), axis=-1) * g)  # can be fused, also if rows are mapped
    if len(like.shape) == 2 and x1.ndim > 2:  # all rows at once
        x1, g = (xt.reshape(one, (prod(one.shape[:-1]), one.shape[-1])) for one in (x1, g))
        return _turned_product(x1, g, first=True)
    columns = _with_axes(g, column=len(like.shape) == 1, row=x1.ndim == 1)
    product = matmul(adjoint(x1 if x1.ndim > 1 else xt.expand_dims(x1, axis=0)), columns)
    product = product if len(like.shape) > 1 else xt.squeeze(product, axis=-1)
    return sum_to(product, product.shape, like.shape)


def _with_axes(g: Tensor, *, column: bool, row: bool) -> Tensor:
    """Return the cotangent of a product with the axes that 1-d operands lost."""
    g = xt.expand_dims(g, axis=-1) if column else g
    return xt.expand_dims(g, axis=-2) if row else g


def update_matmul(target: Tensor, other: Operand) -> Tensor:
    """Compute `target = target @ other` into the target's own memory, as `@=` does.

    Raises ValueError if the product has another shape, TypeError if its dtype does not fit.
    """
    try:
        product = matmul(target, other)
    except StrangerError:
        return NotImplemented
    if product.shape != target.shape:
        raise ValueError(expected("matmul", "x2", f"keep x1's shape {target.shape}", f"a product of {product.shape}"))
    check_cast(product.dtype, target.dtype, "matmul")
    target[...] = product
    return target


@differentiable(x=lambda g: xt.matrix_transpose(g), view=True)
def matrix_transpose(x: Tensor, /) -> Tensor:
    """Return a stack of matrices (..., n, m) transposed to (..., m, n), as a view.

    Raises ValueError for fewer than 2 axes. Standard: Linear Algebra Functions, matrix_transpose.
    """
    seen = thin_view(x, "swapaxes", -2, -1)
    if seen is not None:
        return seen
    x = as_tensor(x, "matrix_transpose")
    if x.ndim < 2:
        raise ValueError(expected("matrix_transpose", "x", "have at least 2 axes", f"shape {x.shape}"))
    return rearranged(x, "permute", (*range(x.ndim - 2), x.ndim - 1, x.ndim - 2))


def _tensordot_by_x1(g: Tensor, x2: Any, like: Like, axes: Any) -> Tensor:
    """The cotangent and conj(x2) contracted over x2's own axes, then axes as in x1."""
    x2 = as_tensor(x2, "tensordot", "x2", g)
    first, second = _contracted(like, x2, axes)
    own, others = _left_out(like.ndim, first), _left_out(x2.ndim, second)
    product = xt.tensordot(g, conjugate(x2), axes=(tuple(range(len(own), g.ndim)), others))
    return _in_order(product, (*own, *[first[second.index(a)] for a in sorted(second)]))


def _tensordot_by_x2(g: Tensor, x1: Any, like: Like, axes: Any) -> Tensor:
    """conj(x1) and the cotangent contracted over x1's own axes, then axes as in x2."""
    x1 = as_tensor(x1, "tensordot", "x1", g)
    first, second = _contracted(x1, like, axes)
    others, own = _left_out(x1.ndim, first), _left_out(like.ndim, second)
    product = xt.tensordot(conjugate(x1), g, axes=(others, tuple(range(len(others)))))
    return _in_order(product, (*[second[first.index(a)] for a in sorted(first)], *own))


def _left_out(ndim: int, axes: Sequence[int]) -> tuple[int, ...]:
    return tuple(a for a in range(ndim) if a not in axes)


def _in_order(x: Tensor, places: Sequence[int]) -> Tensor:
    """Return x with its axes moved to the places named for them."""
    return cast(Tensor, xt.permute_dims(x, sorted(range(x.ndim), key=lambda a: places[a])))


@differentiable(x1=_tensordot_by_x1, x2=_tensordot_by_x2)
def tensordot(x1: Tensor, x2: Tensor, /, *, axes: int | tuple[Sequence[int], Sequence[int]] = 2) -> Tensor:
    """Return the sum of products over the given axes of x1 and x2 (an integer: x1's last axes and x2's first).

    Raises ValueError if the contracted lengths differ. Standard: Linear Algebra Functions, tensordot.
    """
    x1, x2 = as_tensors("tensordot", x1=x1, x2=x2)
    first, second = _contracted(x1, x2, axes)
    lengths, others = [x1.shape[a] for a in first], [x2.shape[a] for a in second]
    if lengths != others:
        why = f"{lengths} != {others} along axes {first}, {second}"
        raise ValueError(mismatch("tensordot", x1.shape, x2.shape, why))
    if first and max(x1.nbytes, x2.nbytes) <= DIRECT_BELOW and _is_product_later(x1, x2):
        return _contracted_later(x1, x2, first, second)
    return on((x1, x2), "tensordot", lambda xp, a, b: _contracted_over(xp, a, b, first, second))


def _contracted(x1: Tensor | Like, x2: Tensor | Like, axes: Any) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Return the axes of x1 and of x2 that tensordot sums over."""
    if isinstance(axes, Sequence):
        if len(axes) != 2:
            raise ValueError(expected("tensordot", "axes", "be an integer or two sequences", axes))
        first, second = axes
        return as_axes(first, x1.ndim, "tensordot", "axes"), as_axes(second, x2.ndim, "tensordot", "axes")
    count = as_index(axes, "tensordot", "axes")
    if not 0 <= count <= min(x1.ndim, x2.ndim):
        raise ValueError(expected("tensordot", "axes", f"be in [0, {min(x1.ndim, x2.ndim)}]", count))
    return tuple(range(x1.ndim - count, x1.ndim)), tuple(range(count))


def _vecdot_by_x1(g: Tensor, x2: Any, like: Like, axis: int) -> Tensor:
    x2 = xt.moveaxis(as_tensor(x2, "vecdot", "x2", g), axis, -1)
    return along(conjugate(xt.expand_dims(g, -1)) * x2, like, axis)


def _vecdot_by_x2(g: Tensor, x1: Any, like: Like, axis: int) -> Tensor:
    x1 = xt.moveaxis(as_tensor(x1, "vecdot", "x1", g), axis, -1)
    return along(xt.expand_dims(g, -1) * x1, like, axis)


def along(cotangents: Tensor, like: Like, axis: int) -> Tensor:
    """Return cotangents of vectors along the last axis as those of an operand whose vectors lie along another axis."""
    shape = list(like.shape)
    shape.append(shape.pop(axis))
    summed = sum_to(cotangents, cotangents.shape, tuple(shape))
    return cast(Tensor, xt.moveaxis(xt.broadcast_to(summed, shape), -1, axis))


@differentiable(x1=_vecdot_by_x1, x2=_vecdot_by_x2)
def vecdot(x1: Tensor, x2: Tensor, /, *, axis: int = -1) -> Tensor:
    """Return the dot products conj(x1) . x2 along an axis; the other axes broadcast.

    axis counts from the end in both operands. Raises ValueError if the lengths differ. Standard: Linear Algebra
    Functions, vecdot.
    """
    natives = thin_arrays(x1, x2)
    if natives is not None and natives[0].shape == natives[1].shape:
        found = thin_call(np.vecdot, natives, *natives) if axis == -1 else None
        if found is not None:
            return cast(Tensor, found)
    x1, x2 = as_tensors("vecdot", x1=x1, x2=x2)
    for x, name in ((x1, "x1"), (x2, "x2")):
        NUMERIC.check(x.dtype, "vecdot", name)
        as_axis(axis, x.ndim, "vecdot")
    if x1.shape[axis] != x2.shape[axis]:
        raise ValueError(mismatch("vecdot", x1.shape, x2.shape, f"{x1.shape[axis]} != {x2.shape[axis]}"))
    later = _dot_later(x1, x2)
    return on((x1, x2), "vecdot", lambda xp, a, b: xp.vecdot(a, b, axis=axis)) if later is None else later


def _dot_later(x1: Tensor, x2: Tensor) -> Tensor | None:
    """Return the product of two real vectors as a pending node; None for other operands, or if nothing is recorded."""
    if x1.ndim != 1 or x2.ndim != 1 or x1.dtype != x2.dtype or x1.dtype.kind != "f":
        return None
    return library_later(_PRODUCT, (x1, x2), {"turned": (False, False)}, (), x1.dtype)


def _dot_by_x1(g: Tensor, x2: Any, like: Like) -> Tensor:
    x2 = as_tensor(x2, "dot", "x2", g)
    if like.ndim and x2.ndim:
        return _tensordot_by_x1(g, x2, like, _dot_axes(like, x2))
    return sum_to(g * conjugate(x2), g.shape, like.shape)


def _dot_by_x2(g: Tensor, x1: Any, like: Like) -> Tensor:
    x1 = as_tensor(x1, "dot", "x1", g)
    if like.ndim and x1.ndim:
        return _tensordot_by_x2(g, x1, like, _dot_axes(x1, like))
    return sum_to(g * conjugate(x1), g.shape, like.shape)


def _dot_axes(x1: Tensor | Like, x2: Tensor | Like) -> tuple[list[int], list[int]]:
    return [x1.ndim - 1], [max(x2.ndim - 2, 0)]


@differentiable(x1=_dot_by_x1, x2=_dot_by_x2)
def dot(x1: Operand, x2: Operand) -> Tensor:
    """Return NumPy's `dot`: a matrix product for up to 2 axes, a product with a scalar, otherwise a sum over the last
    axis of x1 and the second-to-last of x2.
    """
    natives = thin_arrays(x1, x2)
    found = None if natives is None else thin_call(np.dot, natives, *natives)
    if found is not None:
        return cast(Tensor, found)
    x1, x2 = as_tensors("dot", x1=x1, x2=x2)
    if min(x1.ndim, x2.ndim) > 0 and max(x1.ndim, x2.ndim) < 3 and _is_product_later(x1, x2):
        return matmul(x1, x2)
    return on((x1, x2), "dot", lambda xp, a, b: xp.dot(a, b))


@differentiable(values=lambda g, offset: xt.linalg.diagonal(g, offset=offset))
def on_diagonal(values: Tensor, offset: int, shape: Sequence[int]) -> Tensor:
    """Return zeros (..., n, m) with values (..., k) on a diagonal."""
    result: Tensor = xt.zeros(shape, dtype=values.dtype, device=values.device)
    diagonal = result.viewed(result.blob.layout.diagonal(offset))
    diagonal[...] = values
    return result
