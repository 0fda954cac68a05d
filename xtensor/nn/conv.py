"""Convolutions: conv, conv_transpose, correlate, convolve.

What neural networks call a convolution is a correlation: the window is not flipped. Three functions that are linear in
each of their two arguments close the family, because each is the derivative of the others: outputs from inputs and
weights, inputs from outputs and weights, weights from inputs and outputs.
"""

from __future__ import annotations

from typing import Any, Literal, get_args

from ..autograd.rules import conjugate, xt
from ..autograd.tape import differentiable
from ..base.caches import make_room
from ..base.dtypes import NUMERIC, DType
from ..base.errors import check_choice, expected, mismatch, one_of
from ..base.layout import Pairs, Shape
from ..calls.composed import composed_up_to
from ..plan.costs import SMALL_LAYER
from ..standard.padded import unpadded
from ..tensor.face import Tensor
from ..tensor.operands import as_tensor, as_tensors, common_device
from . import winograd
from .algorithms import ALGORITHMS, INPUTS, OUTPUTS, Algorithm, Computed, Plan, chosen, common, compute_weights
from .contraction import Array, natively, packed
from .padding import MODES as PADDING_MODES
from .padding import Mode as PaddingMode
from .padding import check_width, pad
from .windows import (
    Axes,
    Axis,
    axes_of,
    batched,
    channels_last,
    each,
    halves,
    is_plain,
    padding_of,
    sizes,
    spatial,
)

__all__ = ["conv", "conv_algorithm", "conv_transpose", "convolve", "correlate"]

# Scratch in MB, on the CPU and on other devices.
WORKSPACE_MB, WORKSPACE_MB_ELSEWHERE = 64.0, 256.0

# The keyword arguments of `conv` that a plan is made of, in the order in which `_arguments` takes them.
KIND: dict[str, Any] = {"stride": 1, "padding": 0, "dilation": 1, "groups": 1, "layout": None}
KIND |= {"workspace_mb": None, "algorithm": "auto"}

# The plans of convolutions by shapes and arguments, so many at most.
PLANS, OPTIONAL = 1024, (Tensor, type(None))
_plans: dict[Any, Any] = {}


@composed_up_to(SMALL_LAYER, waits=True)
def conv(
    x: Tensor,
    w: Tensor,
    /,
    bias: Tensor | None = None,
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
    negative to leave elements out; or "valid" (none), "same" (as many outputs as inputs divided by stride; if the
    padding is odd, the larger part goes after, with "same_lower" before), "full" (all windows that touch the input).
    padding_mode: the contents of the padding, as in `pad`. groups: channels and outputs are divided into this many
    independent groups. layout: "NCHW" or "NHWC" (1-d: "NCW", "NWC", 3-d: "NCDHW", "NDHWC"), or a pair for input and
    output. With "NCHW" the channels of the result are adjacent in memory if those of x are, as in PyTorch
    (channels_last).

    workspace_mb: the most scratch memory in MB (10^6 bytes), for all threads together; None for 64, and 256 on a CUDA
    device. Modes other than "zeros" also copy x. algorithm: "im2col" multiplies matrices on tiles, "direct" adds
    shifted inputs, "winograd" computes tiles of 2x2 outputs with fewer multiplications and larger rounding errors,
    "winograd4" tiles of 4x4 (3x3 windows with stride 1, or 2 for "winograd", dilation 1, and float32 or float64);
    "auto" decides by the shapes, "tune" by one trial for each kind of arguments. `conv_algorithm` says which one is
    used.

    dtypes are promoted. Integers are computed exactly, and wrap around in their dtype. Raises ValueError if shapes or
    parameters do not fit, TypeError for booleans.
    """
    kind = stride, padding, dilation, groups, layout, workspace_mb, algorithm
    return _outputs(*_arguments(x, w, bias, kind, padding_mode))


def conv_algorithm(
    x: Tensor, w: Tensor, /, bias: Tensor | None = None, *, padding_mode: PaddingMode = "zeros", **kind: Any
) -> str:
    """Return which algorithm `conv` uses for these arguments, and why. kind: the keyword arguments of `conv`.

    Values do not matter, but their memory layout does: pending tensors are computed. With "auto", `conv` uses another
    algorithm than this one if outputs of "winograd" are not finite: it then computes them again by "im2col". Raises as
    `conv` does.

    >>> xt.nn.conv_algorithm(xt.ones((8, 64, 56, 56)), xt.ones((64, 64, 3, 3)), padding=2, dilation=2)
    'im2col: windows are 3x3, dilated'
    """
    if not kind.keys() <= KIND.keys():
        raise TypeError(expected("conv_algorithm", "kind", one_of(KIND), ", ".join(kind)))
    x, w, bias, plan = _arguments(x, w, bias, tuple((KIND | kind).values()), padding_mode)
    found, tensors = list[str](), (x, w) if bias is None else (x, w, bias)

    def run(*arrays: Array) -> Array:
        found.append(chosen(plan, *arrays))
        return arrays[0]

    natively(plan.function, tensors, run)
    return found[0]


def _arguments(
    x: Any, w: Any, bias: Any, kind: tuple[Any, ...], padding_mode: Any
) -> tuple[Tensor, Tensor, Tensor | None, Plan]:
    """Return the operands of `conv`, padded where that is not with zeros, and its plan."""
    stride, padding, dilation, groups, layout, workspace_mb, algorithm = kind
    key = None
    if padding_mode == "zeros" and type(x) is type(w) is Tensor and type(bias) in OPTIONAL and is_plain(kind):
        by = None if bias is None else (bias.shape, bias.dtype.num, bias.device.backend)
        key = kind, x.shape, x.dtype.num, x.device.backend, w.shape, w.dtype.num, w.device.backend, by
        plan = _plans.get(key)
        if plan is not None:
            return x, w, bias, plan
    check_choice("conv", "padding_mode", padding_mode, PADDING_MODES)
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
    _check_algorithm(plan, common(x, w, bias))
    if key is not None:
        make_room(_plans, PLANS)
        _plans[key] = plan
    return x, w, bias, plan


@composed_up_to(SMALL_LAYER, waits=True)
def conv_transpose(
    x: Tensor,
    w: Tensor,
    /,
    bias: Tensor | None = None,
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
    """Return the transposed convolution: the transpose of `conv` with these parameters, applied to x.

    x: (batch, channels, *lengths). w: (channels, outputs / groups, *window). bias: (outputs,). Returns
    (batch, outputs, *lengths) with, along each spatial axis, lengths of
    (length - 1) * stride - before - after + dilation * (window - 1) + 1 + output_padding.

    padding: what is left out of the result before and after, as in `conv`; "same" gives length * stride, "full" leaves
    out dilation * (window - 1) on both sides. output_padding: how much longer the result is at its end, which must be
    less than stride or dilation. padding_mode: "zeros" drops what is left out; the other modes add it to the elements
    from which `pad` would have copied it. The other parameters are as in `conv`.

    Raises ValueError if shapes or parameters do not fit, TypeError for booleans.
    """
    x, w, bias, rank = _operands("conv_transpose", x, w, bias)
    x_last, y_last = channels_last(layout, rank, "conv_transpose")
    channels = x.shape[-1] if x_last else x.shape[1]
    _check_groups("conv_transpose", x, w, groups, w.shape[0], channels)
    _check_bias("conv_transpose", bias, w.shape[1] * groups)
    lengths, window = spatial(x.shape, x_last), w.shape[2:]
    axes, pairs = _transposed_axes(x.shape, lengths, window, stride, padding, output_padding, dilation)
    plan = _plan("conv_transpose", axes, groups, y_last, x_last, _workspace(x, workspace_mb), algorithm)
    _check_algorithm(plan, common(x, w, bias))
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

    mode: "full" for all places where they overlap, n1 + n2 - 1 along an axis; "valid" for those where the shorter lies
    within the longer; "same" for the middle of "full". 1-d arrays are treated as by numpy.correlate: "same" has the
    length of the longer. For 2 and 3 axes "same" has the shape of x1, and "valid" is empty if x2 is longer; if the
    number of elements is even, the middle one is that of MATLAB's filter2.

    Raises ValueError for other modes and numbers of axes and for empty arrays, TypeError for booleans.
    """
    x1, x2 = _pair("correlate", x1, x2, mode)
    if x1.ndim == 1 and x1.size < x2.size:
        return xt.flip(conjugate(correlate(x2, x1, mode)))
    return _slid("correlate", x1, conjugate(x2), mode)


def convolve(x1: Tensor, x2: Tensor, /, mode: Mode = "full") -> Tensor:
    """Return the convolution over 1, 2 or 3 axes: at each place the sum of products of x1 with x2 reversed.

    mode: as in correlate. 1-d arrays are treated as by numpy.convolve, 2-d ones as by MATLAB's conv2. Raises as
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
        return xt.zeros([max(n, 0) for n in lengths], dtype=common(x, w), device=x.device)
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
    return Plan(function, axes, int(groups), x_last, y_last, int(min(workspace_mb * 1e6, 1 << 62)), algorithm)


def _check_algorithm(plan: Plan, dtype: DType) -> None:
    """Raise ValueError for an algorithm that is not for such windows or numbers."""
    tiles = winograd.TILES.get(plan.algorithm)
    why = None if tiles is None else winograd.unfit(plan.axes, dtype, tiles)
    if why is not None:
        others = [name for name in ALGORITHMS if name not in winograd.TILES]
        raise ValueError(expected(plan.function, "algorithm", f"{one_of(others)} as {why}", repr(plan.algorithm)))


# ---- the three functions and how each is the derivative of the others


def _inputs_of(g: Tensor, w: Tensor, plan: Plan) -> Tensor:
    return _inputs(g, conjugate(w), None, plan)


def _weights_of(x: Tensor, results: Tensor, plan: Plan) -> Tensor:
    return _weights(x, results, plan)


def _sum_beside(g: Tensor, last: bool) -> Tensor:
    """Return the sum over all axes but the channels, added up in the next wider dtype, as sums of columns are long."""
    channel = g.ndim - 1 if last else 1
    wider = {xt.float16: xt.float32, xt.float32: xt.float64}.get(g.dtype, g.dtype)
    total: Tensor = xt.sum(g, axis=tuple(axis for axis in range(g.ndim) if axis != channel), dtype=wider)
    return xt.astype(total, g.dtype, copy=False)


@differentiable(
    x=lambda g, w, plan: _inputs_of(packed(g), w, plan),
    w=lambda g, x, plan: _weights_of(conjugate(x), packed(g), plan),
    bias=lambda g, plan: _sum_beside(g, plan.y_last),
)
def _outputs(x: Tensor, w: Tensor, bias: Tensor | None, plan: Plan) -> Tensor:
    """Return outputs from inputs and weights."""
    return OUTPUTS((x, w) if bias is None else (x, w, bias), plan)


@differentiable(
    results=lambda g, w, plan: _outputs(packed(g), conjugate(w), None, plan),
    w=lambda g, results, plan: _weights_of(packed(g), conjugate(results), plan),
    bias=lambda g, plan: _sum_beside(g, plan.x_last),
)
def _inputs(results: Tensor, w: Tensor, bias: Tensor | None, plan: Plan) -> Tensor:
    """Return inputs from outputs and weights: each output times its window, added up where windows lie."""
    return INPUTS((results, w) if bias is None else (results, w, bias), plan)


@differentiable(
    x=lambda g, results, plan: _inputs(conjugate(results), g, None, plan),
    results=lambda g, x, plan: _outputs(conjugate(x), g, None, plan),
)
def _weights(x: Tensor, results: Tensor, plan: Plan) -> Tensor:
    """Return weights from inputs and outputs: each output times the window it came from, added up."""
    return natively(plan.function, (x, results), Computed(compute_weights, plan))
