"""Temporaries: operands of `x += y` and `x[...] = y` that nothing but the statement holds, so that a pass which
computes them on its way need not keep their values.

References tell, as for NumPy's own reuse of temporaries, where a statement writes: a call, as of `x.__iadd__(y)`, has
fewer of its own, so that a variable's would not be noticed. From Python 3.14 on the stack only borrows variables, whose
references it does not count: there, the statement must also have computed its operand itself, according to its byte
code. (C extensions ask PyUnstable_Object_IsUniqueReferencedTemporary, which looks at the topmost frame: ours.)
"""

from __future__ import annotations

import sys
from functools import lru_cache
from types import CodeType, FrameType

from .thin import held_beside

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
    import dis  # loaded by the first large write

    steps = [step for step in dis.get_instructions(code) if step.offset <= at]
    above = _ABOVE.get(steps[-1].opname)
    if above is None or steps[-1].is_jump_target:
        return False
    if [(step.opname, step.arg) for step in steps[-3:-1]] == [("SWAP", 3), ("SWAP", 2)]:
        steps, above = [*steps[:-3], steps[-1]], 0  # `x[i] += y`, which brings its result below x and i
    while above > 0 and len(steps) > 1:  # values that were pushed after the operand
        step = steps[-2]
        if step.is_jump_target or step.opname in ("COPY", "SWAP") or step.opcode in (*dis.hasjrel, *dis.hasjabs):
            return False
        above -= dis.stack_effect(step.opcode, step.arg, jump=False)
        steps.pop(-2)
    return above == 0 and len(steps) > 1 and steps[-2].opname in _COMPUTING
