"""Sums of products by subscripts, two operands at a time: each step is a product of matrices, or of elements and a sum.

The recorded steps can be fused with others around them, and their derivatives are known.

Source: numpy.einsum, numpy.einsum_path.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache, reduce
from math import prod
from typing import Any, NamedTuple, cast

import numpy as np

from ..autograd.rules import xt
from ..base.layout import Shape
from ..plan.costs import EINSUM_MULTIPLIED
from ..tensor.face import Tensor

# The labels of axes, string.ascii_letters; that module takes longer to import than this one.
_LETTERS = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"


class Term(NamedTuple):
    """A tensor with a label for each axis."""

    labels: str
    value: Tensor


class Product(NamedTuple):
    """The meaning of subscripts for operands of given shapes.

    inputs, output: the labels of their axes. lengths: by label. path: which operands each step takes; its result is
    appended to the others. multiplied: the number of multiplications of one loop over all labels.
    """

    inputs: tuple[str, ...]
    output: str
    lengths: dict[str, int]
    path: tuple[tuple[int, ...], ...]

    @property
    def multiplied(self) -> int:
        """The number of products that are summed in one loop over all labels."""
        return prod(self.lengths.values())

    @property
    def is_view(self) -> bool:
        """Whether the result is a view of the only operand."""
        return len(self.inputs) == 1 and set(self.inputs[0]) == set(self.output)

    def of(self, tensors: Sequence[Tensor]) -> Tensor:
        """Return the sum of products of operands of one dtype."""
        terms = [self._taken(labels, x) for labels, x in zip(self.inputs, tensors, strict=True)]
        for places in self.path:
            chosen = [terms[place] for place in places]
            terms = [one for place, one in enumerate(terms) if place not in places]
            stay = self.output + "".join([one.labels for one in terms])
            terms.append(self._joined(chosen, "".join(dict.fromkeys([x for x in self._labels(chosen) if x in stay]))))
        ((labels, value),) = terms
        return _in_order(labels, value, self.output)

    def _labels(self, terms: Sequence[Term]) -> str:
        """Return the labels of terms, those of the result first."""
        return self.output + "".join([one.labels for one in terms])

    def _taken(self, labels: str, x: Tensor) -> Term:
        """Return an operand with distinct labels, by taking diagonals, and without axes that would be broadcast."""
        for label in dict.fromkeys(labels):
            while labels.count(label) > 1:
                first = labels.index(label)
                x = x.diagonal(axis1=first, axis2=labels.index(label, first + 1))
                labels = labels.replace(label, "", 2) + label
        stretched = [axis for axis, label in enumerate(labels) if x.shape[axis] != self.lengths[label]]
        if stretched:
            x = xt.squeeze(x, axis=tuple(stretched))
            labels = "".join([label for axis, label in enumerate(labels) if axis not in stretched])
        return Term(labels, x)

    def _joined(self, terms: list[Term], labels: str) -> Term:
        """Return the sum of products of terms over the labels that do not stay."""
        labels = "".join([x for x in labels if any(x in one.labels for one in terms)])
        alone = [_summed(one, labels + "".join([other.labels for other in terms if other is not one])) for one in terms]
        if len(alone) == 1:
            return alone[0]
        found = self._of_matrices(alone[0], alone[1], labels) if len(alone) == 2 else None
        return _of_elements(alone, labels) if found is None else found

    def _of_matrices(self, a: Term, b: Term, labels: str) -> Term | None:
        """Return two terms as a product of stacks of matrices, or of vectors; None if impossible or no faster."""
        terms = [x for x in a.labels if x in b.labels and x not in labels]
        stack = [x for x in labels if x in a.labels and x in b.labels]
        rows, columns = ([x for x in one.labels if x not in stack + terms] for one in (a, b))
        if rows and columns and labels.index(rows[0]) > labels.index(columns[0]):  # so that the result is in order
            (a, rows), (b, columns) = (b, columns), (a, rows)
        vectors = not rows and not columns
        if not terms or (vectors and len(terms) > 1) or (stack and not (rows and columns)):
            return None
        multiplied = self._size([*stack, *rows, *columns, *terms])
        if a.value.dtype.kind == "b" or (a.value.dtype.kind in "iu" and multiplied < EINSUM_MULTIPLIED):
            return None
        lead, depth = [self.lengths[x] for x in stack], self._size(terms)
        sides = []
        for one, groups in ((a, (stack, rows, terms)), (b, (stack, terms, columns))):
            value = _in_order(one.labels, one.value, [x for group in groups for x in group])
            own = rows if one is a else columns
            matrix = [self._size(own)] * bool(own)
            shape = (*lead, *matrix, depth) if one is a else (*lead, depth, *matrix)
            sides.append(value if value.shape == shape else xt.reshape(value, shape))
        made = [*stack, *rows, *columns]
        found = xt.matmul(*sides)
        return Term("".join(made), xt.reshape(found, tuple([self.lengths[x] for x in made])))

    def _size(self, labels: Sequence[str]) -> int:
        return prod([self.lengths[x] for x in labels])


def product_of(subscripts: str, optimize: Any, shapes: Sequence[Shape]) -> Product | None:
    """Return the meaning of subscripts; None if they are invalid, or mean more than this module handles."""
    way = optimize if isinstance(optimize, (bool, str)) else tuple(optimize)
    try:
        return _product_of(subscripts, way, *shapes)
    except (TypeError, ValueError):
        return None


@lru_cache(256)
def _product_of(subscripts: str, optimize: Any, *shapes: Shape) -> Product | None:
    text = subscripts.replace(" ", "")
    if text.partition("->")[0].count(",") != len(shapes) - 1:
        return None
    *inputs, output = _spelled_out(text, [len(shape) for shape in shapes])
    lengths: dict[str, int] = {}
    for labels, shape in zip(inputs, shapes, strict=True):
        if len(labels) != len(shape) or not set(labels) <= set(_LETTERS):
            return None
        for label, length in zip(labels, shape, strict=True):
            known = lengths.setdefault(label, length)
            if known == 1 or length == known:
                lengths[label] = length
            elif length != 1:
                return None
        if any(len({n for x, n in zip(labels, shape, strict=True) if x == label}) > 1 for label in labels):
            return None  # a diagonal of a matrix whose sides differ
    if not set(output) <= lengths.keys() or len(output) != len(set(output)):
        return None
    return Product(tuple(inputs), output, lengths, _path(text, optimize, shapes))


def _path(subscripts: str, optimize: Any, shapes: Sequence[Shape]) -> tuple[tuple[int, ...], ...]:
    """Return which operands each step takes: the path that NumPy finds, or the one that was asked for."""
    if len(shapes) < 3:
        return (tuple(range(len(shapes))),)
    like = [np.broadcast_to(np.float64(0), shape) for shape in shapes]
    way = list(optimize) if isinstance(optimize, tuple) else optimize or "greedy"
    return tuple(map(tuple, np.einsum_path(subscripts, *like, optimize=way)[0][1:]))


def _spelled_out(subscripts: str, ndims: Sequence[int]) -> list[str]:
    """Return the labels of each operand and of the result, one for each axis: no ellipsis is left."""
    inputs, arrow, output = subscripts.partition("->")
    terms = inputs.split(",")
    unused = [letter for letter in _LETTERS if letter not in subscripts]
    dots = [n + 3 - len(term) if "." in term else 0 for term, n in zip(terms, ndims, strict=True)]
    most = "".join(unused[: max(dots)])
    spelled = [term.replace("...", most[len(most) - count :]) for term, count in zip(terms, dots, strict=True)]
    if not arrow:
        letters = inputs.replace("...", "").replace(",", "")
        output = "..." + "".join(sorted(letter for letter in letters if letters.count(letter) == 1))
    return [*spelled, output.replace("...", most)]


def _in_order(labels: str, value: Tensor, order: Sequence[str]) -> Tensor:
    """Return a tensor whose axes are in another order."""
    places = tuple([labels.index(x) for x in order])
    return value if places == tuple(range(len(places))) else cast(Tensor, xt.permute_dims(value, places))


def _summed(one: Term, stay: str) -> Term:
    """Return a term summed over the labels that do not stay."""
    axes = tuple([axis for axis, label in enumerate(one.labels) if label not in stay])
    if not axes:
        return one
    total = xt.any(one.value, axis=axes) if one.value.dtype.kind == "b" else _sum(one.value, axes)
    return Term("".join([x for x in one.labels if x in stay]), total)


def _sum(x: Tensor, axes: tuple[int, ...]) -> Tensor:
    return cast(Tensor, xt.sum(x, axis=axes, dtype=x.dtype))  # integers wrap, as in NumPy's einsum


def _of_elements(terms: Sequence[Term], labels: str) -> Term:
    """Return the sum of products of elements over all labels that do not stay; these are the last axes of products."""
    every = labels + "".join(dict.fromkeys([x for one in terms for x in one.labels if x not in labels]))
    spread = []
    for own, value in terms:
        ordered = _in_order(own, value, [x for x in every if x in own])
        missing = tuple([axis for axis, label in enumerate(every) if label not in own])
        spread.append(xt.expand_dims(ordered, axis=missing) if missing else ordered)
    return _summed(Term(every, reduce(xt.multiply, spread)), labels)
