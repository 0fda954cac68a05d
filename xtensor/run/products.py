"""Matrix products as calls of the BLAS at its own address, as NumPy's `matmul` would make them.

The same function is called for the same strides, so that results of one call have the same bits; a single sum that
NumPy computes by a loop of its own is computed by such a loop, too. Other products that it computes without the BLAS,
or by functions that are not called here, are left to it. Large products are cut into parts, which our threads share.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import pairwise, product
from math import prod
from typing import NamedTuple

import numpy as np

from ..base.layout import Layout, Shape, contiguous, strides_over
from ..base.threads import SHARE_PAYS, count
from ..codegen.cpu import blas as calls
from ..codegen.cpu.compile import Code, host
from ..devices import blas
from ..devices.blas import can_be_held
from ..devices.cpu import CPU
from ..graph.node import View
from ..plan import costs
from ..plan.layouts import Work
from ..plan.program import Kernel, program
from .maps import map_launch
from .native import SCRATCH, Launch, Making, Place


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
        own = contiguous(self.shape, 1).strides
        return all(n == 1 or step == at for n, step, at in zip(self.shape, self.strides, own, strict=True))

    @property
    def once(self) -> Matrix:
        """The matrices without those that lie where others do."""
        lead = [n if step else 1 for n, step in zip(self.shape[:-2], self.strides, strict=False)]
        return Matrix((*lead, *self.shape[-2:]), self.strides)

    @property
    def packed(self) -> Matrix:
        """A copy of the matrices in C order, of those that lie at one place one copy."""
        *lead, down, along = contiguous(self.once.shape, 1).strides
        strides = [own if step else 0 for own, step in zip(lead, self.strides, strict=False)]
        return Matrix(self.shape, (*strides, down, along))

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


class Calls(NamedTuple):
    """A product as calls of the BLAS at an address, for numbers of a type.

    threads: if several share the calls, the BLAS is held to one meanwhile: its own would wait for work beside ours. The
    calls are the same for any number of threads that take part, and so are the result's bits.
    """

    stacks: tuple[Matrix, Matrix, Matrix]
    form: Form
    address: int
    char: str
    threads: int

    @classmethod
    def of(cls, stacks: tuple[Matrix, Matrix, Matrix], char: str, *, same: bool, whole: bool) -> Calls | None:
        """Return the calls for operands and a result that lie so, None where they are not known.

        same: whether both operands begin at the same address; whole: whether products are never cut into parts.
        """
        form = _form(*stacks[:2], same)
        address = None if form is None else _address(form, char)
        if form is None or address is None:
            return None
        seconds = seconds_of(stacks, char)
        shares = form.kind == "gemm" and not whole and can_be_held() and seconds > SHARE_PAYS
        return cls(stacks, form, address, char, min(count(), 1 + int(seconds / costs.PRODUCT_SHARED)) if shares else 1)

    @property
    def code(self) -> Code:
        return calls.call_of(self.form.kind, self.char)

    @property
    def pointers(self) -> list[tuple[int, int]]:
        """The places of addresses among the words of a call, and which they are: 0 and 1 of the operands, 2 of the
        result.
        """
        order = (1, 0, 2) if self.form.swapped else (0, 1, 2)
        found = enumerate(calls.words_of(self.form.kind), 1)
        return [(at, order[calls.POINTERS.index(name)]) for at, name in found if name in calls.POINTERS]

    def words(self) -> list[list[int]]:
        """Return the words of each call, with offsets in bytes in place of addresses."""
        names, item = calls.words_of(self.form.kind), np.dtype(self.char).itemsize
        found = []
        for starts, own in self._parts():
            words = [self.address, *[own.get(name, self.form.words.get(name, 0)) for name in names]]
            for at, which in self.pointers:
                words[at] = starts[which] * item
            found.append(words)
        return found

    def launch(self, places: Sequence[Place], threads: int) -> Launch:
        """Return the launch for so many threads. places: of the operands and the result."""
        told, words, fillings = self.words(), list[int](), []
        for call in told:
            for at, which in self.pointers:
                fillings.append((len(words) + at, places[which].number, places[which].after + call[at]))
                call[at] = 0
            words += call
        shares = min(threads, len(told), self.threads)
        ends = [n * len(told) // shares for n in range(shares + 1)]
        counts = tuple([end - begin for begin, end in pairwise(ends)])
        return Launch(self.code, counts, len(told[0]), words, fillings, held=self.threads > 1, whole=self.threads == 1)

    def _parts(self) -> list[tuple[Sequence[int], Mapping[str, int]]]:
        """Return, for each call, where its operands and its result begin, and the words that differ from the form's:
        one for each product of a stack, or several where threads share these.
        """
        starts, threads = list(_starts(self.stacks)), self.threads
        if threads == 1 or len(starts) % threads == 0 or len(starts) > costs.STACK_SHARED * threads:
            return [(start, {}) for start in starts]
        a, b, c = self.stacks
        down, across = _grid(c.shape[-2], c.shape[-1], threads)
        parts = list[tuple[Sequence[int], Mapping[str, int]]]()
        for (one, two, three), (top, bottom), (left, right) in product(starts, down, across):
            begins = one + top * a.strides[-2], two + left * b.strides[-1], three + top * c.strides[-2] + left
            parts.append((begins, {"m": bottom - top, "n": right - left}))
        return parts


class ByBlas:
    """A product as calls of the BLAS; large products of matrices are cut into parts, which threads share.

    copied: the operands that are copied first, with their places, as the BLAS does not take them as they lie.
    """

    aligned = False

    def __init__(self, kernel: Kernel, work: Work, made: Calls, copied: Sequence[tuple[int, Matrix]]) -> None:
        (result,) = kernel.results
        self.kernel, self.task, self.seconds = kernel, work.task([kernel]), seconds_of(made.stacks, made.char)
        self._calls, self._numbers, self._copied = made, [*work.trace.arguments[result], result], copied

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
        plain = stacks_of(kernel, work)
        exact, char = work.limits.reproducible, node.dtype.char
        copied = [] if exact else [(n, one) for n, one in enumerate(plain[:2]) if _is_copied(one, plain, char)]
        packed = {n for n, _ in copied}
        a, b, c = stacks = _at_once([one.packed if n in packed else one for n, one in enumerate(plain)], kernel, work)
        many, terms = prod(c.shape[:-2]) > costs.NATIVE_PRODUCTS, prod(a.shape[-2:]) * c.shape[-1]
        thin = 2 <= c.shape[-1] <= costs.THIN_COLUMNS and terms > costs.THIN_LEAST  # matmul.py may have code for it
        most = costs.NATIVE_VECTOR if 1 in c.shape[-2:] else costs.NATIVE_PRODUCT
        if 0 in c.shape or many or thin or terms > most:
            return None
        first, last = kernel.inputs[0], kernel.inputs[-1]
        same = _begin(first, work) == _begin(last, work)
        if same and (copied or (first != last and not work.is_certain)):  # later ones may begin at different addresses
            return None
        made = Calls.of(stacks, char, same=same, whole=work.limits.reproducible)
        return None if made is None else cls(kernel, work, made, copied)

    def launches(self, making: Making) -> list[Launch]:
        """Return the launches: of the copies, and of the product."""
        char, found = self._calls.char, []
        moved = np.dtype(char)
        places = [Place(number) for number in self._numbers]
        for which, one in self._copied:
            own = one.once
            to = Place(SCRATCH, making.scratch.take(prod(own.shape) * moved.itemsize))
            strides = [tuple([step * moved.itemsize for step in lies.strides]) for lies in (own, own.packed)]
            copying = program((moved,), (), (), (), (0,), ())
            found.append(map_launch(copying, own.shape, strides, [places[which], to], (), making))
            places[which] = to
        made = self._calls._replace(threads=1) if making.whole else self._calls
        return [*found, made.launch(places, making.threads)]


def _is_copied(one: Matrix, stacks: tuple[Matrix, Matrix, Matrix], char: str) -> bool:
    """Return whether the BLAS takes a copy of an operand, as NumPy's matmul mostly makes one too, in a product of real
    numbers that is large enough for it to be shared.
    """
    (a, _, c), is_taken = stacks, one.by_rows or one.by_columns
    is_large = char in calls.TYPES and seconds_of(stacks, char) > SHARE_PAYS
    return is_large and not is_taken and min(*a.shape[-2:], *c.shape[-2:]) > 1


def seconds_of(stacks: tuple[Matrix, Matrix, Matrix], char: str) -> float:
    """Return an estimate of the seconds of a product on one thread."""
    a, _, c = stacks
    each = costs.PRODUCT_SECONDS[char.lower()] * (1 if char in calls.TYPES else 4)
    return prod(c.shape) * a.shape[-1] * each


def _grid(rows: int, columns: int, number: int) -> tuple[list[tuple[int, int]], list[tuple[int, int]]]:
    """Return the rows and the columns of about so many parts of a matrix, as square as possible."""
    ways = [n for n in range(1, number + 1) if number % n == 0]
    high = min(reversed(ways), key=lambda n: rows / n + columns * n / number)
    return _cut(rows, high), _cut(columns, number // high)


def _cut(length: int, number: int) -> list[tuple[int, int]]:
    """Return about equal parts of a length, as pairs of their ends: whole registers, except at the end."""
    whole = -(-length // costs.PART_OF_PRODUCT)
    ends = [min(length, n * whole // number * costs.PART_OF_PRODUCT) for n in range(number + 1)]
    return [(begin, end) for begin, end in pairwise(ends) if begin < end]


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


def _at_once(stacks: Sequence[Matrix], kernel: Kernel, work: Work) -> tuple[Matrix, Matrix, Matrix]:
    """Return the operands and the result of a product; a stack times one matrix as a single product of all rows, if
    `product_of` in matmul.py computes it so.
    """
    a, b, c = stacks
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
