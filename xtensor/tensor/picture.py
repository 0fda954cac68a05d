"""Tensors in notebooks: a line of properties, and a heat map or the first values; a pending tensor stays pending."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape
from math import ceil
from typing import TYPE_CHECKING, Any

import numpy as np

from ..graph.node import Part
from ..run.executor import turn
from ..storage.storage import watching

if TYPE_CHECKING:
    from .face import Tensor

# The most rows and columns of cells, and values in a line; the most pixels of the longer side, and of a cell.
CELLS, VALUES, SIDE, CELL = 32, 8, 192, 24

# Colours from the smallest value to the largest (viridis), and for values that are not finite.
COLORS = (
    *("#440154", "#481a6c", "#472f7d", "#414487", "#39568c", "#31688e", "#2a788e", "#23888e"),
    *("#1f988b", "#22a884", "#35b779", "#54c568", "#7ad151", "#a5db36", "#d2e21b", "#fde725"),
)
NOT_FINITE = "#c0392b"


def html_of(x: Tensor) -> str:
    """Return a tensor as HTML: shape, dtype, device, the number of pending steps, and a picture of its values.

    A pending one has no picture, as it is not computed; while a call is captured it is computed, as for `repr`.
    """
    waiting = _steps_waiting(x)
    facts = [f"<b>Tensor</b> {x.shape}", str(x.dtype), str(x.device)]
    if waiting:
        return f"<div>{_line([*facts, _pending(waiting)])}</div>"
    return f"<div>{_line(facts)}{_picture(x)}</div>"


def bundle_of(x: Tensor) -> dict[str, str]:
    """Return text and HTML of a pending tensor, nothing for others, which IPython shows by `repr` and HTML."""
    waiting = _steps_waiting(x)
    if not waiting:
        return {}
    text = f"Tensor({_pending(waiting)}, shape={x.shape}, dtype={x.dtype}, device={x.device})"
    return {"text/plain": text, "text/html": html_of(x)}


def _steps_waiting(x: Tensor) -> int:
    """Return the number of steps that a tensor's values wait for; 0 if it has values, or they must be computed now."""
    if not x.is_pending or watching() is not None:
        return 0
    with turn():  # so that nobody evaluates it while they are counted
        value: Any = x.value
        return (value.whole if isinstance(value, Part) else value).steps


def _pending(waiting: int) -> str:
    return f"pending: {waiting} step{'s' * (waiting != 1)} to compute"


def _line(facts: Sequence[str]) -> str:
    return f'<div style="font-family:monospace">{" · ".join(facts)}</div>'


def _picture(x: Tensor) -> str:
    """Return the values of a tensor: a heat map of a matrix, or of the first one of a stack; else the first few."""
    native, lead = x.native(), (0,) * (x.ndim - 2)
    if not x.size:
        return _line(["no elements"])
    if x.ndim < 2 or min(x.shape[-2:]) < 2:
        few = x.device.backend.host(native[lead][(slice(VALUES),) * min(x.ndim, 2)]).reshape(-1)[:VALUES]
        more = ["..."] * (x.size > few.size)
        return _line([escape(", ".join([*map(str, few.tolist()), *more]))])
    steps = [ceil(length / CELLS) for length in x.shape[-2:]]
    cells = x.device.backend.host(native[lead][:: steps[0], :: steps[1]])
    shown = [f"of [{', '.join(map(str, lead))}]"] * bool(lead)
    shown += [f"one {what} in {step}" for step, what in zip(steps, ("row", "column"), strict=True) if step > 1]
    return _heat_map(cells, shown)


def _heat_map(cells: Any, shown: Sequence[str]) -> str:
    """Return a matrix as SVG, with a legend below. shown: words that say which part of a tensor it is."""
    with np.errstate(over="ignore"):
        values = np.abs(cells) if cells.dtype.kind == "c" else cells
    values = values.astype(np.float64) / 2  # so that no difference overflows
    finite = np.isfinite(values)
    least, most = (values[finite].min(), values[finite].max()) if finite.any() else (0.0, 0.0)
    level = np.full(values.shape, -1)
    level[finite] = (values[finite] - least) / ((most - least) or 1.0) * (len(COLORS) - 1) + 0.5
    words = [*shown]
    if finite.any():
        words.append(f"{'absolute values ' * (cells.dtype.kind == 'c')}{2 * least:.6g} to {2 * most:.6g}")
    if not finite.all():
        words.append(f'<span style="color:{NOT_FINITE}">{finite.size - finite.sum()} not finite</span>')
    return _svg(level) + _line(words)


def _svg(level: Any) -> str:
    """Return cells as squares, one path for each level; the level -1 is for values that are not finite."""
    rows, columns = level.shape
    side = min(SIDE / max(rows, columns), CELL)
    size = f'width="{columns * side:.0f}" height="{rows * side:.0f}" viewBox="0 0 {columns} {rows}"'
    paths = []
    for one in np.unique(level).tolist():
        squares = "".join([f"M{j} {i}h1v1h-1z" for i, j in np.argwhere(level == one).tolist()])
        paths.append(f'<path fill="{COLORS[one] if one >= 0 else NOT_FINITE}" d="{squares}"/>')
    style = 'style="display:block;margin:4px 0" shape-rendering="crispEdges"'
    return f'<svg xmlns="http://www.w3.org/2000/svg" {size} {style}>{"".join(paths)}</svg>'
