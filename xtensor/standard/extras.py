"""Names beyond the standard that existing array code leans on, with NumPy's meaning."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import lru_cache
from math import prod
from typing import Any, cast

from ..autograd.rules import Like, conjugate, sum_to, xt
from ..autograd.tape import differentiable
from ..base.errors import expected
from ..base.layout import Shape, as_index
from ..calls.library import on
from ..plan.costs import EINSUM_MULTIPLIED
from ..tensor.face import Tensor
from ..tensor.operands import as_tensor
from .linear import _multiplied, on_diagonal

__all__ = ["diag", "einsum"]

# What may stand for an axis, as in string.ascii_letters, whose module takes longer to import than this one.
_LETTERS = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"


def _of_diag(g: Tensor, like: Like, k: int) -> Tensor:
    if like.ndim == 2:
        return on_diagonal(g, as_index(k, "diag", "k"), like.shape)
    return cast(Tensor, xt.linalg.diagonal(g, offset=k))


@differentiable(x=_of_diag, view=True)
def diag(x: Tensor, /, k: int = 0) -> Tensor:
    """Return a matrix with the 1-d x on its k-th diagonal, or the k-th diagonal of the 2-d x, as a view.

    Raises ValueError for another number of axes. Source: numpy.diag.
    """
    x, k = as_tensor(x, "diag"), as_index(k, "diag", "k")
    if x.ndim == 2:
        return x.viewed(x.blob.layout.diagonal(k))
    if x.ndim != 1:
        raise ValueError(expected("diag", "x", "have 1 or 2 axes", f"shape {x.shape}"))
    side = x.shape[0] + abs(k)
    return on_diagonal(x, k, (side, side))


class _Computed(Sequence[Tensor]):
    """A sequence whose elements are computed when they are asked for."""

    def __init__(self, count: int, compute: Callable[[int], Tensor]) -> None:
        self._count = count
        self._compute = compute

    def __len__(self) -> int:
        return self._count

    def __getitem__(self, place: Any) -> Any:
        return self._compute(place)


def _of_einsum(g: Tensor, subscripts: str, operands: Sequence[Any], optimize: Any) -> Sequence[Tensor]:
    tensors = [as_tensor(x, "einsum", "operands", g) for x in operands]
    *labels, output = _spelled_out(subscripts, [x.ndim for x in tensors])
    optimize = optimize if isinstance(optimize, (bool, str)) else True  # a path given for other operands

    def by_operand(place: int) -> Tensor:
        others = [(one, conjugate(x)) for n, (one, x) in enumerate(zip(labels, tensors, strict=True)) if n != place]
        return _einsum_back([(output, g), *others], labels[place], tensors[place].shape, optimize)

    return _Computed(len(tensors), by_operand)


def _einsum_back(factors: list[tuple[str, Tensor]], labels: str, shape: Shape, optimize: Any) -> Tensor:
    """Return the sum of products of labelled factors, as the cotangent of an operand with its own labels.

    A label that stands twice in the operand goes on a diagonal; one that stands nowhere else was summed over, and
    stretches.
    """
    unused = iter([letter for letter in _LETTERS if letter not in labels + "".join(one for one, _ in factors)])
    found, missing = "", []
    for axis, label in enumerate(labels):
        if label in found:
            fresh = next(unused)
            identity = xt.eye(shape[axis], dtype=factors[0][1].dtype, device=factors[0][1].device)
            factors.append((label + fresh, identity))
            found += fresh
        elif any(label in one for one, _ in factors) or label in labels[axis + 1 :]:
            found += label
        else:
            missing.append(axis)
    subscripts = ",".join(one for one, _ in factors) + "->" + found
    g = xt.expand_dims(xt.einsum(subscripts, *[x for _, x in factors], optimize=optimize), tuple(missing))
    return sum_to(g, g.shape, shape)


def _spelled_out(subscripts: str, ndims: Sequence[int]) -> list[str]:
    """Return the labels of each operand and of the result, one for each axis: no ellipsis is left."""
    inputs, arrow, output = subscripts.replace(" ", "").partition("->")
    terms = inputs.split(",")
    unused = [letter for letter in _LETTERS if letter not in subscripts]
    dots = [n + 3 - len(term) if "." in term else 0 for term, n in zip(terms, ndims, strict=True)]
    most = "".join(unused[: max(dots)])
    spelled = [term.replace("...", most[len(most) - count :]) for term, count in zip(terms, dots, strict=True)]
    if not arrow:
        letters = inputs.replace("...", "").replace(",", "")
        output = "..." + "".join(sorted(letter for letter in letters if letters.count(letter) == 1))
    return [*spelled, output.replace("...", most)]


@differentiable(operands=_of_einsum)
def einsum(subscripts: str, /, *operands: Tensor, optimize: Any = False) -> Tensor:
    """Return the sum of products that an Einstein subscript such as "ij,jk->ik" names.

    optimize: as numpy.einsum takes it. Long sums of products of two are products of matrices. Raises ValueError where
    subscripts and shapes do not fit. Source: numpy.einsum.
    """
    like = next((x for x in operands if isinstance(x, Tensor)), None)
    tensors = tuple(as_tensor(x, "einsum", "operands", like) for x in operands)
    if not isinstance(subscripts, str):
        raise TypeError(expected("einsum", "subscripts", "be a string", type(subscripts).__name__))

    def run(xp: Any, *natives: Any) -> Any:
        found = _as_product(xp, subscripts, *natives) if len(natives) == 2 else None
        return xp.einsum(subscripts, *natives, optimize=optimize) if found is None else found

    return on(tensors, "einsum", run)


def _as_product(xp: Any, subscripts: str, a: Any, b: Any) -> Any:
    """Return a sum of products of two arrays as a product of stacks of matrices; None where it is none, or short."""
    if a.dtype != b.dtype or a.dtype.kind not in "iufc" or a.dtype.char == "e":
        return None
    if a.size * b.size < EINSUM_MULTIPLIED:
        return None  # before its subscripts are read
    labels = _labels_of_product(subscripts, a.shape, b.shape)
    if labels is None:
        return None
    first, second, output, lengths = labels
    both = [x for x in first if x in second]
    stacked, terms = ([x for x in both if (x in output) == there] for there in (True, False))
    rows, columns = ([x for x in one if x not in both] for one in (first, second))
    made = [*stacked, *rows, *columns]
    if not terms or (made == stacked and (stacked or a.dtype.kind in "iu")):  # NumPy's loops are as fast
        return None
    if sorted(made) != sorted(output) or prod(lengths.values()) < EINSUM_MULTIPLIED:
        return None
    lead, depth = [lengths[x] for x in stacked], prod(lengths[x] for x in terms)
    left = a.transpose([first.index(x) for x in stacked + rows + terms]).reshape(*lead, -1, depth)
    right = b.transpose([second.index(x) for x in stacked + terms + columns]).reshape(*lead, depth, -1)
    found = _multiplied(xp, left, right).reshape([lengths[x] for x in made])
    return found.transpose([made.index(x) for x in output])


@lru_cache(256)
def _labels_of_product(subscripts: str, *shapes: Shape) -> tuple[str, str, str, dict[str, int]] | None:
    """Return the labels of two operands and of the result, and their lengths; None where labels stand twice in one, or
    lengths do not fit.
    """
    if subscripts.count(",") != 1:
        return None
    first, second, output = spelled = _spelled_out(subscripts, [len(shape) for shape in shapes])
    lengths: dict[str, int] = {}
    for labels, shape in zip(spelled, shapes, strict=False):
        fits = len(labels) == len(set(labels)) == len(shape) and set(labels) <= set(_LETTERS)
        if not fits or any(lengths.setdefault(x, n) != n for x, n in zip(labels, shape, strict=True)):
            return None
    return first, second, output, lengths
