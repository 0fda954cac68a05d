"""Convolutions: conv, conv_transpose, correlate, convolve.

What neural networks call a convolution is a correlation: the window is not flipped. Three functions that are linear in
each of their two arguments close the family, because each is the derivative of the others: outputs from inputs and
weights, inputs from outputs and weights, weights from inputs and outputs.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from itertools import product
from math import prod
from operator import itemgetter
from time import perf_counter
from typing import Any, Literal, NamedTuple, get_args

import numpy as np

from ..autograd.rules import conjugate, xt
from ..autograd.tape import differentiable
from ..base.dtypes import NUMERIC, DType, promote
from ..base.errors import check_choice, expected, mismatch, one_of
from ..base.layout import Shape
from ..base.options import settings
from ..devices import library_of
from ..plan.costs import CALLS_COMPILED, CONTRACTION_COMPILED
from ..plan.layouts import Meta
from ..run.joined import Ending
from ..tensor.face import Tensor
from ..tensor.operands import as_tensor, as_tensors, common_device
from . import cudnn_plans as cudnn
from . import elsewhere, winograd
from .contraction import Array, contract, contract_weights, empty, natively, pays, summing_dtype
from .implicit_weights import convolve_weights
from .padding import MODES as PADDING_MODES
from .padding import Mode as PaddingMode
from .padding import check_width, pad, unpadded
from .pending import Pending
from .planes import SLOWER
from .shifted import weighted_sums
from .strips import strip_sums_of
from .sweeps import Runs, can_end, is_thin, sweep, sweep_of, thin_sums_of
from .windows import (
    Axes,
    Axis,
    Pairs,
    axes_of,
    batched,
    channels_last,
    each,
    halves,
    kernels,
    outs,
    padding_of,
    phases,
    sizes,
    spatial,
    volume,
)

__all__ = ["conv", "conv_algorithm", "conv_transpose", "convolve", "correlate"]

Algorithm = Literal["auto", "direct", "im2col", "tune", "winograd", "winograd4"]
ALGORITHMS: tuple[Algorithm, ...] = get_args(Algorithm)

# Those that may go on with what follows.
JOINED = ("auto", "im2col")

# Those that sweeps may do for them.
SWEPT = {cudnn.OUTPUTS: JOINED, cudnn.INPUTS: JOINED, cudnn.WEIGHTS: ("auto", "direct", "im2col", "tune")}

TILES_APART = "Winograd's tiles take less time"

# Scratch in MB, on the CPU and on other devices.
WORKSPACE_MB, WORKSPACE_MB_ELSEWHERE = 64.0, 256.0

# The plans of convolutions by shapes and arguments, so many at most; arguments of which types are remembered.
PLANS, PLAIN, OPTIONAL = 1024, frozenset((int, str, type(None))), (Tensor, type(None))
_plans: dict[Any, Any] = {}

# What machine code is told of arrays by what is known of them, or how often such came before, of so many kinds at most.
LAUNCHES = 256
_launches: dict[Any, Runs | int] = {}

# What "tune" found, for so many kinds of arguments.
TUNED = 1024
_fastest: dict[Any, str] = {}


class Plan(NamedTuple):
    """What the three functions know besides their arrays.

    function: whose errors these are. x_last, y_last: whether channels are the last axis of inputs, of outputs.
    budget: bytes of scratch.
    """

    function: str
    axes: Axes
    groups: int
    x_last: bool
    y_last: bool
    budget: int
    algorithm: Algorithm

    def __str__(self) -> str:
        """What `xt.explain` calls it."""
        names = {"kernel": "window", "stride": "stride", "dilation": "dilation"}
        facts = {word: [str(getattr(axis, name)) for axis in self.axes] for name, word in names.items()}
        return ", ".join([f"{word} {'x'.join(numbers)}" for word, numbers in facts.items()])


def conv(
    x: Tensor,
    w: Tensor,
    bias: Tensor | None = None,
    /,
    *,
    stride: Any = 1,
    padding: Any = 0,
    dilation: Any = 1,
    groups: int = 1,
    layout: Any = None,
    padding_mode: PaddingMode = "zeros",
    workspace_mb: float | None = None,
    algorithm: Algorithm = "auto",
) -> Tensor:
    """Return the convolution, in the sense of neural networks, over 1, 2 or 3 spatial axes.

    x: (batch, channels, *lengths). w: (outputs, channels / groups, *window), whatever the layout. bias: (outputs,).
    Returns (batch, outputs, *lengths) with, along each spatial axis, lengths of
    (length + before + after - dilation * (window - 1) - 1) // stride + 1.

    stride, dilation: a number, or one per axis. padding: a number, one per axis, or a pair (before, after) per axis,
    negative to leave elements out; or "valid" (none), "same" (as many outputs as inputs over stride, what is odd goes
    after; "same_lower": before), "full" (all windows that touch the input). padding_mode: what stands there, as in
    `pad`. groups: channels and outputs fall into so many groups that have nothing to do with each other.
    layout: "NCHW" or "NHWC" (1-d: "NCW", "NWC", 3-d: "NCDHW", "NDHWC"), or a pair for input and output.

    workspace_mb: the most scratch memory in MB (10^6 bytes), on all threads together; None for 64, and 256 on a CUDA
    device. Modes other than "zeros" copy x besides. algorithm: "im2col" multiplies matrices on tiles, "direct" adds up
    shifted inputs, "winograd" computes tiles of 2x2 outputs by fewer multiplications and with larger rounding errors,
    "winograd4" tiles of 4x4 (both: 3x3 windows with stride and dilation 1 of float32 or float64); "auto" decides by the
    shapes, "tune" by trying once for each kind of arguments. `conv_algorithm` says what is decided.

    dtypes are promoted. Integers are computed exactly, and wrap as their dtype does. Raises ValueError where shapes or
    parameters do not fit, TypeError for booleans.
    """
    kind = {"stride": stride, "padding": padding, "dilation": dilation, "groups": groups, "layout": layout}
    more = {"padding_mode": padding_mode, "workspace_mb": workspace_mb, "algorithm": algorithm}
    return _outputs(*_arguments(x, w, bias, **kind, **more))


def conv_algorithm(x: Tensor, w: Tensor, bias: Tensor | None = None, /, **kind: Any) -> str:
    """Return which algorithm `conv` takes for these arguments, and why. kind: the keyword arguments of `conv`.

    Values do not matter, but where they lie: pending ones are computed. "auto" takes another one than it says where
    outputs of "winograd" are not finite: then it computes them again by "im2col". Raises as `conv` does.

    >>> xt.nn.conv_algorithm(xt.ones((8, 64, 56, 56)), xt.ones((64, 64, 3, 3)), padding=2, dilation=2)
    'im2col: windows are 3x3, dilated'
    """
    x, w, bias, plan = _arguments(x, w, bias, **kind)
    dtype, found = _common(x, w, bias), list[str]()

    def run(a: Array, k: Array) -> Array:
        y = empty(batched(a.shape[0], k.shape[0], outs(plan.axes), plan.y_last), dtype, a)
        splits = _split(a, plan.x_last, plan.groups), _split(y, plan.y_last, plan.groups)
        found.append(": ".join(_choice(splits[0], _grouped(k, plan), splits[1], plan.axes, plan)))
        return y

    natively(plan.function, (x, w), run)
    return found[0]


def _arguments(
    x: Any,
    w: Any,
    bias: Any,
    *,
    stride: Any = 1,
    padding: Any = 0,
    dilation: Any = 1,
    groups: Any = 1,
    layout: Any = None,
    padding_mode: Any = "zeros",
    workspace_mb: Any = WORKSPACE_MB,
    algorithm: Any = "auto",
) -> tuple[Tensor, Tensor, Tensor | None, Plan]:
    """Return the operands of `conv`, padded where that is not with zeros, and its plan."""
    kind = stride, padding, dilation, groups, layout, workspace_mb, algorithm
    key = None
    if padding_mode == "zeros" and type(x) is type(w) is Tensor and type(bias) in OPTIONAL and _is_plain(kind):
        key = (kind, *[None if one is None else (one.shape, one.dtype, one.device) for one in (x, w, bias)])
        plan = _plans.get(key)
        if plan is not None:
            return x, w, bias, plan
    x, w, bias, rank = _operands("conv", x, w, bias)
    x_last, y_last = channels_last(layout, rank, "conv")
    _check_groups("conv", x, w, groups, x.shape[-1] if x_last else x.shape[1], w.shape[0])
    _check_bias("conv", bias, w.shape[0])
    axes, pairs = axes_of("conv", x.shape, spatial(x.shape, x_last), w.shape[2:], stride, padding, dilation)
    if padding_mode != "zeros":
        first = 1 if x_last else 2
        x = pad(x, pairs, mode=padding_mode, axes=tuple(range(first, first + rank)))
        axes, _ = axes_of("conv", x.shape, spatial(x.shape, x_last), w.shape[2:], stride, 0, dilation)
    plan = _plan("conv", axes, groups, x_last, y_last, _workspace(x, workspace_mb), algorithm)
    _check_algorithm(plan, _common(x, w, bias))
    if key is not None:
        if len(_plans) >= PLANS:
            _plans.clear()
        _plans[key] = plan
    return x, w, bias, plan


def _is_plain(kind: tuple[Any, ...]) -> bool:
    """Return whether equal arguments mean the same: booleans and floats, which are errors, equal integers."""
    return all(type(one) in PLAIN or (type(one) is tuple and PLAIN.issuperset(map(type, one))) for one in kind)


def conv_transpose(
    x: Tensor,
    w: Tensor,
    bias: Tensor | None = None,
    /,
    *,
    stride: Any = 1,
    padding: Any = 0,
    output_padding: Any = 0,
    dilation: Any = 1,
    groups: int = 1,
    layout: Any = None,
    padding_mode: PaddingMode = "zeros",
    workspace_mb: float | None = None,
    algorithm: Algorithm = "auto",
) -> Tensor:
    """Return the transposed convolution: what `conv` with these parameters takes to x, gone back.

    x: (batch, channels, *lengths). w: (channels, outputs / groups, *window). bias: (outputs,). Returns
    (batch, outputs, *lengths) with, along each spatial axis, lengths of
    (length - 1) * stride - before - after + dilation * (window - 1) + 1 + output_padding.

    padding: what is left out of the result before and after, as in `conv`; "same" gives length * stride, "full" leaves
    out dilation * (window - 1) on both sides. output_padding: how much longer the result is at its end, which must be
    less than stride or dilation. padding_mode: "zeros" drops what is left out; the others add it to the elements that
    `pad` would have put there, after the result was made with it. The others as in `conv`.

    Raises ValueError where shapes or parameters do not fit, TypeError for booleans.
    """
    x, w, bias, rank = _operands("conv_transpose", x, w, bias)
    x_last, y_last = channels_last(layout, rank, "conv_transpose")
    channels = x.shape[-1] if x_last else x.shape[1]
    _check_groups("conv_transpose", x, w, groups, w.shape[0], channels)
    _check_bias("conv_transpose", bias, w.shape[1] * groups)
    lengths, window = spatial(x.shape, x_last), w.shape[2:]
    axes, pairs = _transposed_axes(x.shape, lengths, window, stride, padding, output_padding, dilation)
    plan = _plan("conv_transpose", axes, groups, y_last, x_last, _workspace(x, workspace_mb), algorithm)
    _check_algorithm(plan, _common(x, w, bias))
    if padding_mode == "zeros":
        return _inputs(x, w, bias, plan)
    whole = tuple(axis._replace(size=axis.size + sum(pair), low=0) for axis, pair in zip(axes, pairs, strict=True))
    found = _inputs(x, w, None, plan._replace(axes=whole))
    found = _folded_back(found, plan, pairs, padding_mode)
    return found if bias is None else found + xt.reshape(bias, (-1,) if y_last else (1, -1, *[1] * rank))


def _folded_back(x: Tensor, plan: Plan, pairs: Pairs, mode: PaddingMode) -> Tensor:
    """Return inputs with what lies in their padding added to the elements it was made from."""
    check_choice(plan.function, "padding_mode", mode, PADDING_MODES)
    channels = x.shape[-1] if plan.x_last else x.shape[1]
    shape = batched(x.shape[0], channels, sizes(plan.axes), plan.x_last)
    widths = ((0, 0), *pairs, (0, 0)) if plan.x_last else ((0, 0), (0, 0), *pairs)
    for axis, pair in enumerate(widths):
        check_width(shape, axis, pair, mode, plan.function)
    return unpadded(x, widths, mode, shape)


def _transposed_axes(
    shape: Shape, lengths: Shape, window: Shape, stride: Any, padding: Any, output_padding: Any, dilation: Any
) -> tuple[Axes, Pairs]:
    """Return the axes of the convolution that is transposed, whose outputs are our inputs, and the padding."""
    name, rank = "conv_transpose", len(lengths)
    strides = each(stride, rank, name, "stride", least=1)
    dilations = each(dilation, rank, name, "dilation", least=1)
    more = each(output_padding, rank, name, "output_padding", least=0)
    if any(extra >= max(s, d) for extra, s, d in zip(more, strides, dilations, strict=True) if extra):
        must = f"be less than stride {strides} or dilation {dilations}"
        raise ValueError(expected(name, "output_padding", must, output_padding))
    spans = [d * (k - 1) + 1 for k, d in zip(window, dilations, strict=True)]
    if padding in ("same", "same_lower"):
        totals = [max(span - s, 0) for span, s in zip(spans, strides, strict=True)]
        more = tuple(n + max(s - span, 0) for n, s, span in zip(more, strides, spans, strict=True))
        pairs = halves(totals, padding)
    else:
        pairs = padding_of(padding, lengths, spans, strides, name)
    full = [(max(n, 1) - 1) * s + span for n, s, span in zip(lengths, strides, spans, strict=True)]
    results = tuple(n - low - high + extra for n, (low, high), extra in zip(full, pairs, more, strict=True))
    if min(results) < 0:
        raise ValueError(expected(name, "padding", f"leave something of {tuple(full)} for shape {shape}", padding))
    axes = tuple(
        Axis(n, out, k, s, d, low)
        for n, out, k, s, d, (low, _) in zip(results, lengths, window, strides, dilations, pairs, strict=True)
    )
    return axes, pairs


Mode = Literal["full", "same", "valid"]
MODES: tuple[Mode, ...] = get_args(Mode)


def correlate(x1: Tensor, x2: Tensor, /, mode: Mode = "valid") -> Tensor:
    """Return the correlation over 1, 2 or 3 axes: at each place the sum of products of x1 with the conjugate of x2.

    mode: "full" wherever they overlap, n1 + n2 - 1 places along an axis; "valid" where the shorter lies within the
    longer; "same" the middle of "full". 1-d arrays are taken as numpy.correlate takes them: "same" has the length of
    the longer. For 2 and 3 axes it has the shape of x1, and "valid" is empty where x2 is longer; of an even number of
    elements the middle one is that of MATLAB's filter2.

    Raises ValueError for other modes and numbers of axes and for no elements, TypeError for booleans.
    """
    x1, x2 = _pair("correlate", x1, x2, mode)
    if x1.ndim == 1 and x1.size < x2.size:
        return xt.flip(conjugate(correlate(x2, x1, mode)))
    return _slid("correlate", x1, conjugate(x2), mode)


def convolve(x1: Tensor, x2: Tensor, /, mode: Mode = "full") -> Tensor:
    """Return the convolution over 1, 2 or 3 axes: at each place the sum of products of x1 with x2 reversed.

    mode as in correlate. 1-d arrays are taken as numpy.convolve takes them, 2-d ones as MATLAB's conv2. Raises as
    correlate does.
    """
    x1, x2 = _pair("convolve", x1, x2, mode)
    if x1.ndim == 1 and x1.size < x2.size:
        x1, x2 = x2, x1
    return _slid("convolve", x1, xt.flip(x2), mode)


def _pair(function: str, x1: Any, x2: Any, mode: str) -> tuple[Tensor, Tensor]:
    x1, x2 = as_tensors(function, x1=x1, x2=x2)
    check_choice(function, "mode", mode, MODES)
    if x1.ndim != x2.ndim or not 1 <= x1.ndim <= 3 or not x1.size or not x2.size:
        raise ValueError(mismatch(function, x1.shape, x2.shape, "both need elements and the same 1, 2 or 3 axes"))
    return x1, x2


def _slid(function: str, x: Tensor, w: Tensor, mode: Mode) -> Tensor:
    """Return the correlation without a conjugate."""
    if mode == "full":
        pairs = [(k - 1, k - 1) for k in w.shape]
    elif mode == "same":
        lows = [(k if x.ndim == 1 else k - 1) // 2 for k in w.shape]
        pairs = [(low, k - 1 - low) for low, k in zip(lows, w.shape, strict=True)]
    else:
        pairs = [(0, 0)] * x.ndim
    lengths = [n + low + high - k + 1 for n, k, (low, high) in zip(x.shape, w.shape, pairs, strict=True)]
    if min(lengths) <= 0:
        return xt.zeros([max(n, 0) for n in lengths], dtype=_common(x, w), device=x.device)
    axes = tuple(
        Axis(n, out, k, 1, 1, low) for n, out, k, (low, _) in zip(x.shape, lengths, w.shape, pairs, strict=True)
    )
    x, w, _, _ = _operands(function, x[None, None, ...], w[None, None, ...], None)
    return _outputs(x, w, None, _plan(function, axes, 1, False, False, _workspace(x, None), "auto"))[0, 0, ...]


# ---- arguments


def _operands(function: str, x: Any, w: Any, bias: Any) -> tuple[Tensor, Tensor, Tensor | None, int]:
    """Return the operands as tensors of one device, and the number of spatial axes."""
    x, w = as_tensors(function, x=x, w=w)
    bias = None if bias is None else as_tensor(bias, function, "bias", x)
    for one, name in ((x, "x"), (w, "w"), (bias, "bias")):
        if one is not None:
            NUMERIC.check(one.dtype, function, name)
    if not 3 <= w.ndim <= 5:
        raise ValueError(expected(function, "w", "have 3, 4 or 5 axes (1, 2 or 3 of the window)", f"shape {w.shape}"))
    if x.ndim != w.ndim:
        raise ValueError(expected(function, "x", f"have {w.ndim} axes as w {w.shape} has", f"shape {x.shape}"))
    common_device(function, (x, w, bias))
    return x, w, bias, w.ndim - 2


def _check_groups(function: str, x: Tensor, w: Tensor, groups: Any, inputs: int, outputs: int) -> None:
    """Check channels; inputs, outputs: those of the convolution, transposed or not."""
    (groups,) = each(groups, 1, function, "groups", least=1)
    shapes = f"x {x.shape}, w {w.shape}, groups {groups}"
    if inputs % groups or outputs % groups:
        raise ValueError(expected(function, "groups", "divide the channels and the outputs", shapes))
    if function == "conv" and inputs != w.shape[1] * groups:
        must = f"have {inputs // groups} (channels / groups) as second length"
        raise ValueError(expected(function, "w", must, shapes))
    if function == "conv_transpose" and inputs != outputs:
        raise ValueError(expected(function, "w", f"have {outputs} (channels) as first length", shapes))
    if min(w.shape[2:]) < 1:
        raise ValueError(expected(function, "w", "have a window of at least one element", f"shape {w.shape}"))


def _check_bias(function: str, bias: Tensor | None, outputs: int) -> None:
    if bias is not None and bias.shape != (outputs,):
        raise ValueError(expected(function, "bias", f"have shape ({outputs},)", f"shape {bias.shape}"))


def _workspace(x: Tensor, given: float | None) -> float:
    """Return the scratch memory in MB: what is given, or what the device of x has by default."""
    usual = WORKSPACE_MB if x.device == "cpu" else WORKSPACE_MB_ELSEWHERE
    return usual if given is None else given


def _plan(
    function: str, axes: Axes, groups: int, x_last: bool, y_last: bool, workspace_mb: Any, algorithm: Any
) -> Plan:
    if not isinstance(workspace_mb, (int, float)) or not workspace_mb > 0:
        raise ValueError(expected(function, "workspace_mb", "be a positive number", repr(workspace_mb)))
    check_choice(function, "algorithm", algorithm, ALGORITHMS)
    return Plan(function, axes, int(groups), x_last, y_last, int(workspace_mb * 1e6), algorithm)


def _check_algorithm(plan: Plan, dtype: DType) -> None:
    """Raise ValueError for an algorithm that is not for such windows or numbers."""
    why = winograd.unfit(plan.axes, dtype) if plan.algorithm in winograd.TILES else None
    if why is not None:
        others = [name for name in ALGORITHMS if name not in winograd.TILES]
        raise ValueError(expected(plan.function, "algorithm", f"{one_of(others)} as {why}", repr(plan.algorithm)))


# ---- the three functions and how each is the derivative of the others


def _inputs_of(g: Tensor, w: Tensor, plan: Plan) -> Tensor:
    return _inputs(g, conjugate(w), None, plan)


def _weights_of(x: Tensor, g: Tensor, plan: Plan) -> Tensor:
    return _weights(conjugate(x), g, plan)


def _weights_by(results: Tensor, g: Tensor, plan: Plan) -> Tensor:
    return _weights(g, conjugate(results), plan)


def _sum_beside(g: Tensor, last: bool) -> Tensor:
    """Return the sum over all axes but the channels; float32 is added up in float64, as sums of columns are long."""
    channel = g.ndim - 1 if last else 1
    wide = xt.float64 if g.dtype == xt.float32 else g.dtype
    total: Tensor = xt.sum(g, axis=tuple(axis for axis in range(g.ndim) if axis != channel), dtype=wide)
    return xt.astype(total, g.dtype, copy=False)


@differentiable(
    x=lambda g, w, plan: _inputs_of(g, w, plan),
    w=lambda g, x, plan: _weights_of(x, g, plan),
    bias=lambda g, plan: _sum_beside(g, plan.y_last),
)
def _outputs(x: Tensor, w: Tensor, bias: Tensor | None, plan: Plan) -> Tensor:
    """Return outputs from inputs and weights."""
    operands = (x, w) if bias is None else (x, w, bias)
    shape = batched(x.shape[0], w.shape[0], outs(plan.axes), plan.y_last)
    return OUTPUTS(operands, plan, shape, _common(x, w, bias), prod(shape) * prod(w.shape[1:]))


@differentiable(
    results=lambda g, w, plan: _outputs(g, conjugate(w), None, plan),
    w=lambda g, results, plan: _weights_by(results, g, plan),
    bias=lambda g, plan: _sum_beside(g, plan.x_last),
)
def _inputs(results: Tensor, w: Tensor, bias: Tensor | None, plan: Plan) -> Tensor:
    """Return inputs from outputs and weights: each output times its window, added up where windows lie."""
    operands = (results, w) if bias is None else (results, w, bias)
    shape = batched(results.shape[0], w.shape[1] * plan.groups, sizes(plan.axes), plan.x_last)
    return INPUTS(operands, plan, shape, _common(results, w, bias), results.size * prod(w.shape[1:]))


@differentiable(
    x=lambda g, results, plan: _inputs(conjugate(results), g, None, plan),
    results=lambda g, x, plan: _outputs(conjugate(x), g, None, plan),
)
def _weights(x: Tensor, results: Tensor, plan: Plan) -> Tensor:
    """Return weights from inputs and outputs: each output times the window it came from, added up."""
    dtype = _common(x, results)

    def run(a: Array, g: Array) -> Array:
        channels, outputs = (one.shape[-1 if last else 1] for one, last in ((a, plan.x_last), (g, plan.y_last)))
        w = empty((outputs, channels // plan.groups, *kernels(plan.axes)), dtype, a)
        if _by_launches(cudnn.WEIGHTS, plan, a, w, g, None) or _by_library(cudnn.WEIGHTS, a, w, g, None, plan):
            return w
        a, g = _split(a, plan.x_last, plan.groups), _split(g, plan.y_last, plan.groups)
        given = a, g, _grouped(w, plan), plan.axes
        if _takes_weight_tiles(*given, plan) and _by_tiles(*given, plan):
            return w
        if not convolve_weights(plan.function, *given, plan.budget):
            contract_weights(plan.function, *given, plan.budget)
        return w

    return natively(plan.function, (x, results), run)


def _compute_outputs(plan: Plan, ending: Ending | None, x: Array, w: Array, bias: Array | None = None) -> Array:
    """Return outputs of native arrays, or write them and what follows."""
    shape = batched(x.shape[0], w.shape[0], outs(plan.axes), plan.y_last)
    y = empty(shape, _common(x, w, bias), x) if ending is None else ending.target
    if ending is None and (
        _by_launches(cudnn.OUTPUTS, plan, x, w, y, bias) or _by_library(cudnn.OUTPUTS, x, w, y, bias, plan)
    ):
        return y
    split = partial(_split, last=plan.y_last, groups=plan.groups)
    given = _split(x, plan.x_last, plan.groups), _grouped(w, plan), split(y), bias, plan, plan.axes
    _forward(*given, None if ending is None else ending.seen(split))
    return y


def _compute_inputs(plan: Plan, ending: Ending | None, results: Array, w: Array, bias: Array | None = None) -> Array:
    """Return inputs of native arrays, or write them and what follows."""
    shape = batched(results.shape[0], w.shape[1] * plan.groups, sizes(plan.axes), plan.x_last)
    x = empty(shape, _common(results, w, bias), results) if ending is None else ending.target
    if ending is None and (
        _by_launches(cudnn.INPUTS, plan, x, w, results, bias) or _by_library(cudnn.INPUTS, x, w, results, bias, plan)
    ):
        return x
    split = partial(_split, last=plan.x_last, groups=plan.groups)
    given = _split(results, plan.y_last, plan.groups), _grouped(w, plan), split(x), bias, plan
    _backward(*given, None if ending is None else ending.seen(split))
    return x


def _by_launches(wanted: str, plan: Plan, x: Array, w: Array, y: Array, bias: Array | None) -> bool:
    """Write what is wanted of inputs x, weights and outputs by machine code that is remembered for arrays that lie so,
    plus a bias; return whether that was done.

    Little work comes often before code is made for it.
    """
    if type(x) is not np.ndarray or plan.algorithm not in SWEPT[wanted]:
        return False
    kind = (wanted, plan, settings().engine, _lying(x), _lying(w), _lying(y), None if bias is None else _lying(bias))
    found = _launches.get(kind, 0)
    if isinstance(found, int):
        if len(_launches) >= LAUNCHES:
            _launches.clear()
        made = None if 0 < found != CALLS_COMPILED else _launches_of(wanted, plan, x, w, y, bias, found > 0)
        _launches[kind] = found + 1 if made is None else made
        if made is None:
            return False
        found = made
    if wanted == cudnn.INPUTS:
        x, y = y, x
    found.run(x, _grouped(w, plan) if wanted == cudnn.WEIGHTS else w, y, bias)
    return True


def _lying(a: Array) -> tuple[Any, ...]:
    """Return all that code depends on of an array."""
    return a.shape, a.strides, a.dtype.num, a.flags.aligned


def _launches_of(wanted: str, plan: Plan, x: Array, w: Array, y: Array, bias: Array | None, often: bool) -> Runs | None:
    """Return what writes what is wanted where arrays lie like these, None where it is not made by sweeps.

    Views of x, w, y and bias begin where these do.
    """
    x, y, w = _split(x, plan.x_last, plan.groups), _split(y, plan.y_last, plan.groups), _grouped(w, plan)
    axes, budget = plan.axes, plan.budget
    if wanted == cudnn.WEIGHTS:
        found = thin_sums_of(x, w, y, axes, often=often)
        if found is None and not _takes_weight_tiles(x, y, w, axes, plan):
            found = strip_sums_of(x, w, y, axes, budget, often=often)
        return found
    if wanted == cudnn.INPUTS:
        back, shift = w.swapaxes(1, 2), None if bias is None else bias.reshape(x.shape[1:3])
        thin = not _back_swept(y, back, x, plan, often)
        return sweep_of(y, back, x, shift, axes, budget, back=True, thin=thin, often=often)
    if _choice(x, w, y, axes, plan, often)[0] != "im2col":
        return None
    return sweep_of(x, w, y, None if bias is None else bias.reshape(w.shape[:2]), axes, budget, often=often)


def _by_library(wanted: str, x: Array, w: Array, y: Array, bias: Array | None, plan: Plan) -> bool:
    """Write what is wanted of inputs, weights and outputs, with its bias, by cuDNN or cuBLAS alone; return whether that
    was done.
    """
    library = library_of(x)
    if library is np or plan.algorithm != "auto":
        return False
    x, y = (library.moveaxis(a, -1, 1) if last else a for a, last in ((x, plan.x_last), (y, plan.y_last)))
    place = (cudnn.INPUTS, cudnn.WEIGHTS, cudnn.OUTPUTS).index(wanted)
    if not cudnn.computes(wanted, x, w, y, plan.axes, plan.budget) and not elsewhere.pointwise(
        x, w, y, plan.axes, place
    ):
        return False
    if bias is not None:
        target = y if wanted == cudnn.OUTPUTS else x
        target += bias.reshape(-1, *[1] * len(plan.axes))
    return True


def _common(*tensors: Any) -> DType:
    first, *others = [x.dtype for x in tensors if x is not None]
    return first if all(one is first for one in others) else promote(first, *others)


def _split(a: Array, last: bool, groups: int) -> Array:
    """Return a view (batch, groups, channels of a group, *lengths)."""
    if last:  # splitting an axis always makes a view
        a = a.reshape(*a.shape[:-1], groups, a.shape[-1] // groups)
        return a.transpose(0, a.ndim - 2, a.ndim - 1, *range(1, a.ndim - 2))
    return a.reshape(a.shape[0], groups, a.shape[1] // groups, *a.shape[2:])


def _grouped(w: Array, plan: Plan) -> Array:
    """Return weights as (groups, outputs of a group, channels of a group, *window)."""
    return w.reshape(plan.groups, w.shape[0] // plan.groups, *w.shape[1:])


def _forward(
    x: Array, w: Array, y: Array, bias: Array | None, plan: Plan, axes: Axes, ending: Ending | None = None
) -> None:
    """Write outputs by the algorithm asked for, and what follows."""
    bias = None if bias is None else bias.reshape(w.shape[:2])
    if ending is not None:
        joined = plan.algorithm in JOINED and _choice(x, w, y, axes, plan)[0] == "im2col"
        if not joined or not sweep(x, w, y, bias, axes, plan.budget, ending=ending):
            _forward(x, w, y, bias, plan, axes)
            ending.write()
        return

    def run(algorithm: str) -> None:
        if algorithm in winograd.TILES:
            finite = winograd.convolve(x, w, y, bias, axes, winograd.TILES[algorithm], plan.budget)
            if finite or (finite is not None and plan.algorithm == algorithm):
                return
        if algorithm == "direct" and x.shape[2]:
            if not elsewhere.direct(x, w, y, bias, axes):
                weighted_sums(plan.function, x, w, y, bias, axes, plan.budget)
        elif not sweep(x, w, y, bias, axes, plan.budget):
            contract(plan.function, x, w, y, bias, axes, plan.budget)

    if plan.algorithm == "tune":
        candidates = ["direct", "im2col"]
        candidates += ["winograd"] * (winograd.unreadable(x, w, y, axes) is None)
        kind = (x.shape, w.shape, y.strides, x.strides, y.dtype, axes, plan.budget, library_of(y))
        run(_tuned(kind, run, candidates, y))
    else:
        run(_choice(x, w, y, axes, plan)[0])


def _choice(x: Array, w: Array, y: Array, axes: Axes, plan: Plan, often: bool = False) -> tuple[str, str]:
    """Return the algorithm for arrays as `contract` has them, and why."""
    asked = plan.algorithm
    if asked == "auto" and is_thin(x, w):
        compiled = pays(y, SLOWER * y.size * volume(axes), often)
        return ("im2col", "generated code for single channels") if compiled else ("direct", "few channels a group")
    if asked != "auto" and asked not in winograd.TILES:
        return asked, "asked for"
    why = winograd.unreadable(x, w, y, axes, asked != "auto")
    if why is not None:
        return "im2col", why
    return (asked, "asked for") if asked != "auto" else winograd.cheaper(x, w.shape[1], y, axes)


def _takes_weight_tiles(x: Array, y: Array, w: Array, axes: Axes, plan: Plan) -> bool:
    """Return whether the gradient of weights is for Winograd's algorithm, which was asked for or pays."""
    asked = plan.algorithm if plan.algorithm in winograd.TILES else "auto"
    if plan.algorithm not in ("auto", "tune", asked):
        return False
    if winograd.unreadable(x, w, y, axes, asked != "auto") is not None:
        return False
    if asked == "auto" and winograd.cheaper(x, w.shape[1], y, axes)[0] not in winograd.TILES:
        return False
    return summing_dtype(w.dtype, y.size * w[0, 0].size) == w.dtype


def _by_tiles(x: Array, y: Array, w: Array, axes: Axes, plan: Plan) -> bool:
    """Write the gradient of weights by Winograd's algorithm; return whether it is one for all of these numbers."""
    asked = plan.algorithm if plan.algorithm in winograd.TILES else "auto"
    done = winograd.convolve_weights(x, y, w, axes, winograd.TILES.get(asked, 2), plan.budget)
    return done and (plan.algorithm in winograd.TILES or bool(np.isfinite(np.vdot(w, w))))


def _tuned(kind: Any, run: Callable[[str], None], candidates: list[str], y: Array) -> str:
    """Return the fastest algorithm for a kind of arguments, each timed once after a first call; it is remembered.

    y: what is written, whose device is waited for.
    """
    found = _fastest.get(kind)
    if found is None:
        times = {}
        for algorithm in candidates:
            run(algorithm)
            elsewhere.wait(y)
            start = perf_counter()
            run(algorithm)
            elsewhere.wait(y)
            times[algorithm] = perf_counter() - start
        if len(_fastest) >= TUNED:
            _fastest.clear()
        found = _fastest[kind] = min(times, key=lambda algorithm: times[algorithm])
    return found


def _backward(y: Array, w: Array, x: Array, bias: Array | None, plan: Plan, ending: Ending | None = None) -> None:
    """Write inputs: for each phase of the positions modulo the strides a convolution of the outputs by stride 1."""
    back = w.swapaxes(1, 2)
    if ending is None and plan.algorithm in JOINED:
        thin, shift = not _back_swept(y, back, x, plan), None if bias is None else bias.reshape(x.shape[1:3])
        if sweep(y, back, x, shift, plan.axes, plan.budget, back=True, thin=thin):
            return
    for phase in product(*map(phases, plan.axes)):
        places, elements, axes = zip(*phase, strict=True)
        target = x[(..., *places)]
        own = None if ending is None else ending.seen(itemgetter((..., *places)))
        if any(axis.kernel == 0 for axis in axes):
            target[...] = 0 if bias is None else bias.reshape(*x.shape[1:3], *[1] * len(axes))
            if own is not None:
                own.write()
        else:
            _forward(y, back[(..., *elements)], target, bias, plan, axes, own)


def _back_swept(y: Array, w: Array, x: Array, plan: Plan, often: bool = False) -> bool:
    """Return whether inputs are swept from outputs whatever groups there are: by strides of 1 they are one convolution,
    of which there may be faster ones.
    """
    if any(axis.stride > 1 for axis in plan.axes):
        return True
    ways = [phases(axis)[0] for axis in plan.axes]
    own = w[(..., *[elements for _, elements, _ in ways])]
    return _choice(y, own, x, tuple(axis for *_, axis in ways), plan, often)[0] == "im2col"


def _refuse_outputs(plan: Plan, operands: Sequence[Meta], result: Meta) -> str:
    """Return why what follows outputs is not computed with them, "" where it is."""
    w = operands[1]
    if _takes_tiles(plan, plan.axes, operands[0].shape[0], w.shape[1], w.shape[0], result):
        return TILES_APART
    return _refuse(plan, prod(result.shape) * prod(w.shape[1:]), w.shape[1], w.shape[0], plan.y_last, result)


def _refuse_inputs(plan: Plan, operands: Sequence[Meta], result: Meta) -> str:
    """Return why what follows inputs is not computed with them: each phase is a convolution of its own."""
    w, number = operands[1], prod(axis.stride for axis in plan.axes)
    if any(axis.kernel < axis.stride for axis in plan.axes):
        return "positions are left out"
    if number > 1 and not plan.x_last:
        return "its sums lie apart"
    axes = tuple(phases(axis)[0][2] for axis in plan.axes)
    if number == 1 and _takes_tiles(
        plan, axes, result.shape[0], w.shape[0] // plan.groups, w.shape[1] * plan.groups, result
    ):
        return TILES_APART
    work = prod(operands[0].shape) * prod(w.shape[1:]) // number
    return _refuse(plan, work, w.shape[0] // plan.groups, w.shape[1] * plan.groups, plan.x_last, result)


def _takes_tiles(plan: Plan, axes: Axes, images: int, channels: int, outputs: int, result: Meta) -> bool:
    """Return whether Winograd's tiles are estimated to take less time; they are not made together with what follows."""
    if plan.algorithm != "auto" or winograd.unfit(axes, result.dtype) is not None:
        return False
    groups = plan.groups
    ours, products = winograd.seconds(groups, channels, outputs // groups, images, axes, result.dtype.itemsize)
    return ours < products


def _refuse(plan: Plan, work: int, channels: int, outputs: int, last: bool, result: Meta) -> str:
    if plan.algorithm not in JOINED:
        return f"algorithm is {plan.algorithm!r}"
    if result.dtype.char not in "fd" or work < CONTRACTION_COMPILED:
        return "it is not worth compiling"
    return "" if can_end(plan.groups, channels, outputs // plan.groups, last) else "its sums lie apart"


OUTPUTS = Pending("conv", _compute_outputs, lambda plan: plan.y_last, _refuse_outputs)
INPUTS = Pending("conv_transpose", _compute_inputs, lambda plan: plan.x_last, _refuse_inputs)
