"""Running sums, products and extremes as launches."""

from __future__ import annotations

from collections.abc import Sequence

from ..codegen.cpu import running as code
from ..codegen.cpu.at_indices import OUTER
from ..codegen.cpu.compile import host
from ..plan import costs
from ..plan.layouts import Meta, Task
from .at_indices import Axis, joined
from .factors import RESULT
from .native import Launch, Making
from .taken_down import Called


class ByRunning:
    """A running sum, product or extreme along an axis."""

    aligned = can_fail = False

    def __init__(self, step: Called) -> None:
        self._name, self._axis = step.name, step.runs_along
        self._x, self._y = _metas(step)
        self.task = Task(self._name, 2 * self._y.nbytes)
        self.seconds = self._y.nbytes // self._y.dtype.itemsize * costs.RUNNING_SECONDS

    def launches(self, making: Making) -> list[Launch]:
        """Return the launch."""
        outer, row = _loops(self._x, self._y, self._axis)
        known: dict[str, int] = {}
        for name, axis in zip((*OUTER, "row"), (*outer, row), strict=True):
            known |= {f"n.{name}": axis.length, f"x.{name}": axis.steps[0], f"y.{name}": axis.steps[1]}
        words = [known.get(name, 0) for name in code.NAMES]
        made = code.call_of(self._name, self._x.dtype.name)
        return [Launch(made, (1,), len(words), words, [(0, 0, 0), (1, RESULT, 0)])]


def can_run(step: Called) -> bool:
    """Return whether machine code can compute a step."""
    if step.runs_along is None or host() is None:
        return False
    x, y = _metas(step)
    if x.dtype.name not in code.TYPES or (x.dtype, x.shape) != (y.dtype, y.shape) or not y.nbytes:
        return False
    if y.layout.offset or not y.layout.is_dense(y.dtype.itemsize) or y.nbytes > costs.NATIVE_INDEXED:
        return False
    return len(_loops(x, y, step.runs_along)[0]) == 2


def _metas(step: Called) -> tuple[Meta, Meta]:
    """Return the metas of the step's array and of its result."""
    (x,), (y,) = step.takes, step.gives
    return x.meta, y.meta


def _loops(x: Meta, y: Meta, axis: int | None) -> tuple[Sequence[Axis], Axis]:
    """Return the loops over rows, two if they can be joined into no more, and the loop along a row."""
    axes = [Axis(n, tuple(steps)) for n, *steps in zip(x.shape, x.layout.strides, y.layout.strides, strict=True)]
    row = axes.pop(0 if axis is None else axis)
    return joined(axes, 2), row
