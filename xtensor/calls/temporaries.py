"""Temporaries: operands of `x += y` and `x[...] = y` that nothing but the statement holds, so that a pass which
computes them on its way need not keep their values; and those of operators, whose memory their results take.

References tell, as for NumPy's own reuse of temporaries, where a statement writes: a call, as of `x.__iadd__(y)`, has
fewer of its own, so that a variable's would not be noticed. From Python 3.14 on the stack only borrows variables, whose
references it does not count: there, the statement must also have computed its operand itself, according to its byte
code. (C extensions ask PyUnstable_Object_IsUniqueReferencedTemporary, which looks at the topmost frame: ours.)
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from functools import lru_cache
from sys import getrefcount
from types import CodeType, FrameType
from typing import TYPE_CHECKING, Any

import numpy as np

from ..devices.cpu import result_dtype
from ..tensor.face import Tensor
from .thin import held_beside

if TYPE_CHECKING:
    from dis import Instruction

_VERSION, _BORROWING = sys.version_info[:2], (3, 14)
_PACKAGE = __name__.partition(".")[0] + "."

# What may compute an operand, which is then on the stack with a reference of its own.
_COMPUTING = frozenset(
    (
        *("BINARY_OP", "BINARY_SLICE", "BINARY_SUBSCR", "CALL", "CALL_FUNCTION_EX", "CALL_KW"),
        *("COMPARE_OP", "UNARY_INVERT", "UNARY_NEGATIVE"),
    )
)

# For instructions that write, how many values lie on the stack above the operand.
_ABOVE = {"BINARY_OP": 0, "STORE_SUBSCR": 2, "STORE_SLICE": 3}


def references(counting: int, in_3_14: int, in_3_15: int) -> int:
    """Return how many references to a temporary there are in a function, as it counts them in this Python: given those
    up to 3.13, and of later versions. 0 for versions that are not known here, where no operand is a temporary.
    """
    return counting if _VERSION < _BORROWING else {(3, 14): in_3_14, (3, 15): in_3_15}.get(_VERSION, 0)


def is_temporary(counted: int, expected: int) -> bool:
    """Return whether a statement's operand is a temporary. counted: the references to it in the function that asks;
    expected: those of a temporary there; there is one more while calls are counted.
    """
    return counted <= expected + held_beside[0] and _is_written_by_a_statement()


def users_frame() -> FrameType:
    """Return the innermost frame outside of this package."""
    frame = sys._getframe(1)
    while frame.f_back is not None and str(frame.f_globals.get("__name__")).startswith(_PACKAGE):
        frame = frame.f_back
    return frame


def _is_written_by_a_statement() -> bool:
    """Return whether the innermost code outside of this package is a statement that writes; where references to
    variables are borrowed, one that writes what it just computed.
    """
    frame = users_frame()
    told = _writes if _VERSION < _BORROWING else _writes_what_it_computes
    return told(frame.f_code, frame.f_lasti)


@lru_cache(maxsize=4096)
def _writes(code: CodeType, at: int) -> bool:
    """Return whether the instruction at an offset writes, rather than calls a function that does."""
    from opcode import opname  # loaded by the first large write

    return opname[code.co_code[at]] in _ABOVE


@lru_cache(maxsize=4096)
def _writes_what_it_computes(code: CodeType, at: int) -> bool:
    """Return whether the instruction at an offset writes the value of one that computes, rather than a variable."""
    steps = _steps_until(code, at)
    above = _ABOVE.get(steps[-1].opname)
    if above is None or steps[-1].is_jump_target:
        return False
    if [(step.opname, step.arg) for step in steps[-3:-1]] == [("SWAP", 3), ("SWAP", 2)]:
        steps, above = [*steps[:-3], steps[-1]], 0  # `x[i] += y`, which brings its result below x and i
    made_by = _made_by(steps[:-1], above)
    return made_by is not None and made_by.opname in _COMPUTING


def _steps_until(code: CodeType, at: int) -> list[Instruction]:
    """Return the instructions of code up to the one at an offset."""
    import dis  # loaded by the first large write

    return [step for step in dis.get_instructions(code) if step.offset <= at]


def _made_by(steps: Sequence[Instruction], above: int) -> Instruction | None:
    """Return the one of some steps that has put a value on the stack, below so many others at their end; None where
    other steps may have done so.
    """
    import dis

    place = len(steps) - 1
    while above > 0 and place >= 0:  # values that were pushed after it
        step = steps[place]
        if step.is_jump_target or step.opname in ("COPY", "SWAP") or step.opcode in (*dis.hasjrel, *dis.hasjabs):
            return None
        above -= dis.stack_effect(step.opcode, step.arg, jump=False)
        place -= 1
    return steps[place] if above == 0 and place >= 0 else None


# ---- operators

# References to an operand that only the user's expression holds, where its memory is asked for: on the left, on the
# right, and on the right of a number; and those to its array.
_HELD_LEFT = _HELD_RIGHT = references(5, 2, 2)
_HELD_REFLECTED, _HELD_ARRAY = references(7, 2, 2), references(5, 2, 2)

# The operators of BINARY_OP come first, before those in place and the subscript.
_OPERATORS = 13


def memory_of_operand(kernel: Any, x1: Any, x2: Any, a: Any, b: Any = None) -> Any:
    """Return the array of an operand that nothing but the user's expression holds, and that the result of an operator
    fits into; None if neither is such a temporary. a, b: the arrays of the operands, or a number; b is None where the
    function needs only one.

    In `2 * x + y` the sum is written where the product is, as in NumPy: less memory has to stay in the caches.
    References are not enough: elements of arrays of objects have as few. So the byte code must show that an operator
    computed it.
    """
    frame = users_frame()
    is_left, is_right = _computed_operands(frame.f_code, frame.f_lasti)
    beside = held_beside[0]
    is_left = is_left and getrefcount(x1) <= _HELD_LEFT + beside and getrefcount(a) <= _HELD_ARRAY
    if is_left and _takes_result(x1, a, kernel, a, b):
        return a
    held = beside + (_HELD_RIGHT if type(x1) is Tensor else _HELD_REFLECTED)
    is_right = is_right and getrefcount(x2) <= held and getrefcount(b) <= _HELD_ARRAY
    return b if is_right and _takes_result(x2, b, kernel, a, b) else None


@lru_cache(maxsize=4096)
def _computed_operands(code: CodeType, at: int) -> tuple[bool, bool]:
    """Return whether the instruction at an offset is an operator whose left operand another operator has just computed,
    and whether its right one is.
    """
    *before, last = _steps_until(code, at)
    if not _is_operator(last) or last.is_jump_target:
        return False, False
    return _is_operator(_made_by(before, 1)), _is_operator(_made_by(before, 0))


def _is_operator(step: Instruction | None) -> bool:
    return step is not None and step.opname == "BINARY_OP" and (step.arg or 0) < _OPERATORS


def _takes_result(x: Any, native: Any, kernel: Any, a: Any, b: Any) -> bool:
    """Return whether the array of an operand is memory that nobody else knows, and fits the result."""
    if type(x) is not Tensor or x._owner is not None or x._blob is not None or native.base is not None:
        return False
    shapes = [one.shape for one in (a, b) if type(one) is np.ndarray and one.ndim]
    if not native.flags.c_contiguous or any(shape != native.shape for shape in shapes):
        return False
    kinds = tuple([one.dtype if type(one) is np.ndarray else type(one) for one in (a, b) if one is not None])
    return bool(result_dtype(kernel, kinds) == native.dtype)
