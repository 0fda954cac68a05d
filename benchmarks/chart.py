"""The result of the engine's run as one picture: how much longer each peer takes than xtensor."""

from __future__ import annotations

import sys
from importlib.util import find_spec
from math import exp, log
from pathlib import Path
from typing import Any

from .report import FUSED, NUMPY, Result, ratio

# Okabe and Ito's colours, which colour-blind readers can tell apart; the shapes say the same once more.
MARKS = {
    FUSED: ("#009E73", "*"),
    NUMPY: ("#000000", "o"),
    "numexpr": ("#E69F00", "s"),
    "torch": ("#D55E00", "^"),
    "torch.compile": ("#CC79A7", "v"),
    "jax": ("#0072B2", "D"),
}


def draw(result: Result, folder: Path) -> None:
    """Draw into benchmarks.png, if matplotlib is installed."""
    if not find_spec("matplotlib"):
        print("matplotlib is not installed: no chart", file=sys.stderr)
        return
    from matplotlib.figure import Figure

    names = list(dict.fromkeys(row.workload for row in result.rows))
    figure = Figure(figsize=(2 + 2.9 * len(result.sizes), 1.8 + 0.27 * len(names)), layout="constrained")
    panels = figure.subplots(1, len(result.sizes), sharey=True, sharex=True, squeeze=False)[0]
    for panel, size in zip(panels, result.sizes, strict=True):
        draw_size(panel, result, size, names)
    panels[0].set_yticks(range(len(names)), names)
    panels[0].invert_yaxis()
    trial = " (a quick trial)" if result.quick else ""
    figure.suptitle(f"Time of each library over xtensor's{trial}: right of the line, xtensor is faster", fontsize=11)
    handles, labels = panels[0].get_legend_handles_labels()
    if labels:
        figure.legend(handles, labels, loc="outside lower center", ncols=len(labels), frameon=False)
    figure.savefig(folder / "benchmarks.png", dpi=120)


def draw_size(panel: Any, result: Result, size: int, names: list[str]) -> None:
    """Draw one size: a line of marks a workload, each the geometric mean over the dtypes."""
    panel.axvline(1.0, color="0.3", linewidth=1.2, zorder=1)
    for peer in result.columns:
        found = means(result, size, peer)
        colour, marker = MARKS[peer]
        places = [names.index(name) for name in found]
        panel.scatter(list(found.values()), places, s=26, color=colour, marker=marker, label=peer, zorder=2, alpha=0.85)
    panel.set_xscale("log")
    panel.xaxis.set_major_formatter(lambda value, _: f"{value:g}")
    panel.set_title(f"{size:,} elements", fontsize=10)
    panel.grid(axis="both", color="0.9", linewidth=0.6)
    panel.set_axisbelow(True)
    panel.tick_params(length=0, labelsize=9)
    for side in ("top", "right", "left"):
        panel.spines[side].set_visible(False)


def means(result: Result, size: int, peer: str) -> dict[str, float]:
    """Return a peer's time over xtensor's by workload."""
    found: dict[str, list[float]] = {}
    for row in result.of_size(size):
        if (one := ratio(row, peer)) is not None:
            found.setdefault(row.workload, []).append(log(one))
    return {name: exp(sum(logs) / len(logs)) for name, logs in found.items()}
