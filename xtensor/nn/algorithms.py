"""How convolutions of native arrays are computed: by which algorithm, and by which code.

Of the three functions in conv.py, outputs are made by `Plan` from inputs and weights, and so on. The parameters of
machine code are remembered for other arrays with the same layouts.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial
from itertools import product
from math import prod
from operator import itemgetter
from time import perf_counter
from typing import Any, Literal, NamedTuple, get_args

import numpy as np

from ..base.caches import make_room
from ..base.dtypes import DType, promote
from ..base.layout import Shape
from ..codegen.cpu.compile import host
from ..devices import Device, device_of, library_of
from ..plan.costs import CONTRACTION_COMPILED
from ..plan.layouts import Meta
from ..run.contractions import address
from ..run.joined import Ending, Launcher
from ..run.launches import Begun, Keeper
from . import cudnn_plans as cudnn
from . import elsewhere, winograd
from .contraction import Array, batch_as, contract, contract_weights, empty, pays, summing_dtype
from .disjoint import patch_rows
from .pending import Pending
from .planes import SLOWER
from .product_sums import are_many, product_sums_of
from .shifted import weighted_sums
from .strip_sums import strip_sums_of
from .sweeps import Runs, can_end, is_thin, known, lying, remembered, sweep, sweep_of, thin_sums_of
from .windows import Axes, Axis, batched, kernels, lies_last, outs, phases, sizes, volume

Algorithm = Literal["auto", "direct", "im2col", "tune", "winograd", "winograd4"]
ALGORITHMS: tuple[Algorithm, ...] = get_args(Algorithm)

# Algorithms whose code can also compute the steps that follow.
JOINED = ("auto", "im2col", *winograd.TILES)

# Algorithms for which machine code is remembered, by what is computed.
SWEPT = {
    cudnn.OUTPUTS: JOINED,
    cudnn.INPUTS: ("auto", "im2col"),
    cudnn.WEIGHTS: ALGORITHMS,
}

TILES_APART = "Winograd's tiles take less time, or were asked for, and are followed by few light steps only"

# Windows that have all of an axis, of at least so many elements, are computed as products; gradients of their weights
# with at least so many outputs, as products with fewer leave most of a register empty.
LEAST_PATCH, LEAST_OUTPUTS = 9, 9

# What "tune" found, for so many kinds of arguments.
TUNED = 1024
_fastest: dict[Any, str] = {}


class Plan(NamedTuple):
    """The parameters that the three functions take besides their arrays.

    function: the name for error messages. x_last, y_last: whether channels are the last axis of inputs, of outputs.
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
        """The name that `xt.explain` shows."""
        names = {"kernel": "window", "stride": "stride", "dilation": "dilation"}
        facts = {word: [str(getattr(axis, name)) for axis in self.axes] for name, word in names.items()}
        return ", ".join([f"{word} {'x'.join(numbers)}" for word, numbers in facts.items()])


def compute_outputs(plan: Plan, ending: Ending | None, x: Array, w: Array, bias: Array | None = None) -> Array:
    """Return outputs of native arrays, or write them together with the steps that follow."""
    y = _outputs_of(plan, x, w, bias) if ending is None else ending.target
    if ending is None and (
        _by_launches(cudnn.OUTPUTS, plan, x, w, y, bias) or _by_library(cudnn.OUTPUTS, x, w, y, bias, plan)
    ):
        return y
    x, w, axes = _seen(plan, x, w)
    _forward(x, w, _split(y, plan.y_last, plan.groups), bias, plan, axes, ending and _ending(plan, ending))
    return y


def _seen(plan: Plan, x: Array, w: Array) -> tuple[Array, Array, Axes]:
    """Return inputs and weights with an axis of groups, and the axes. Where each window has all of an axis, as that of
    a fully connected layer, its positions are channels.
    """
    x, w = _split(x, plan.x_last, plan.groups), _grouped(w, plan)
    patches = _patches_in_place(x, plan.axes) if plan.algorithm in ("auto", "im2col") and plan.groups == 1 else None
    if patches is None:
        return x, w, plan.axes
    view, axes = patches
    with suppress(ValueError):  # where weights do not lie so, code that is remembered could not read them where they do
        return view, w.reshape(*w.shape[:2], prod(w.shape[2:]), *[1] * len(axes), copy=False), axes
    return x, w, plan.axes


def _ending(plan: Plan, ending: Ending) -> Ending:
    """Return what follows outputs, whose arrays have an axis of groups."""
    return ending.seen(partial(_split, last=plan.y_last, groups=plan.groups))


def _outputs_of(plan: Plan, x: Array, w: Array, bias: Array | None) -> Array:
    """Return unset outputs."""
    return batch_as(x, w.shape[0], outs(plan.axes), common(x, w, bias), plan.x_last, plan.y_last)


def compute_inputs(plan: Plan, ending: Ending | None, results: Array, w: Array, bias: Array | None = None) -> Array:
    """Return inputs of native arrays, or write them together with the steps that follow."""
    if ending is None:
        dtype, channels = common(results, w, bias), w.shape[1] * plan.groups
        x = batch_as(results, channels, sizes(plan.axes), dtype, plan.y_last, plan.x_last)
    else:
        x = ending.target
    if not x.size:
        return x
    if ending is None and (
        _by_launches(cudnn.INPUTS, plan, x, w, results, bias) or _by_library(cudnn.INPUTS, x, w, results, bias, plan)
    ):
        return x
    split = partial(_split, last=plan.x_last, groups=plan.groups)
    given = _split(results, plan.y_last, plan.groups), _grouped(w, plan), split(x), bias, plan
    _backward(*given, None if ending is None else ending.seen(split))
    return x


def compute_weights(plan: Plan, x: Array, results: Array) -> Array:
    """Return weights of native arrays."""
    channels, outputs = (a.shape[-1 if last else 1] for a, last in ((x, plan.x_last), (results, plan.y_last)))
    w = empty((outputs, channels // plan.groups, *kernels(plan.axes)), common(x, results), x)
    own = x, w, results, None
    if _by_launches(cudnn.WEIGHTS, plan, *own) or _by_library(cudnn.WEIGHTS, *own, plan):
        return w
    a, g = _split(x, plan.x_last, plan.groups), _split(results, plan.y_last, plan.groups)
    contract_weights(plan.function, a, g, _grouped(w, plan), plan.axes, plan.budget)
    return w


def _by_launches(wanted: str, plan: Plan, x: Array, w: Array, y: Array, bias: Array | None) -> bool:
    """Write what is wanted of inputs x, weights and outputs by machine code that is remembered for arrays that lie so,
    plus a bias; return whether that was done.
    """
    if type(x) is not np.ndarray or plan.algorithm not in SWEPT[wanted]:
        return False
    kind = _kind(wanted, plan, x, w, y, bias)
    found = remembered(kind, partial(_launches_of, wanted, plan, x, w, y, bias))
    if found is None:
        return False
    given, results = (y, x) if wanted == cudnn.INPUTS else (x, y)
    is_finite = found.run(given, w, results, bias) is not False
    if not is_finite and plan.algorithm not in winograd.TILES:
        return _by_launches(wanted, plan._replace(algorithm="im2col"), x, w, y, bias)  # which says what is not finite
    return True


def _kind(wanted: str, plan: Plan, x: Array, w: Array, y: Array, bias: Array | None) -> Any:
    """Return all that machine code for arrays depends on."""
    return wanted, plan, lying(x), lying(w), lying(y), None if bias is None else lying(bias)


class Computed(partial[Array]):
    """One of the functions above, of native arrays alone."""

    def ready(self, natives: Sequence[Array], result: Array) -> Begun | None:
        """Return what makes such a result of such arrays where they begin; None where nothing does."""
        wanted, (plan, *_), (one, other, *rest) = WANTED[self.func], self.args, natives
        bias = rest[0] if rest else None
        if type(one) is not np.ndarray or plan.algorithm not in SWEPT[wanted]:
            return None
        if bias is not None and not (bias.flags.c_contiguous and bias.dtype == result.dtype):
            return None
        x, w, y, order = {
            cudnn.OUTPUTS: (one, other, result, (1, 2, 0)),
            cudnn.INPUTS: (result, other, one, (1, 2, 0)),
            cudnn.WEIGHTS: (one, result, other, (1, 0, 2)),
        }[wanted]
        found = known(_kind(wanted, plan, x, w, y, bias), partial(_launches_of, wanted, plan, x, w, y, bias))
        return None if found is None else Begun(found, (*order, 3 if rest else None), wanted != cudnn.WEIGHTS)

    def known(self, operands: Sequence[Array], ending: Ending) -> tuple[Launcher, Array, Any] | None:
        """Return the launcher of what made outputs, or inputs by strides of 1, and what followed, its slots, and what
        keeps weights that are laid out (see `Contraction.known`).
        """
        (plan, *_), (x, w, *rest) = self.args, operands
        views = _joined_views(self.func, plan, x, w, ending) if type(x) is np.ndarray else None
        if views is None:
            return None
        x, own, ending, axes = views
        y, bias = ending.target, rest[0].reshape(own.shape[:2]) if rest else None
        far = address(own) - address(w)
        found: Any = known(_joined_kind(x, own, y, bias, plan, axes, ending))
        copied = bias is not None and not (bias.flags.c_contiguous and bias.dtype == y.dtype)
        if copied and isinstance(found, winograd.ByTiles):
            return None  # they read a copy

        def launch(places: Sequence[int], target: int, slots: int, keeper: Keeper | None) -> bool:
            one, other, *more = places
            words = one, other + far, target, *(more or (0,)), slots
            keeper = keeper and keeper._replace(begin=keeper.begin + far)
            return found.run_at(words, keeper) is not False or plan.algorithm in winograd.TILES

        kept = getattr(found, "kept", None)
        return None if kept is None else (launch, ending.slots_of(y.shape[1]), kept)


def _launches_of(wanted: str, plan: Plan, x: Array, w: Array, y: Array, bias: Array | None, often: bool) -> Runs | None:
    """Return what writes what is wanted where arrays lie like these, None where it is made neither by tiles nor by
    sweeps.

    Views of x, w, y and bias begin where these do.
    """
    y, budget = _split(y, plan.y_last, plan.groups), plan.budget
    if wanted == cudnn.INPUTS or (wanted == cudnn.WEIGHTS and len(w) < LEAST_OUTPUTS):
        x, w, axes = _split(x, plan.x_last, plan.groups), _grouped(w, plan), plan.axes
    else:
        x, w, axes = _seen(plan, x, w)
    if wanted == cudnn.WEIGHTS:
        found = None if plan.algorithm in winograd.TILES else thin_sums_of(x, w, y, axes, often=often)
        if found is None and _takes_weight_tiles(x, y, w, axes, plan):
            scheme = winograd.scheme_of(axes, winograd.TILES.get(plan.algorithm, 2))
            found = winograd.weights_of(x, y, w, axes, scheme, budget)
        makers = (product_sums_of, strip_sums_of) if are_many(w, y) else (strip_sums_of, product_sums_of)
        for made_of in makers:
            found = found or made_of(x, w, y, axes, budget, often=often)
        return found
    if wanted == cudnn.INPUTS:
        patches = _patches_in_place(x, axes) if bias is None and y.size else None
        rows = None if patches is None else patch_rows(w.swapaxes(1, 2))
        if patches is not None and rows is not None:
            return sweep_of(y, rows, patches[0], None, patches[1], budget, often=often)
        back, shift = w.swapaxes(1, 2), None if bias is None else bias.reshape(x.shape[1:3])
        if _is_back_tiled(y, back, x, plan, often):
            scheme, begin = winograd.scheme_of(axes, 2, back=True), address(back) - address(w)
            return winograd.outputs_of(y, back, x, axes, scheme, budget, is_biased=bias is not None, begin=begin)
        if _back_swept(y, back, x, plan, often):
            return sweep_of(y, back, x, shift, axes, budget, back=True, often=often)
        found = sweep_of(y, back, x, shift, axes, budget, back=True, thin=True, often=often)
        own, axes = _one_phase(back, axes)
        return found or _tiles_of(y, own, x, bias, axes, plan, address(own) - address(w), often)
    tiles = _tiles_of(x, w, y, bias, axes, plan, 0, often)
    if tiles is not None or _choice(x, w, y, axes, plan, often)[0] != "im2col":
        return tiles
    return sweep_of(x, w, y, None if bias is None else bias.reshape(w.shape[:2]), axes, budget, often=often)


def _tiles_of(
    x: Array, w: Array, y: Array, bias: Array | None, axes: Axes, plan: Plan, begin: int, often: bool
) -> Runs | None:
    """Return what writes outputs by tiles where those are chosen; begin: as of `winograd.outputs_of`."""
    chosen = _choice(x, w, y, axes, plan, often)[0]
    if chosen not in winograd.TILES:
        return None
    scheme = winograd.scheme_of(axes, winograd.TILES[chosen])
    return winograd.outputs_of(x, w, y, axes, scheme, plan.budget, is_biased=bias is not None, begin=begin)


def _one_phase(w: Array, axes: Axes) -> tuple[Array, Axes]:
    """Return the weights and axes of the convolution that inputs are of outputs, where strides are 1."""
    ways = [phases(axis)[0] for axis in axes]
    return w[(..., *[elements for _, elements, _ in ways])], tuple(axis for *_, axis in ways)


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


def common(*tensors: Any) -> DType:
    """Return the common dtype of tensors or arrays; None stands for one that is not given."""
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
        found = _choice(x, w, y, axes, plan)[0]
        goes_on = found == "im2col" or (found in winograd.TILES and ending.finish.in_registers)
        goes_on = goes_on and plan.algorithm in JOINED
        is_finite = _joined(x, w, y, bias, plan, axes, ending, found) if goes_on else None
        if not is_finite:
            plan = plan if is_finite is None else plan._replace(algorithm="im2col")
            _forward(x, w, y, bias, plan, axes)
            ending.write()
        return

    def run(algorithm: str) -> None:
        if algorithm in winograd.TILES:
            scheme = winograd.scheme_of(axes, winograd.TILES[algorithm])
            finite = winograd.convolve(x, w, y, bias, axes, scheme, plan.budget)
            if finite or (finite is not None and plan.algorithm == algorithm):
                return
        if algorithm == "direct" and x.shape[2]:
            if not elsewhere.direct(x, w, y, bias, axes):
                weighted_sums(plan.function, x, w, y, bias, axes, plan.budget)
        elif not sweep(x, w, y, bias, axes, plan.budget):
            contract(plan.function, x, w, y, bias, axes, plan.budget)

    if plan.algorithm == "tune":
        candidates = ["direct", "im2col"]
        candidates += ["winograd"] * (winograd.unreadable(x, w, y, axes, 2) is None)
        kind = (x.shape, w.shape, y.strides, x.strides, y.dtype, axes, plan.budget, library_of(y))
        run(_tuned(kind, run, candidates, y))
    else:
        run(_choice(x, w, y, axes, plan)[0])


def _joined(
    x: Array, w: Array, y: Array, bias: Array | None, plan: Plan, axes: Axes, ending: Ending, algorithm: str
) -> bool | None:
    """Write outputs and what follows by code that goes on from them, remembered for arrays that lie so; return None if
    there is no such code, and False if tiles that were not asked for found a result that is not finite.

    algorithm: the chosen one.
    """
    given = axes, plan.budget
    kind = _joined_kind(x, w, y, bias, plan, axes, ending)

    def make(often: bool) -> Runs | None:
        if algorithm not in winograd.TILES:
            return sweep_of(x, w, y, bias, *given, often=often, ending=ending)
        scheme = winograd.scheme_of(axes, winograd.TILES[algorithm])
        return winograd.outputs_of(x, w, y, axes, scheme, plan.budget, is_biased=bias is not None, ending=ending)

    found: Any = remembered(kind, make) if type(x) is np.ndarray else None
    if found is None:
        return True if algorithm == "im2col" and sweep(x, w, y, bias, *given, ending=ending) else None
    is_finite = found.run(x, w, y, bias, ending.slots_of(y.shape[1])) is not False
    return is_finite or plan.algorithm in winograd.TILES


def _joined_views(
    function: Any, plan: Plan, x: Array, w: Array, ending: Ending
) -> tuple[Array, Array, Ending, Axes] | None:
    """Return the views and axes of the convolution that one of the functions above is, and what follows it: `_joined`
    is called with these. None for inputs by strides, which are several convolutions.
    """
    if function is compute_outputs:
        x, w, axes = _seen(plan, x, w)
        return x, w, _ending(plan, ending), axes
    if any(axis.stride > 1 for axis in plan.axes):
        return None
    own, axes = _one_phase(_grouped(w, plan).swapaxes(1, 2), plan.axes)
    after = ending.seen(partial(_split, last=plan.x_last, groups=plan.groups))
    return _split(x, plan.y_last, plan.groups), own, after, axes


def _joined_kind(x: Array, w: Array, y: Array, bias: Array | None, plan: Plan, axes: Axes, ending: Ending) -> Any:
    """Return all that machine code for arrays and what follows depends on."""
    lies = *map(lying, (x, w, y)), None if bias is None else lying(bias)
    return "joined", axes, plan.budget, plan.algorithm, *lies, ending.finish


def chosen(plan: Plan, x: Array, w: Array, bias: Array | None = None) -> str:
    """Return which algorithm computes outputs of native arrays, and why."""
    y = _outputs_of(plan, x, w, bias)
    if library_of(x) is not np and has_plan(
        cudnn.OUTPUTS, plan, (cudnn.Lain.of(x), cudnn.Lain.of(w), cudnn.Lain.of(y)), device_of(x)
    ):
        return f"cuDNN: {cudnn.words()}"
    given = _split(x, plan.x_last, plan.groups), _grouped(w, plan), _split(y, plan.y_last, plan.groups)
    return ": ".join(_choice(*given, plan.axes, plan))


def has_plan(wanted: str, plan: Plan, lain: cudnn.Operands, device: Device) -> bool:
    """Return whether cuDNN can compute what is wanted on a device, for inputs, weights and outputs of these layouts."""
    if plan.algorithm != "auto":
        return False
    x, w, y = lain
    lain = x.seen(plan.x_last), w, y.seen(plan.y_last)
    return cudnn.plan_of(wanted, lain, plan.axes, plan.budget, device) is not None


def _words_there(wanted: str, plan: Plan, operands: Sequence[Meta], result: Meta, device: Device) -> str:
    """Return what `xt.explain` says where cuDNN makes outputs or inputs on a device, "" where it does not."""
    one, w, *_ = (cudnn.Lain(a.shape, a.layout.strides, a.dtype, a.layout.offset) for a in operands)
    made = cudnn.Lain(result.shape, result.layout.strides, result.dtype, 0)
    x, y = (one, made) if wanted == cudnn.OUTPUTS else (made, one)
    return f"by cuDNN: {cudnn.words()}" if has_plan(wanted, plan, (x, w, y), device) else ""


def _choice(
    x: Array, w: Array, y: Array, axes: Axes, plan: Plan, often: bool = False, *, back: bool = False
) -> tuple[str, str]:
    """Return the algorithm for arrays as `contract` has them, and why; back: x are outputs, and y inputs."""
    asked = plan.algorithm
    if asked == "auto" and is_thin(x, w):
        compiled = pays(y, SLOWER * y.size * volume(axes), often)
        return ("im2col", "generated code for single channels") if compiled else ("direct", "few channels a group")
    if asked != "auto" and asked not in winograd.TILES:
        return asked, "asked for"
    why = winograd.unreadable(x, w, y, axes, winograd.TILES.get(asked, 2), asked=asked != "auto", back=back)
    if why is not None:
        return "im2col", why
    return (asked, "asked for") if asked != "auto" else winograd.cheaper(x, w.shape[1], y, axes, back=back)


def _takes_weight_tiles(x: Array, y: Array, w: Array, axes: Axes, plan: Plan) -> bool:
    """Return whether the gradient of weights is for Winograd's algorithm, which was asked for or pays.

    With a stride of 2 that is so for registers of 64 bytes (.77 to .89 of the time of products), not for others (1.0 to
    1.25).
    """
    asked = plan.algorithm if plan.algorithm in winograd.TILES else "auto"
    if plan.algorithm not in ("auto", "tune", asked):
        return False
    m = winograd.TILES.get(asked, 2)
    if winograd.unreadable(x, w, y, axes, m, asked=asked != "auto") is not None:
        return False
    machine = host()
    if asked == "auto" and axes[0].stride > 1 and (machine is None or machine.vector_bytes < 64):
        return False
    if asked == "auto" and winograd.cheaper(x, w.shape[1], y, axes, gradient=True)[0] not in winograd.TILES:
        return False
    return summing_dtype(w.dtype, y.size * w[0, 0].size) == w.dtype


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
        make_room(_fastest, TUNED)
        found = _fastest[kind] = min(times, key=lambda algorithm: times[algorithm])
    return found


def _backward(y: Array, w: Array, x: Array, bias: Array | None, plan: Plan, ending: Ending | None = None) -> None:
    """Write inputs: for each phase of the positions modulo the strides a convolution of the outputs by stride 1."""
    back, shift = w.swapaxes(1, 2), None if bias is None else bias.reshape(x.shape[1:3])
    if ending is None and _is_back_tiled(y, back, x, plan):
        scheme = winograd.scheme_of(plan.axes, 2, back=True)
        finite = winograd.convolve(y, back, x, shift, plan.axes, scheme, plan.budget)
        if finite or (finite is not None and plan.algorithm in winograd.TILES):
            return
    if ending is None and plan.algorithm in SWEPT[cudnn.INPUTS]:
        thin = not _back_swept(y, back, x, plan)
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


def _side_by_side(axes: Axes) -> Axes | None:
    """Return the axes of windows, of at least `LEAST_PATCH` elements, that lie side by side, None where they do not.
    Those of a single output do, whatever their stride.
    """
    axes = tuple([axis._replace(stride=axis.kernel) if axis.out == 1 else axis for axis in axes])
    inside = [a == Axis(a.size, a.out, a.kernel, a.kernel, 1, 0) and a.out * a.kernel <= a.size for a in axes]
    return axes if all(inside) and volume(axes) >= LEAST_PATCH else None


def _patches_in_place(x: Array, axes: Axes) -> tuple[Array, Axes] | None:
    """Return a view of inputs as the result of that product, and its axes, where patches lie in memory as it makes
    them: those that have all of an axis, or nothing of it but one position.
    """
    found = _side_by_side(axes)
    if found is None or any(a.out * a.kernel < a.size or 1 not in (a.out, a.kernel) for a in found):
        return None
    first = min([n for n, a in enumerate(found) if a.out > 1], default=len(found))
    if any(a.kernel > 1 for a in found[first:]):
        return None
    lengths = [a.out for a in found]
    try:
        view = x.reshape(*x.shape[:2], -1, *lengths, copy=False)
    except ValueError:
        return None
    return view, tuple(Axis(n, n, 1, 1, 1, 0) for n in lengths)


def _is_back_tiled(y: Array, w: Array, x: Array, plan: Plan, often: bool = False) -> bool:
    """Return whether inputs are made of outputs by tiles whose windows have a stride: by stride 1 these are tiles of
    another convolution.
    """
    if all(axis.stride == 1 for axis in plan.axes) or plan.algorithm == "tune":
        return False
    return _choice(y, w, x, plan.axes, plan, often, back=True)[0] in winograd.TILES


def _back_swept(y: Array, w: Array, x: Array, plan: Plan, often: bool = False) -> bool:
    """Return whether inputs are swept from outputs whatever groups there are: by strides of 1 they are one convolution,
    of which there may be faster ones.
    """
    if any(axis.stride > 1 for axis in plan.axes):
        return True
    own, axes = _one_phase(w, plan.axes)
    return _choice(y, own, x, axes, plan, often)[0] == "im2col"


def _refuse_outputs(plan: Plan, operands: Sequence[Meta], result: Meta, *, is_light: bool) -> str:
    """Return why what follows outputs is not computed with them, "" where it is."""
    w = operands[1]
    work, last = prod(result.shape) * prod(w.shape[1:]), _lies_last(plan.y_last, result)
    if _takes_tiles(plan, plan.axes, operands[0].shape[0], w.shape[1], w.shape[0], work, result, last=last):
        return "" if is_light else TILES_APART
    return _refuse(plan, work, w.shape[1], w.shape[0], last, result)


def _refuse_inputs(plan: Plan, operands: Sequence[Meta], result: Meta, *, is_light: bool) -> str:
    """Return why what follows inputs is not computed with them: each phase is a convolution of its own."""
    w, number = operands[1], prod(axis.stride for axis in plan.axes)
    if any(axis.kernel < axis.stride for axis in plan.axes):
        return "positions are left out"
    last = _lies_last(plan.x_last, result)
    if number > 1 and not last:
        return "its sums lie apart"
    axes = tuple(phases(axis)[0][2] for axis in plan.axes) if number == 1 else plan.axes
    sizes = result.shape[0], w.shape[0] // plan.groups, w.shape[1] * plan.groups
    work = prod(operands[0].shape) * prod(w.shape[1:]) // number
    if _takes_tiles(plan, axes, *sizes, work, result, last=last, back=number > 1):
        return "" if is_light and number == 1 else TILES_APART
    return _refuse(plan, work, w.shape[0] // plan.groups, w.shape[1] * plan.groups, last, result)


def _lies_last(last: bool, result: Meta) -> bool:
    """Return whether the channels of a result, its last axis or the second, lie nearest to each other."""
    return last or lies_last(result.shape, result.layout.strides)


def _takes_tiles(
    plan: Plan,
    axes: Axes,
    images: int,
    channels: int,
    outputs: int,
    work: int,
    result: Meta,
    *,
    last: bool,
    back: bool = False,
) -> bool:
    """Return whether Winograd's tiles are asked for, or worth compiling and estimated to take less time.

    work: multiplications. last: whether channels come last. back: of inputs from outputs, whose windows have a stride.
    """
    if winograd.unfit(axes, result.dtype, winograd.TILES.get(plan.algorithm, 2)) is not None:
        return False
    if plan.algorithm != "auto" or work < CONTRACTION_COMPILED:
        return plan.algorithm in winograd.TILES
    sizes = plan.groups, channels, outputs // plan.groups, images
    ours, products = winograd.seconds(*sizes, axes, result.dtype.itemsize, in_rows=not last, back=back)
    return ours < products


def _refuse(plan: Plan, work: int, channels: int, outputs: int, last: bool, result: Meta) -> str:
    if plan.algorithm not in JOINED:
        return f"algorithm is {plan.algorithm!r}"
    if result.dtype.char not in "fd" or work < CONTRACTION_COMPILED:
        return "it is not worth compiling"
    return "" if can_end(plan.groups, channels, outputs // plan.groups, last) else "its sums lie apart"


def _outputs(plan: Plan, operands: Sequence[Shape]) -> tuple[Shape, int]:
    """Return the shape of outputs, and how many multiplications they are."""
    x, w, *_ = operands
    shape = batched(x[0], w[0], outs(plan.axes), plan.y_last)
    return shape, prod(shape) * prod(w[1:])


def _inputs(plan: Plan, operands: Sequence[Shape]) -> tuple[Shape, int]:
    """Return the shape of inputs, and how many multiplications they are."""
    results, w, *_ = operands
    return batched(results[0], w[1] * plan.groups, sizes(plan.axes), plan.x_last), prod(results) * prod(w[1:])


# What each of the functions writes.
WANTED = {compute_outputs: cudnn.OUTPUTS, compute_inputs: cudnn.INPUTS, compute_weights: cudnn.WEIGHTS}

OUTPUTS = Pending(
    "conv",
    compute_outputs,
    _outputs,
    lambda plan: plan.y_last,
    _refuse_outputs,
    Computed,
    partial(_words_there, cudnn.OUTPUTS),
)
INPUTS = Pending(
    "conv_transpose",
    compute_inputs,
    _inputs,
    lambda plan: plan.x_last,
    _refuse_inputs,
    Computed,
    partial(_words_there, cudnn.INPUTS),
)
