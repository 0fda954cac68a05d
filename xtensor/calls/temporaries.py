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
from opcode import opname
from sys import getrefcount
from types import CodeType, FrameType, ModuleType
from typing import Any, NamedTuple
from weakref import getweakrefcount, ref

import numpy as np

from ..devices.cpu import result_dtype
from ..tensor.face import Tensor
from .bytecode import LABEL, Step, by_place, callee_of, maker_of, place_of, steps_of
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


@by_place
def _writes(code: CodeType, at: int) -> bool:
    """Return whether the instruction at an offset writes, rather than calls a function that does."""
    return opname[code.co_code[at]] in _ABOVE


@by_place
def _writes_what_it_computes(code: CodeType, at: int) -> bool:
    """Return whether the instruction at an offset writes the value of one that computes, rather than a variable."""
    steps = steps_of(code)
    place = place_of(steps, at)
    above = _ABOVE.get(steps[place].name)
    if above is None or steps[place - 1].name == LABEL:
        return False
    if [step[1:3] for step in steps[place - 2 : place]] == [("SWAP", 3), ("SWAP", 2)]:
        place, above = place - 2, 0  # `x[i] += y`, which brings its result below x and i
    maker = maker_of(steps, place, above)
    return maker is not None and steps[maker].name in _COMPUTING


# ---- operators


class Held(NamedTuple):
    """References to an operand that only the user's expression holds, where its memory is asked for: to a tensor, to
    one on the right of something else, and to the arrays of a left and of a right operand.
    """

    tensor: int
    reflected: int
    left: int
    right: int


# From this version on local variables can be looked at; before, that keeps references to all their values.
_PROXIES = (3, 13)

# The operators of BINARY_OP come first, before those in place and the subscript.
_OPERATORS = 13


def memory_of_operand(
    kernel: Any, operands: tuple[Any, ...], natives: Sequence[Any], held: Held, frame: FrameType | None
) -> Any:
    """Return the array of an operand that nothing but the user's expression holds, and that the result of an operator
    fits into; None if neither is such a temporary. natives: the arrays of the operands, or numbers; only those that the
    function needs. frame: that of `operators_frame`.

    In `2 * x + y` the sum is written where the product is, as in NumPy: less memory has to stay in the caches.
    References are not enough: elements of arrays of objects have as few. So the byte code must show that an operator
    computed it, which is then known to have made this array, or a function of this package.
    """
    most = held.tensor + held_beside[0]
    for place in range(len(natives)):
        if place == 1 and type(operands[0]) is not Tensor:
            most = held.reflected + held_beside[0]
        if getrefcount(operands[place]) <= most and getrefcount(natives[place]) <= held[2 + place]:
            native = natives[place]
            if _takes_result(operands[place], native, kernel, natives) and _is_computed(place, native, frame):
                return native
    return None


# The files through which an operator comes here. Their callers are looked at: code of this package that computes with
# variables of its own, while the user's is at an operator, must not lose their values.
_OF_OPERATORS = frozenset((__name__, *[f"{_PACKAGE}calls.{name}" for name in ("op", "rows", "thin")]))


def operators_frame() -> FrameType | None:
    """Return the frame of the user's code that is at an operator; None where other code of this package is."""
    frame = sys._getframe(1)
    while frame.f_globals.get("__name__") in _OF_OPERATORS and frame.f_back is not None:
        frame = frame.f_back
    return None if str(frame.f_globals.get("__name__")).startswith(_PACKAGE) else frame


# The array that an operator has made last, by its frame and its offset there, for so many.
_made: dict[tuple[int, int], ref[Any]] = {}
_MOST_MADE = 64


def note_made(native: Any, frame: FrameType | None) -> None:
    """Note the array that the operator in a frame has made, as its value may be an operand of the next one."""
    if frame is not None:
        if len(_made) >= _MOST_MADE:
            _made.clear()
        _made[id(frame), _makers(frame.f_code, frame.f_lasti).offset] = ref(native)


def _is_computed(place: int, native: Any, frame: FrameType | None) -> bool:
    """Return whether the left (0) or right operand (1) of the operator in a frame has just been computed there.

    Where it is not what the operator before it has made last, that operator made several: in an array of objects, which
    may be read again.
    """
    maker = None if frame is None else _makers(frame.f_code, frame.f_lasti)[:2][place]
    if maker is None or frame is None:
        return False
    if maker.name != "BINARY_OP":
        return _is_ours(maker, frame)
    made = _made.pop((id(frame), maker.offset), None)
    return made is not None and made() is native


class Makers(NamedTuple):
    """What has computed the operands of an operator: other operators, or what loads the variable by which a function
    was found; None for other operands and instructions. offset: of the operator itself.
    """

    left: Step | None
    right: Step | None
    offset: int


@by_place
def _makers(code: CodeType, at: int) -> Makers:
    """Return what has computed the operands of the operator at an offset."""
    steps = steps_of(code)
    place = place_of(steps, at)
    if not _is_operator(steps[place]) or steps[place - 1].name == LABEL:
        return Makers(None, None, steps[place].offset)
    left, right = [_maker(steps, maker_of(steps, place, above)) for above in (1, 0)]
    return Makers(left, right, steps[place].offset)


def _maker(steps: Sequence[Step], place: int | None) -> Step | None:
    if place is None or _is_operator(steps[place]):
        return None if place is None else steps[place]
    return callee_of(steps, place) if steps[place].name in ("CALL", "CALL_KW") else None


def _is_operator(step: Step) -> bool:
    return step.name == "BINARY_OP" and step.value < _OPERATORS


def _is_ours(maker: Step, frame: FrameType) -> bool:
    """Return whether a function is found by way of a module of this package, or is a tensor's method."""
    if maker.name in ("LOAD_GLOBAL", "LOAD_NAME"):
        value = frame.f_globals.get(maker.value)
    elif _VERSION >= _PROXIES:
        value = frame.f_locals.get(maker.value)
    else:
        return False
    is_module = type(value) is ModuleType and (value.__name__ + ".").startswith(_PACKAGE)
    return is_module or type(value) is Tensor


def _takes_result(x: Any, native: Any, kernel: Any, natives: Sequence[Any]) -> bool:
    """Return whether the array of an operand is memory that nobody else knows, and fits the result."""
    if type(x) is not Tensor or x._owner is not None or x._blob is not None or native.base is not None:
        return False
    if getweakrefcount(x):  # other threads could get hold of it while it is written to
        return False
    shapes = [one.shape for one in natives if type(one) is np.ndarray and one.ndim]
    if not native.flags.c_contiguous or any(shape != native.shape for shape in shapes):
        return False
    kinds = tuple([one.dtype if type(one) is np.ndarray else type(one) for one in natives])
    return bool(result_dtype(kernel, kinds) == native.dtype)
