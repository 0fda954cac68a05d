"""What is not elementwise on a CUDA device: sorts, running sums, masks, indices, transposed copies and convolutions,
beside CuPy and PyTorch. Every result is compared with CuPy's, or PyTorch's, before it is timed.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from importlib import import_module
from typing import Any, NamedTuple

from .measure import table

SIDE = 8192
TOLERANCE = 1e-4


class Row(NamedTuple):
    """One line: the same in each library, of a matrix and of indices of rows."""

    name: str
    xtensor: Callable[[Any, Any, Any], Any]
    cupy: Callable[[Any, Any, Any], Any]
    torch: Callable[[Any, Any, Any], Any]


ROWS = (
    Row(
        "sort, axis 1",
        lambda xp, x, i: xp.sort(x, axis=1),
        lambda xp, x, i: xp.sort(x, axis=1),
        lambda xp, x, i: xp.sort(x, dim=1).values,
    ),
    Row(
        "argsort, axis 1",
        lambda xp, x, i: xp.argsort(x, axis=1),
        lambda xp, x, i: xp.argsort(x, axis=1),
        lambda xp, x, i: xp.argsort(x, dim=1, stable=True),
    ),
    *(
        Row(
            f"cumsum, axis {axis}",
            lambda xp, x, i, axis=axis: xp.cumulative_sum(x, axis=axis),
            lambda xp, x, i, axis=axis: xp.cumsum(x, axis=axis),
            lambda xp, x, i, axis=axis: xp.cumsum(x, axis),
        )
        for axis in (0, 1)
    ),
    Row("x[x > 0]", *(lambda xp, x, i: x[x > 0],) * 3),
    Row("rows by index", *(lambda xp, x, i: x[i],) * 3),
    Row("columns by index", *(lambda xp, x, i: x[:, i],) * 3),
    Row(
        "transposed copy",
        lambda xp, x, i: x.T.copy(),
        lambda xp, x, i: xp.ascontiguousarray(x.T),
        lambda xp, x, i: x.T.contiguous(),
    ),
)

# Batch, channels, side, outputs, window, stride, padding, groups.
LAYERS = {
    "stem 7x7": (32, 3, 224, 64, 7, 2, 3, 1),
    "3x3": (32, 64, 56, 64, 3, 1, 1, 1),
    "1x1": (32, 64, 56, 256, 1, 1, 0, 1),
    "3x3, many channels": (32, 256, 14, 256, 3, 1, 1, 1),
    "depthwise": (32, 96, 56, 96, 3, 1, 1, 96),
}


def layouts(seconds_of: Callable[[Callable[[], Any]], float], side: int = SIDE) -> str:
    """Return the table of ROWS, in milliseconds."""
    cp, xt, torch = import_module("cupy"), import_module("xtensor"), torch_there()
    x = cp.random.standard_normal((side, side), dtype=cp.float32)
    i = cp.random.permutation(side)
    lines = []
    for row in ROWS:
        wanted = row.cupy(cp, x, i)
        cells = [row.name]
        given: dict[str, Any] = {"xtensor": (xt, xt.asarray(x), xt.asarray(i)), "cupy": (cp, x, i)}
        if torch:
            given["torch"] = (torch, torch.from_dlpack(x), torch.from_dlpack(i))
        for name in ("xtensor", "cupy", "torch"):
            cells.append(_cell(partial(getattr(row, name), *given[name]), wanted, seconds_of) if name in given else "")
        lines.append(cells)
    return table(f"{side} x {side} float32, milliseconds", ["what", "xtensor", "cupy", "torch"], lines)


def layers(seconds_of: Callable[[Callable[[], Any]], float]) -> str:
    """Return the table of LAYERS and of their gradients, in milliseconds."""
    cp, xt, torch = import_module("cupy"), import_module("xtensor"), torch_there()
    if torch:
        torch.backends.cudnn.allow_tf32 = False
    lines = []
    for name, (n, channels, side, outputs, window, stride, padding, groups) in LAYERS.items():
        x = cp.random.standard_normal((n, channels, side, side), dtype=cp.float32)
        w = cp.random.standard_normal((outputs, channels // groups, window, window), dtype=cp.float32)
        ways = {"stride": stride, "padding": padding, "groups": groups}
        for what, of in (("forward", _forward), ("gradients", _gradients)):
            theirs = of("torch", torch, [torch.from_dlpack(a) for a in (x, w)], ways) if torch else None
            ours = of("xtensor", xt, [xt.asarray(a) for a in (x, w)], ways)
            wanted = None if theirs is None else theirs()
            cells = [_cell(ours, wanted, seconds_of), "" if theirs is None else _cell(theirs, wanted, seconds_of)]
            lines.append([f"{name}, {what}", *cells])
        cp.get_default_memory_pool().free_all_blocks()
    return table("convolutions of float32, milliseconds", ["layer", "xtensor", "torch"], lines)


def torch_there() -> Any:
    """Return PyTorch, None where it is not installed or sees no device."""
    try:
        torch = import_module("torch")
    except ImportError:
        return None
    return torch if torch.cuda.is_available() else None


def _forward(library: str, xp: Any, operands: Sequence[Any], ways: dict[str, Any]) -> Callable[[], Any]:
    if library == "torch":
        return lambda: xp.nn.functional.conv2d(*operands, **ways)
    return lambda: xp.nn.conv(*operands, **ways)


def _gradients(library: str, xp: Any, operands: Sequence[Any], ways: dict[str, Any]) -> Callable[[], Any]:
    """Return what computes both gradients of the sum of squares, the first of which it returns."""
    if library == "torch":

        def run() -> Any:
            with xp.enable_grad():
                leaves = [a.detach().requires_grad_() for a in operands]
                return xp.autograd.grad((xp.nn.functional.conv2d(*leaves, **ways) ** 2).sum(), leaves)[0]

        return run
    back = xp.grad(lambda x, w: xp.sum(xp.nn.conv(x, w, **ways) ** 2), (0, 1))

    def both() -> Any:
        found = back(*operands)
        xp.evaluate(*found)
        return found[0]

    return both


def _cell(call: Callable[[], Any], wanted: Any, seconds_of: Callable[[Callable[[], Any]], float]) -> str:
    """Return the milliseconds of a call, or why there are none."""
    cp = import_module("cupy")
    try:
        if wanted is not None:
            found, right = (cp.from_dlpack(a.detach() if hasattr(a, "detach") else a) for a in (call(), wanted))
            off = float(abs(found.astype(cp.float64) - right).max() / abs(right).max())
            if not off < TOLERANCE:
                return f"wrong {off:.0e}"
        return f"{seconds_of(call) * 1e3:.3f}"
    except Exception as error:  # a library that fails here is reported, and the others go on
        return f"{type(error).__name__}: {error}"[:60]
