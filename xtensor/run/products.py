"""Matrix products as launches: calls of the BLAS at its own address, as NumPy's `matmul` would make them.

The same function is called for the same strides, so that results have the same bits; a single sum that NumPy computes
by a loop of its own is computed by such a loop, too. Other products that it computes without the BLAS, or by functions
that are not called here, are left to it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import product
from math import prod
from typing import NamedTuple

from ..base.layout import Layout, Shape, contiguous, strides_over
from ..codegen.cpu import blas as calls
from ..codegen.cpu.compile import host
from ..devices import blas
from ..devices.cpu import CPU
from ..graph.node import View
from ..plan import costs
from ..plan.layouts import Work
from ..plan.program import Kernel
from .native import Launch, Making


class Matrix(NamedTuple):
    """An operand as a stack of matrices: its lengths and strides in elements; the last two axes are a matrix's."""

    shape: Shape
    strides: Shape

    @property
    def by_rows(self) -> bool:
        """Whether the BLAS takes the matrices as they lie: the elements of a row are contiguous."""
        return self.strides[-1] == 1 and self.strides[-2] >= self.shape[-1]

    @property
    def by_columns(self) -> bool:
        """Whether the BLAS takes the matrices as transposed ones."""
        return self.turned.by_rows

    @property
    def is_packed(self) -> bool:
        """Whether the matrices lie in C order, one after the other."""
        packed = contiguous(self.shape, 1).strides
        return all(n == 1 or step == own for n, step, own in zip(self.shape, self.strides, packed, strict=True))

    @property
    def rows(self) -> Matrix:
        """All rows as one matrix, if they are packed."""
        return Matrix((prod(self.shape[:-1]), self.shape[-1]), (self.shape[-1], 1))

    @property
    def turned(self) -> Matrix:
        """The matrices transposed."""
        return Matrix(*[(*one[:-2], one[-1], one[-2]) for one in self])


class Form(NamedTuple):
    """Which function of the BLAS computes a product: its kind, and its words without the addresses of operands.

    swapped: whether its first operand is the product's second.
    """

    kind: str
    words: Mapping[str, int]
    swapped: bool = False


class ByBlas:
    """A product as calls of the BLAS."""

    seconds, aligned = 0.0, False

    def __init__(self, kernel: Kernel, work: Work, form: Form, address: int) -> None:
        (result,) = kernel.results
        node, self._stacks = work.trace.values[result], _at_once(kernel, work)
        (a, _, c), char = self._stacks, node.dtype.char
        seconds = costs.PRODUCT_SECONDS[char.lower()] * (4 if node.dtype.kind == "c" else 1)
        self.kernel, self.task = kernel, work.task([kernel])._replace(alone=prod(c.shape) * a.shape[-1] * seconds)
        self._form, self._address = form, address
        self._char, self._itemsize = node.dtype.char, node.dtype.itemsize
        first, second = work.trace.arguments[result]
        self._operands = (second, first, result) if form.swapped else (first, second, result)

    @classmethod
    def of(cls, kernel: Kernel, work: Work) -> ByBlas | None:
        """Return a product that machine code is to compute by calling the BLAS; None for other kernels."""
        node = work.trace.values[kernel.results[0]]
        if node.op.name != "matmul" or work.limits.engine != "llvm" or work.device.backend is not CPU or host() is None:
            return None
        if node.dtype.char not in calls.NUMBERS or kernel.results[0] in work.into:
            return None
        if node.dtype.kind == "c" and any(node.params["turned"]):  # transposed and conjugated
            return None
        a, b, c = _at_once(kernel, work)
        many, count = prod(c.shape[:-2]) > costs.NATIVE_PRODUCTS, prod(a.shape[-2:]) * c.shape[-1]
        thin = 2 <= c.shape[-1] <= costs.THIN_COLUMNS and count > costs.THIN_LEAST  # matmul.py may have code for it
        most = costs.NATIVE_VECTOR if 1 in c.shape[-2:] else costs.NATIVE_PRODUCT
        if 0 in c.shape or many or thin or count > most:
            return None
        first, last = kernel.inputs[0], kernel.inputs[-1]
        same = _begin(first, work) == _begin(last, work)
        if same and first != last and not work.is_certain:  # later operands may begin at different addresses
            return None
        form = _form(a, b, same)
        address = None if form is None else _address(form, node.dtype.char)
        return None if form is None or address is None else cls(kernel, work, form, address)

    def launches(self, making: Making) -> list[Launch]:
        """Return the launch."""
        names, order = calls.words_of(self._form.kind), (1, 0, 2) if self._form.swapped else (0, 1, 2)
        words: list[int] = []
        fillings = []
        starts = list(_starts(self._stacks))
        for start in starts:
            words.append(self._address)
            for name in names:
                if name in calls.POINTERS:
                    place = calls.POINTERS.index(name)
                    fillings.append((len(words), self._operands[place], start[order[place]] * self._itemsize))
                words.append(self._form.words.get(name, 0))
        code = calls.call_of(self._form.kind, self._char)
        return [Launch(code, (len(starts),), 1 + len(names), words, fillings)]


def _address(form: Form, char: str) -> int | None:
    """Return the address of the BLAS's function, 0 if none is called; None if it is not known."""
    is_complex = char not in calls.TYPES
    if form.kind == "sum":
        return None if is_complex else 0
    letter = {"f": "s", "d": "d", "F": "c", "D": "z"}[char]
    return blas.address(letter + ("dotu_sub" if is_complex and form.kind == "dot" else form.kind)) or None


def stacks_of(kernel: Kernel, work: Work) -> tuple[Matrix, Matrix, Matrix]:
    """Return the operands and the result of a product; a vector on the left is a row, on the right a column."""
    (result,) = kernel.results
    node, (first, second) = work.trace.values[result], work.trace.arguments[result]
    metas, itemsize = work.metas, work.metas[result].dtype.itemsize
    plain = [
        Matrix(metas[n].shape, tuple([s // itemsize for s in metas[n].layout.strides])) for n in (first, second, result)
    ]
    a, b, c = plain
    if len(b.shape) == 1:
        b, c = (Matrix((*one.shape, 1), (*one.strides, 1)) for one in (b, c))
    if len(a.shape) == 1:
        a = Matrix((1, *a.shape), (1, *a.strides))
        c = Matrix((*c.shape[:-1], 1, c.shape[-1]), (*c.strides[:-1], 1, c.strides[-1]))
    turned = node.params["turned"]
    return a.turned if turned[0] else a, b.turned if turned[1] else b, c


def _at_once(kernel: Kernel, work: Work) -> tuple[Matrix, Matrix, Matrix]:
    """Return the operands and the result; a stack times one matrix is a single product of all rows if `product_of` in
    matmul.py computes it so.
    """
    a, b, c = stacks_of(kernel, work)
    given = work.metas[work.trace.arguments[kernel.results[0]][1]].shape  # of b, before a vector became a column
    is_counted = max(prod(a.shape), prod(b.shape)) >= costs.PRODUCT_LEAST
    if len(a.shape) < 3 or len(given) != 2 or not is_counted or not (a.is_packed and c.is_packed):
        return a, b, c
    return a.rows, b, c.rows


def _begin(number: int, work: Work) -> tuple[int, int]:
    """Return where a value begins: its memory, as an address or a number, and the offset there in bytes."""
    after = work.metas[number].layout.offset
    while number not in work.begins and type(getattr(work.trace.values[number], "op", None)) is View:
        (number,) = work.trace.arguments[number]
    return work.begins.get(number, -number), after


def _form(a: Matrix, b: Matrix, same: bool) -> Form | None:
    """Return how NumPy's matmul computes a product of stacks, None where it does not call one of these functions.

    same: whether both begin at the same address, so that the product may be symmetric.
    """
    (m, k), p = a.shape[-2:], b.shape[-1]
    if m == 1 and p == 1:
        steps = {"n": k, "a.step": a.strides[-1], "b.step": b.strides[-2]}
        return Form("dot" if min(steps["a.step"], steps["b.step"]) > 0 else "sum", steps)
    if k == 0:
        plain = {"a.turned": calls.PLAIN, "b.turned": calls.PLAIN, "a.step": 1, "b.step": p}
        return Form("gemm", {"order": calls.ROWS, "m": m, "n": p, "k": 0, "c.step": p, **plain})
    if k == 1:
        return None
    if m == 1:
        return _by_vector(b.turned, a.strides[-1], 1, swapped=True)
    if p == 1:
        return _by_vector(a, b.strides[-2], 1, swapped=False)
    if not (a.by_rows or a.by_columns) or not (b.by_rows or b.by_columns):
        return None
    if same and a == b.turned:
        words = {"triangle": calls.UPPER, "turned": calls.PLAIN if a.by_rows else calls.TURNED}
        steps = {"a.step": a.strides[-2] if a.by_rows else a.strides[-1], "c.step": p}
        return Form("syrk", {"order": calls.ROWS, "n": m, "k": k, **words, **steps})
    words = {"order": calls.ROWS, "m": m, "n": p, "k": k, "c.step": p}
    for name, one in (("a", a), ("b", b)):
        words[f"{name}.turned"] = calls.PLAIN if one.by_rows else calls.TURNED
        words[f"{name}.step"] = one.strides[-2] if one.by_rows else one.strides[-1]
    return Form("gemm", words)


def _by_vector(matrix: Matrix, step: int, result: int, *, swapped: bool) -> Form | None:
    """Return how a matrix is multiplied with a vector. step, result: the strides of the vector and of the result."""
    if not (matrix.by_rows or matrix.by_columns) or step < 1:
        return None
    (m, n), (down, along) = matrix.shape[-2:], matrix.strides[-2:]
    lies = {"order": calls.COLUMNS, "a.step": down} if matrix.by_rows else {"order": calls.ROWS, "a.step": along}
    return Form("gemv", {**lies, "turned": calls.TURNED, "m": n, "n": m, "b.step": step, "c.step": result}, swapped)


def _starts(stacks: tuple[Matrix, Matrix, Matrix]) -> Iterator[list[int]]:
    """Yield the offsets, in elements, of the matrices of the three stacks, for each product."""
    lead = stacks[2].shape[:-2]
    steps = [strides_over(Layout(one.shape[:-2], one.strides[:-2]), lead) for one in stacks]
    for position in product(*map(range, lead)):
        yield [sum([i * step for i, step in zip(position, one, strict=True)]) for one in steps]
