"""Convolution by cuDNN, through its frontend for Python (the extra `cudnn`): float32 on CUDA devices.

Plans are found once per shapes and strides, which takes up to half a second, and remembered. They round as float32 does
(no tensor cores, unless `xt.options(tf32=True)`), give the same bits every time, and need no more scratch than is
allowed. Where there is no plan, or no cuDNN, the convolution is computed without it. Source: the frontend's
documentation, https://docs.nvidia.com/deeplearning/cudnn/frontend.
"""

from __future__ import annotations

import threading
import warnings
from functools import cache
from importlib import import_module
from typing import Any, NamedTuple

import numpy as np

from ..base.caches import make_room
from ..base.dtypes import DType
from ..base.layout import Shape, c_strides
from ..base.locks import fork_safe_lock
from ..base.options import settings
from ..devices import device_of, library_of
from .windows import Axes, Axis

Array = Any  # a cupy.ndarray

# The release of cuDNN whose plans these are.
MAJOR = 9

# What begins on a multiple of so many bytes, as cuDNN takes for granted.
ALIGNED = 16

# Plans remembered; beyond so many all are forgotten.
PLANS = 1024

# What a plan computes of inputs, weights and outputs: outputs, inputs or weights.
OUTPUTS, INPUTS, WEIGHTS = "conv_fprop", "conv_dgrad", "conv_wgrad"


# The frontend from which on it was seen that operands which are as planned can be said to be so.
SAYS_SO = (1, 32)


class Lain(NamedTuple):
    """The layout of an operand (batch, channels, *lengths), with or without its memory. begin: its first byte, or that
    byte's offset from a multiple of ALIGNED.
    """

    shape: Shape
    strides: Shape
    dtype: DType
    begin: int

    @classmethod
    def of(cls, a: Array) -> Lain:
        """Return the layout of an array."""
        return cls(a.shape, a.strides, a.dtype, a.data.ptr)

    def seen(self, last: bool) -> Lain:
        """Return this layout with channels as the second axis. last: whether they are the last one."""
        if not last:
            return self
        shape, strides = ((own[0], own[-1], *own[1:-1]) for own in (self.shape, self.strides))
        return self._replace(shape=shape, strides=strides)

    def packed(self, last: bool) -> Lain:
        """Return the layout of a packed copy. last: whether channels are adjacent there."""
        order = [0, *range(2, len(self.shape)), 1] if last else range(len(self.shape))
        steps = dict(zip(order, c_strides([self.shape[axis] for axis in order], self.dtype.itemsize), strict=True))
        return self._replace(strides=tuple([steps[axis] for axis in range(len(self.shape))]))


Operands = tuple[Lain, Lain, Lain]


class Plan(NamedTuple):
    """A plan that is ready to run: the frontend's graph, its names for inputs, weights and outputs, and scratch
    bytes.
    """

    graph: Any
    names: tuple[Any, Any, Any]
    scratch: int


_plans: dict[Any, Plan | None] = {}
_planning = fork_safe_lock()
_own = threading.local()


def computes(wanted: str, x: Array, w: Array, y: Array, axes: Axes, budget: int) -> bool:
    """Compute one of inputs (batch, channels, *lengths), weights (outputs, channels / groups, *window) and outputs from
    the other two, and return whether that was done.
    """
    if frontend() is None:
        return False
    device = device_of(x)
    lain = Lain.of(x), Lain.of(w), Lain.of(y)
    plan = plan_of(wanted, lain, axes, budget, device)
    if plan is None:
        return False
    weights = w
    if _is_channels_last(lain[0]):
        cp = library_of(w)
        packed = cp.moveaxis(w, 1, -1)
        packed = cp.empty(packed.shape, w.dtype) if wanted == WEIGHTS else cp.ascontiguousarray(packed)
        weights = cp.moveaxis(packed, -1, 1)
    scratch = library_of(x).empty(max(plan.scratch, 1), np.uint8)
    pointers = {name: a.data.ptr for name, a in zip(plan.names, (x, weights, y), strict=True)}
    plan.graph.execute(pointers, scratch.data.ptr, handle=_handle(device), **_as_planned())
    if wanted == WEIGHTS and weights is not w:
        w[...] = weights
    return True


def plan_of(wanted: str, lain: Operands, axes: Axes, budget: int, device: Any) -> Plan | None:
    """Return the plan by which `computes` does that for inputs, weights and outputs of these layouts; None if there is
    none, or if another way is to be taken.
    """
    if settings().engine != "auto" or frontend() is None:
        return None
    if any(a.dtype != np.float32 or 0 in a.shape or a.begin % ALIGNED for a in lain):
        return None
    x, w, y = lain
    weights = w.packed(last=True) if _is_channels_last(x) else w
    shapes = tuple([_two_axes(a) for a in (x, weights, y)])
    axes = (Axis(1, 1, 1, 1, 1, 0), *axes) if len(axes) == 1 else axes
    key = (wanted, shapes, axes, settings().tf32, budget, str(device))
    if key not in _plans:
        with _planning:
            make_room(_plans, PLANS)
            _plans[key] = _planned(wanted, shapes, axes, budget, _handle(device))
    return _plans.get(key)


def words() -> str:
    """Return the text about a convolution that has a plan."""
    return "a plan that may round operands as TF32" if settings().tf32 else "a plan in float32"


def _is_channels_last(x: Lain) -> bool:
    """Return whether channels are next to each other; then they are so in the weights, too."""
    return x.strides[1] == x.dtype.itemsize and x.shape[1] > 1


def _two_axes(a: Lain) -> tuple[Shape, Shape]:
    """Return shape and strides with at least two spatial axes."""
    axes = len(a.shape)
    if axes > 3:
        return a.shape, a.strides
    length, stride = a.shape[-1], a.strides[-1]
    return (*a.shape[:-1], 1, length), (*a.strides[:-1], stride * length, stride)


@cache
def _as_planned() -> dict[str, Any]:
    """Return what says that nothing about operands differs from the plan. Without it the frontend looks at each of them
    anew, which takes it as long as the call.
    """
    version = tuple(int(part) for part in str(frontend().__version__).split(".")[:2])
    return dict.fromkeys(("override_uids", "override_shapes", "override_strides"), []) if version >= SAYS_SO else {}


def _handle(device: Any) -> Any:
    """Return this thread's handle of a device, on its current stream."""
    handles = _own.__dict__.setdefault("handles", {})
    if str(device) not in handles:
        handles[str(device)] = frontend().create_handle()
    frontend().set_stream(handle=handles[str(device)], stream=int(device.backend.current_stream().ptr))
    return handles[str(device)]


def _planned(wanted: str, shapes: tuple[Any, ...], axes: Axes, budget: int, handle: Any) -> Plan | None:
    """Return a plan, None where cuDNN has none that rounds as asked, repeats its bits and fits the scratch."""
    after = [_after(a) for a in axes]
    if min(a.low for a in axes) < 0 or any(_outs(a, n) != a.out for a, n in zip(axes, after, strict=True)):
        return None
    own = frontend()
    single = own.data_type.FLOAT
    facts = dict.fromkeys(("io_data_type", "intermediate_data_type", "compute_data_type"), single)
    try:
        graph = own.pygraph(handle=handle, **facts)
        names = _described(graph, wanted, shapes, axes, after)
        graph.validate()
        graph.build_operation_graph()
        graph.create_execution_plans([own.heur_mode.A, own.heur_mode.FALLBACK])
        graph.deselect_numeric_notes(_refused(own))
        graph.deselect_workspace_greater_than(budget)
        graph.check_support()
        graph.build_plans(own.build_plan_policy.HEURISTICS_CHOICE)
        scratch = graph.get_workspace_size()
    except (own.cudnnGraphNotSupportedError, RuntimeError):  # there is no such plan
        return None
    return Plan(graph, names, scratch) if scratch <= budget else None


def _after(axis: Axis) -> int:
    """Return the padding behind an axis: as much as before it where that gives as many outputs, for which cuDNN has
    more and faster kernels, else what the last window needs.
    """
    if _outs(axis, axis.low) == axis.out:
        return axis.low
    return max((axis.out - 1) * axis.stride + axis.span - axis.size - axis.low, 0)


def _outs(axis: Axis, after: int) -> int:
    return (axis.size + axis.low + after - axis.span) // axis.stride + 1


def _described(graph: Any, wanted: str, shapes: tuple[Any, ...], axes: Axes, after: list[int]) -> tuple[Any, Any, Any]:
    """Write a convolution into a graph; return its inputs, weights and outputs."""
    single = frontend().data_type.FLOAT
    steps = [(list(shape), [stride // 4 for stride in strides]) for shape, strides in shapes]
    given = {
        "pre_padding": [axis.low for axis in axes],
        "post_padding": after,
        "stride": [axis.stride for axis in axes],
        "dilation": [axis.dilation for axis in axes],
    }
    roles = {OUTPUTS: ("image", "weight", None), INPUTS: (None, "filter", "loss"), WEIGHTS: ("image", None, "loss")}[
        wanted
    ]
    names: list[Any] = []
    for role, (dim, stride) in zip(roles, steps, strict=True):
        names.append(None if role is None else graph.tensor(dim=dim, stride=stride, data_type=single))
    operands = {role: name for role, name in zip(roles, names, strict=True) if role is not None}
    found = getattr(graph, wanted)(**operands, **given)
    place = roles.index(None)
    found.set_output(True).set_data_type(single).set_dim(steps[place][0]).set_stride(steps[place][1])
    names[place] = found
    return names[0], names[1], names[2]


def _refused(own: Any) -> list[Any]:
    """Return what plans may not do: take sums in another order each time, and round as less than float32."""
    notes = own.numerical_note
    narrow = [notes.TENSOR_CORE, notes.DOWN_CONVERT_INPUTS, notes.REDUCED_PRECISION_REDUCTION]
    return [notes.NONDETERMINISTIC, *([] if settings().tf32 else narrow)]


@cache
def frontend() -> Any:
    """Return cuDNN's frontend, None if it is not installed; if it cannot be used, warn once."""
    found = None
    try:
        found = import_module("cudnn")
        major = found.backend_version() // 10000
        problem = f"it is of release {major}, not {MAJOR}" if major != MAJOR else None
    except Exception as error:  # whatever a missing or broken library raises
        if isinstance(error, ModuleNotFoundError) and error.name == "cudnn":
            return None
        problem = str(error)
    if problem is not None:
        warnings.warn(f"xtensor: cuDNN is not used: {problem}", RuntimeWarning, stacklevel=2)
        return None
    return found
