"""Functions that are recorded as one node: compositions whose steps are known from an earlier call.

The steps that a composition records depend on the kinds of its arguments alone, so those of its first call are the
steps of all later ones, too; see graph.node.Macro.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import wraps
from math import prod
from typing import Any, TypeVar, cast

from ..autograd.tape import active, steps_of
from ..base.caches import make_room
from ..base.options import settings, step_by_step, thin_closed
from ..graph.node import Macro, MacroStep, Node
from ..plan.costs import DIRECT_BELOW, LAUNCH_PAYS
from ..run.executor import at_once
from ..storage.blob import TBlob
from ..tensor.face import Tensor
from .composed import REMEMBERED, CapturedCalls, told_apart
from .record import enter, exposed_memory, pays_at_once, read_later, worth_recording

F = TypeVar("F", bound=Callable[..., Any])


def macro(function: F, /) -> F:
    """Have a function of tensors recorded as one node when it is called again with arguments of the same kinds.

    function: returns one tensor; errors and recorded steps depend only on the shapes and dtypes of tensors and on the
    other arguments, never on tensors' values.
    """
    plain: Callable[..., Tensor] = function
    known: dict[Any, Macro | None] = {}
    captured = CapturedCalls(plain, DIRECT_BELOW)

    @wraps(function)
    def call(*args: Any, **kwargs: Any) -> Tensor:
        at_hand = captured.call(args, kwargs)
        if at_hand is not None:
            return at_hand
        kinds = None if thin_closed[0] else _kinds(args, kwargs)
        if kinds is None and not thin_closed[0]:
            exposed = exposed_memory((*args, *kwargs.values()))
            nbytes = max([x.nbytes for x in (*args, *kwargs.values()) if type(x) is Tensor], default=0)
            if exposed and pays_at_once(settings(), nbytes, LAUNCH_PAYS, pending=False):
                with at_once(exposed):
                    return call(*args, **kwargs)
        if kinds is None or (active[0] and steps_of((*args, *kwargs.values())) is not None):
            return plain(*args, **kwargs)
        key, inputs, device, pending = kinds
        if key not in known:
            large = any(prod(value.shape) * value.dtype.itemsize > DIRECT_BELOW for value in inputs)
            result = step_by_step(plain, *args, **kwargs) if large else plain(*args, **kwargs)
            if type(result) is Tensor and type(result._content) is Node:
                make_room(known, REMEMBERED)
                known[key] = _macro_of(function.__name__, result._content, inputs)
            return result
        found, limits = known[key], settings()
        if found is None or not worth_recording(limits, found.nbytes, pending):
            return plain(*args, **kwargs)
        return enter(found.node(inputs, device), limits)

    return cast(F, call)


def _kinds(args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[Any, tuple[Any, ...], Any, bool] | None:
    """Return the key that calls of one macro share, the inputs that nodes read from the tensors, the device, and
    whether an input is pending; None where a call cannot be a macro.
    """
    key: list[Any] = [*kwargs]
    inputs: dict[Node | TBlob, int] = {}
    device: Any = None
    pending = False
    for x in (*args, *kwargs.values()):
        if type(x) is Tensor:
            value = read_later(x)
            if value is None or (device is not None and value.device is not device):
                return None
            device = value.device
            pending = pending or type(value) is Node
            key += (value.dtype.num, value.shape, inputs.setdefault(value, len(inputs)))
            continue
        constant = told_apart(x)
        if constant is None:
            return None
        key += constant
    return ((*key, device), tuple(inputs), device, pending) if inputs else None


def macro_of(name: str, result: Tensor, *given: Tensor) -> Macro | None:
    """Return the steps that a composition of some tensors has recorded, as a macro; None where that is not possible."""
    inputs = [read_later(x) for x in given]
    if type(result._content) is not Node or None in inputs:
        return None
    return _macro_of(name, result._content, [value for value in inputs if value is not None])


def _macro_of(name: str, result: Node, inputs: Sequence[Node | TBlob]) -> Macro | None:
    """Return a call's recorded steps as a macro; None where they are fewer than two, computed, or read other values."""
    numbers: dict[Any, int] = {value: number for number, value in enumerate(inputs)}
    steps: list[MacroStep] = []
    stack = [result]
    while stack:
        node = stack[-1]
        if node in numbers:
            stack.pop()
            continue
        if type(node) is not Node or node.blob is not None:
            return None
        if type(node.op) is Macro:
            node.op.spell_out(node)
        read: list[Any] = [value for value in node.inputs if isinstance(value, (Node, TBlob))]
        above = [value for value in read if value not in numbers]
        if above:
            stack += above
            continue
        taken = tuple([(numbers[one], None) if isinstance(one, (Node, TBlob)) else (None, one) for one in node.inputs])
        numbers[stack.pop()] = len(numbers)
        steps.append(MacroStep(node.op, taken, node.params, node.shape, node.dtype))
    return Macro(name, steps) if len(steps) > 1 else None
