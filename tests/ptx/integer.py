"""Integer and bit instructions, and comparisons.

Division by zero and the least integer divided by -1 raise UndefinedError: C++ leaves them undefined, so a kernel that
gets here has forgotten a case.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from .decode import Context, Run, opcode, reader, simple, writer
from .exact import fma32, fma64
from .faults import UndefinedError
from .floating import float_arithmetic, flushed, modes, saturated
from .text import DTYPES, Pair, bits_of

U32, PRED = DTYPES["u32"], DTYPES["pred"]
WIDER = {2: 4, 4: 8}
Binary = Callable[..., np.ndarray]


def wide_of(dtype: np.dtype) -> np.dtype:
    """Return the type of twice the width."""
    return np.dtype(f"{dtype.kind}{WIDER[dtype.itemsize]}")


def high_product(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """Return the upper half of a product."""
    if a.dtype.itemsize < 8:
        wide = wide_of(a.dtype)
        return (a.astype(wide) * b.astype(wide) >> 8 * a.dtype.itemsize).astype(a.dtype)
    if a.dtype.kind == "i":
        found = high_product(a.view(np.uint64), b.view(np.uint64)).view(np.int64)
        return found - np.where(a < 0, b, 0) - np.where(b < 0, a, 0)
    half, mask = np.uint64(32), np.uint64(0xFFFFFFFF)
    a1, a0, b1, b0 = a >> half, a & mask, b >> half, b & mask
    middle = a1 * b0 + (a0 * b0 >> half)
    lower = a0 * b1 + (middle & mask)
    return a1 * b1 + (middle >> half) + (lower >> half)


def trapping(a: np.ndarray, b: np.ndarray) -> None:
    """Raise UndefinedError where a quotient has no value."""
    wrong = np.broadcast_to(b == 0, np.broadcast_shapes(a.shape, b.shape))
    if a.dtype.kind == "i":
        wrong = wrong | ((b == -1) & (a == np.iinfo(a.dtype).min))
    if wrong.any():
        lane = int(np.argmax(wrong))
        pair = [int(np.broadcast_to(operand, wrong.shape)[lane]) for operand in (a, b)]
        raise UndefinedError(f"{pair[0]} divided by {pair[1]}", lane)


def remainder(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """Return the remainder with the dividend's sign."""
    trapping(a, b)
    return np.fmod(a, b)


def quotient(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """Return the quotient rounded towards zero."""
    trapping(a, b)
    return (a - np.fmod(a, b)) // b


INTEGER: dict[str, Binary] = {
    "add": np.add,
    "sub": np.subtract,
    "min": np.minimum,
    "max": np.maximum,
    "div": quotient,
    "rem": remainder,
}
LOGICAL: dict[str, Binary] = {"and": np.bitwise_and, "or": np.bitwise_or, "xor": np.bitwise_xor}


@opcode("add", "sub", "mul", "div", "rem", "min", "max")
def arithmetic(context: Context) -> Run:
    """The four kinds of arithmetic, remainder, minimum and maximum."""
    name, dtype = context.parts[0], context.dtype
    if dtype.kind == "f":
        return float_arithmetic(context)
    if name in ("add", "sub") and "cc" in context.parts:
        return carrying(context)
    if name == "mul":
        return product(context)
    context.allow([])
    return simple(context, INTEGER[name], [dtype, dtype], dtype)


def product(context: Context) -> Run:
    """mul of integers: the lower half, the upper half, or both."""
    (part,) = context.allow(["lo", "hi", "wide"])
    dtype = context.dtype
    if part == "wide":
        wide = wide_of(dtype)
        return simple(context, lambda a, b: a.astype(wide) * b.astype(wide), [dtype, dtype], wide)
    return simple(context, np.multiply if part == "lo" else high_product, [dtype, dtype], dtype)


@opcode("mad")
def multiply_add(context: Context) -> Run:
    """mad of integers, or of floats, where it is fma."""
    dtype = context.dtype
    if dtype.kind == "f":
        return fused(context)
    if "cc" in context.parts:
        return carrying(context)
    (part,) = context.allow(["lo", "hi", "wide"])
    if part == "wide":
        wide = wide_of(dtype)
        return simple(context, lambda a, b, c: a.astype(wide) * b.astype(wide) + c, [dtype, dtype, wide], wide)
    upper = part == "hi"
    return simple(context, lambda a, b, c: (high_product(a, b) if upper else a * b) + c, [dtype] * 3, dtype)


@opcode("addc", "subc", "madc")
def with_carry(context: Context) -> Run:
    """Arithmetic that takes the carry of the instruction before."""
    return carrying(context)


def carrying(context: Context) -> Run:
    """add, sub and mad in chains: they take and leave a carry (for sub: a borrow)."""
    found = context.allow(["cc", "lo", "hi"])
    name, dtype = context.parts[0], bits_of(context.dtype)
    takes, leaves, subtracts = name.endswith("c"), "cc" in found, name.startswith("sub")
    reads = [reader(context, operand, dtype) for operand in context.operands[1:]]
    write = writer(context, context.operands[0], dtype)

    def run(frame: Any, selection: Any) -> None:
        chosen = slice(None) if selection is None else selection
        *factors, last = (np.broadcast_to(read(frame, selection), frame.threads(selection).shape) for read in reads)
        first = factors[0]
        if len(factors) == 2:
            first = high_product(*factors) if "hi" in found else factors[0] * factors[1]
        carry = frame.carry[chosen].astype(dtype) if takes else np.zeros(first.shape, dtype)
        once = first - last if subtracts else first + last
        twice = once - carry if subtracts else once + carry
        if leaves:
            over = (first < last) | (once < carry) if subtracts else (once < first) | (twice < once)
            frame.carry[chosen] = over
        write(frame, selection, twice)

    return run


@opcode("fma")
def fused(context: Context) -> Run:
    """a * b + c rounded once."""
    mode, flush, saturate = modes(context)
    dtype = context.dtype
    compute = {4: fma32, 8: fma64}[dtype.itemsize]
    if not (flush or saturate):
        return simple(context, lambda a, b, c: compute(a, b, c, mode), [dtype] * 3, dtype)

    def fma(*operands: np.ndarray) -> np.ndarray:
        values = [flushed(operand, flush) for operand in operands]
        return saturated(flushed(compute(*values, mode), flush), saturate)

    return simple(context, fma, [dtype] * 3, dtype)


# Bits


@opcode("and", "or", "xor")
def logical(context: Context) -> Run:
    """Bit by bit, or of predicates."""
    return simple(context, LOGICAL[context.parts[0]], [context.dtype] * 2, context.dtype)


@opcode("not")
def complement(context: Context) -> Run:
    """All bits turned."""
    return simple(context, np.invert, [context.dtype], context.dtype)


@opcode("cnot")
def logical_not(context: Context) -> Run:
    """1 where the operand is 0, else 0."""
    return simple(context, lambda a: (a == 0).astype(a.dtype), [context.dtype], context.dtype)


def shifted_left(a: np.ndarray, by: np.ndarray) -> np.ndarray:
    """Shift; by the width or more, nothing is left."""
    width = 8 * a.dtype.itemsize
    return np.where(by < width, a << np.minimum(by, width - 1).astype(a.dtype), a.dtype.type(0))


def shifted_right(a: np.ndarray, by: np.ndarray) -> np.ndarray:
    """Shift; by the width or more, the sign (or nothing) is left."""
    width = 8 * a.dtype.itemsize
    found = a >> np.minimum(by, width - 1).astype(a.dtype)
    return found if a.dtype.kind == "i" else np.where(by < width, found, a.dtype.type(0))


@opcode("shl", "shr")
def shift(context: Context) -> Run:
    """Shift by a 32-bit number."""
    compute = shifted_left if context.parts[0] == "shl" else shifted_right
    return simple(context, compute, [context.dtype, U32], context.dtype)


@opcode("shf")
def funnel(context: Context) -> Run:
    """Shift a pair of 32-bit numbers and return its upper (left) or lower (right) half."""
    found = context.allow(["l", "r", "wrap", "clamp"])

    def compute(low: np.ndarray, high: np.ndarray, by: np.ndarray) -> np.ndarray:
        by = (by & 31 if "wrap" in found else np.minimum(by, 32)).astype(np.uint64)
        both = high.astype(np.uint64) << np.uint64(32) | low
        if "r" in found:
            return (both >> by).astype(U32)
        return ((both << by) >> np.uint64(32)).astype(U32) if "wrap" in found else _left(both, by)

    return simple(context, compute, [U32] * 3, context.dtype)


def _left(both: np.ndarray, by: np.ndarray) -> np.ndarray:
    return np.where(by == 32, both, (both << by) >> np.uint64(32)).astype(U32)


@opcode("prmt")
def permute(context: Context) -> Run:
    """Choose four of eight bytes; bit 3 of a choice repeats the byte's sign."""

    def compute(a: np.ndarray, b: np.ndarray, choice: np.ndarray) -> np.ndarray:
        both = b.astype(np.uint64) << np.uint64(32) | a
        result = np.zeros(np.broadcast_shapes(both.shape, choice.shape), np.uint64)
        for place in range(4):
            nibble = (choice >> np.uint32(4 * place)).astype(np.uint64) & np.uint64(15)
            byte = both >> (nibble & np.uint64(7)) * np.uint64(8) & np.uint64(255)
            sign = np.where(byte >= 128, np.uint64(255), np.uint64(0))
            result |= np.where(nibble >= 8, sign, byte) << np.uint64(8 * place)
        return result.astype(U32)

    context.allow([])
    return simple(context, compute, [U32] * 3, U32)


@opcode("lop3")
def three_logical(context: Context) -> Run:
    """Any function of three bits, given by its table."""
    context.allow([])
    table = context.operands.pop().value

    def compute(a: np.ndarray, b: np.ndarray, c: np.ndarray) -> np.ndarray:
        result = np.zeros(np.broadcast_shapes(a.shape, b.shape, c.shape), U32)
        for row in range(8):
            if table >> row & 1:
                picks = zip((a, b, c), (row & 4, row & 2, row & 1), strict=True)
                result |= np.bitwise_and.reduce(np.broadcast_arrays(*(x if on else ~x for x, on in picks)))
        return result

    return simple(context, compute, [U32] * 3, U32)


def mask_of(length: np.ndarray, dtype: np.dtype) -> np.ndarray:
    """Return numbers with so many lowest bits."""
    return ~shifted_left(np.full(length.shape, -1 % 2 ** (8 * dtype.itemsize), dtype), length)


@opcode("bfe")
def extract(context: Context) -> Run:
    """A field of bits; a signed one is extended by its highest bit."""
    dtype, bits = context.dtype, bits_of(context.dtype)
    width = 8 * dtype.itemsize

    def compute(a: np.ndarray, start: np.ndarray, length: np.ndarray) -> np.ndarray:
        start, length = start & 255, length & 255
        field = shifted_right(a, start) if dtype.kind == "i" else shifted_right(a.view(bits), start)
        kept = field.view(bits) & mask_of(length, bits)
        if dtype.kind == "i":
            last = np.minimum(start.astype(np.int64) + length - 1, width - 1).astype(np.uint32)
            sign = (shifted_right(a.view(bits), last) & bits.type(1)) * (length > 0).astype(bits)
            kept = kept | np.where(sign == 1, ~mask_of(length, bits), bits.type(0))
        return kept.view(dtype)

    return simple(context, compute, [dtype, U32, U32], dtype)


@opcode("bfi")
def insert(context: Context) -> Run:
    """Put the lowest bits of a into a field of b."""
    dtype = context.dtype

    def compute(a: np.ndarray, b: np.ndarray, start: np.ndarray, length: np.ndarray) -> np.ndarray:
        field = shifted_left(mask_of(length & 255, dtype), start & 255)
        return b & ~field | shifted_left(a, start & 255) & field

    return simple(context, compute, [dtype, dtype, U32, U32], dtype)


def highest_bit(a: np.ndarray) -> np.ndarray:
    """Return the number of the highest 1, -1 for 0."""
    found = np.full(a.shape, -1, np.int64)
    for bit in range(8 * a.dtype.itemsize):
        found = np.where(a >> a.dtype.type(bit) & a.dtype.type(1) == 1, bit, found)
    return found


def reversed_bits(a: np.ndarray) -> np.ndarray:
    """Return the bits in the opposite order."""
    width, one = 8 * a.dtype.itemsize, a.dtype.type(1)
    found = np.zeros_like(a)
    for bit in range(width):
        found |= (a >> a.dtype.type(bit) & one) << a.dtype.type(width - 1 - bit)
    return found


BITS: dict[str, Callable[[np.ndarray], np.ndarray]] = {
    "popc": lambda a: np.bitwise_count(a).astype(U32),
    "clz": lambda a: (8 * a.dtype.itemsize - 1 - highest_bit(a)).astype(U32),
}


@opcode("popc", "clz")
def count(context: Context) -> Run:
    """The number of ones, or of leading zeros."""
    return simple(context, BITS[context.parts[0]], [context.dtype], U32)


@opcode("brev")
def reverse(context: Context) -> Run:
    """Bits in the opposite order."""
    return simple(context, reversed_bits, [context.dtype], context.dtype)


@opcode("bfind")
def find(context: Context) -> Run:
    """The number of the highest bit that is no sign bit; how far that is from the left with `.shiftamt`."""
    found, dtype = context.allow(["shiftamt"]), context.dtype

    def compute(a: np.ndarray) -> np.ndarray:
        bits = (a ^ (a >> 8 * dtype.itemsize - 1)).view(bits_of(dtype)) if dtype.kind == "i" else a
        place = highest_bit(bits)
        if "shiftamt" in found:
            place = np.where(place < 0, place, 8 * dtype.itemsize - 1 - place)
        return (place & 0xFFFFFFFF).astype(U32)

    return simple(context, compute, [dtype], U32)


@opcode("sad")
def distance(context: Context) -> Run:
    """c + |a - b|."""
    dtype = context.dtype
    return simple(context, lambda a, b, c: c + np.where(a < b, b - a, a - b), [dtype] * 3, dtype)


# Comparisons

ORDER: dict[str, Binary] = {
    "eq": np.equal,
    "ne": np.not_equal,
    "lt": np.less,
    "le": np.less_equal,
    "gt": np.greater,
    "ge": np.greater_equal,
    "lo": np.less,
    "ls": np.less_equal,
    "hi": np.greater,
    "hs": np.greater_equal,
}


def comparison(name: str, dtype: np.dtype, flush: bool) -> Binary:
    """Return a comparison; of floats, those ending with u hold for NaN and the others do not."""
    if dtype.kind != "f":
        return ORDER[name]
    if name in ("num", "nan"):
        return lambda a, b: (np.isnan(a) | np.isnan(b)) == (name == "nan")
    unordered = name.endswith("u")
    order = ORDER[name[:2]]

    def compare(a: np.ndarray, b: np.ndarray) -> np.ndarray:
        either = np.isnan(a) | np.isnan(b)
        found = order(flushed(a, flush), flushed(b, flush))
        return found | either if unordered else found & ~either

    return compare


@opcode("setp", "set")
def compare(context: Context) -> Run:
    """Compare, and join the result with a predicate if one is given."""
    setp = context.parts[0] == "setp"
    output = PRED if setp else DTYPES[context.parts[-2]]
    inner = [part for part in context.parts[1 : -1 if setp else -2] if part != "ftz"]
    order = comparison(inner[0], context.dtype, "ftz" in context.parts)
    join = LOGICAL[inner[1]] if len(inner) > 1 else None
    first, second = (context.operands[0], None)
    if isinstance(first, Pair):
        first, second = first
    reads = [reader(context, operand, context.dtype) for operand in context.operands[1:3]]
    third = reader(context, context.operands[3], PRED) if join else None
    writes = writer(context, first, output), writer(context, second, output)

    def run(frame: Any, selection: Any) -> None:
        found = order(*(read(frame, selection) for read in reads))
        for write, value in zip(writes, (found, ~found), strict=True):
            joined = join(value, third(frame, selection)) if join else value
            write(frame, selection, joined if setp else _as_number(joined, output))

    return run


def _as_number(truth: np.ndarray, dtype: np.dtype) -> np.ndarray:
    """Return what `set` makes of truth: 1.0, or all bits."""
    return truth.astype(dtype) if dtype.kind == "f" else np.where(truth, -1, 0).astype(np.int64).astype(dtype)


@opcode("selp")
def select(context: Context) -> Run:
    """The first operand where the predicate holds, else the second."""
    dtype = context.dtype
    return simple(context, lambda a, b, p: np.where(p, a, b), [dtype, dtype, PRED], dtype)


@opcode("slct")
def select_by_sign(context: Context) -> Run:
    """The first operand where the third is not negative, else the second."""
    dtype, control = DTYPES[context.parts[-2]], context.dtype
    return simple(context, lambda a, b, c: np.where(c >= 0, a, b), [dtype, dtype, control], dtype)
