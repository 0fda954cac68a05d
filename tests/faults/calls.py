"""Faults inside functions under `xt.fuse`, captured programs and gradients.

They strike in the call that is captured, in the one that prepares a schedule, or in one that runs it. A call that
failed may have done part of what it does; later calls are right.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from programs import CAPTURED, GRADIENT, Ours, Side, same_bits
from programs.captured import arguments, expected, function_of, numbers_of, other_elements, parted, returning
from programs.gradient import ENDING

import xtensor as xt

from .injections import NoMemory, batch
from .interrupts import Interrupt
from .trial import Fault, Outcome

CALLS = 5
TOLERANCE = 1e-9  # of gradients, which engines add up in different orders


class _Function:
    """A function under fuse, and what its calls must return."""

    def __init__(self, seed: int) -> None:
        self.is_gradient = seed % 2 == 1
        kind = GRADIENT if self.is_gradient else CAPTURED
        self.makers, self.body = parted(kind.make(seed, kind.modes[0]).lines)
        self.names = arguments(self.makers)
        self.told = arguments(numbers_of(self.body, 0))
        if self.is_gradient:
            function = xt.grad(function_of(self.names, self.body, ENDING), argnums=tuple(range(len(self.names))))
        else:
            function = function_of(self.names + self.told, self.body, returning(self.names, self.body))
        self.plain, self.fused = function, xt.fuse(function)

    def given(self, call: int) -> list[Any]:
        """Return the arguments of a call."""
        side = Side(Ours(), lambda x: x)
        for line in other_elements(self.makers, call) + numbers_of(self.body, call):
            side.step(line)
        return [side.names[name] for name in self.names + self.told]

    def right(self, call: int) -> list[np.ndarray]:
        """Return what a call must return: NumPy's results, or the gradient of a plain call."""
        if self.is_gradient:
            with xt.options(engine="direct"):
                return [x.numpy() for x in self.plain(*self.given(call))]
        return expected(tuple(other_elements(self.makers, call)), tuple(self.body), call)[1]

    def differs(self, found: list[np.ndarray], call: int) -> str:
        """Return how results differ from what they must be, "" if they do not."""
        right = self.right(call)
        alike = near if self.is_gradient else same_bits
        if len(found) != len(right) or not all(map(alike, found, right)):
            return f"call {call} gives {found}, not {right}"[:400]
        return ""


def near(a: np.ndarray, b: np.ndarray) -> bool:
    """Return whether gradients agree."""
    return bool(np.allclose(a, b, rtol=TOLERANCE, atol=TOLERANCE * (1 + np.abs(b).max(initial=0)), equal_nan=True))


def run_calls(seed: int, fault: Fault, at: int, outcome: Outcome) -> int:
    """Call a function several times with a fault at its n-th place; return how many places there were."""
    with xt.options(engine=("interpret", "llvm")[seed // 2 % 2], cache_dir="", lazy="always"):
        function = _Function(seed)
        if not function.names:
            return 0
        fault.arm(at)
        places = -1
        for call in range(CALLS):
            given = function.given(call)
            found, error = _called(function.fused, given, fault)
            if isinstance(error, fault.error):
                outcome.raised += 1
                places = fault.disarm()
                found, error = _called(function.fused, function.given(call), fault)
            what = repr(error) if error is not None else function.differs(found, call)
            if what:
                outcome.note("wrong", f"function {seed}, fault at {at}: {what}")
                break
        return fault.disarm() if places < 0 else places


def _called(
    function: Callable[..., Any], given: list[Any], fault: Fault
) -> tuple[list[np.ndarray], BaseException | None]:
    """Call a function where a fault may strike; return its results, computed, and what it raised."""
    try:
        try:
            fault.resume()
            found = function(*given)
            xt.evaluate(*[x for x in found if isinstance(x, xt.Tensor)])
        finally:
            fault.pause()
    except BaseException as error:
        fault.pause()
        return [], error
    return [x.numpy() if isinstance(x, xt.Tensor) else np.asarray(x) for x in found], None


BATCHES = {
    "memory, calls": batch(NoMemory, 25, run_calls),
    "interrupt, calls": batch(Interrupt, 25, run_calls),
}
