"""Charts of the committed benchmark result as HTML and SVG: the first picture of the pages, and the benchmarks' panels.

All figures are read from `_static/benchmarks.json`, which `python -m benchmarks engine --out docs/_static` writes. The
charts take their colours from the page, light or dark, and stand below each other where the screen is narrow.
"""

from __future__ import annotations

import inspect
import json
from collections.abc import Iterable, Sequence
from html import escape
from math import ceil, exp, floor, log, log10
from pathlib import Path
from typing import Any

from benchmarks import workloads
from benchmarks.chart import MARKS
from benchmarks.report import FUSED, NUMPY, OURS

RESULT = Path(__file__).resolve().parent / "_static" / "benchmarks.json"

# The expression that the first picture shows, and the dtype it was run in.
SHOWN, DTYPE = "gelu", "float32"

# What libraries are called in words.
NAMES = {NUMPY: "NumPy", "torch": "PyTorch", "torch.compile": "compiled PyTorch", "jax": "JAX"}

# The marks of benchmarks/chart.py as paths around 0, in pixels.
PATHS = {
    "o": "M-4 0a4 4 0 1 0 8 0a4 4 0 1 0-8 0",
    "s": "M-3.5-3.5h7v7h-7z",
    "^": "M0-4.5l4.5 8h-9z",
    "v": "M0 4.5l4.5-8h-9z",
    "D": "M0-5l5 5l-5 5l-5-5z",
    "*": "M0-5.5l1.5 4h4l-3.2 2.5l1.2 4l-3.5-2.4l-3.5 2.4l1.2-4l-3.2-2.5h4z",
}

# In pixels: a panel's width, what its labels take of that, the space right of it, and a line's height.
WIDTH, LABELS, MARGIN, LINE = 360, 122, 18, 18


def result() -> dict[str, Any]:
    """Return the committed result."""
    found: dict[str, Any] = json.loads(RESULT.read_text(encoding="utf-8"))
    return found


def mean(numbers: Iterable[float]) -> float:
    """Return the geometric mean."""
    logs = [log(number) for number in numbers]
    return exp(sum(logs) / len(logs))


def ratios(rows: Iterable[dict[str, Any]], peer: str) -> list[float]:
    """Return a peer's least times over xtensor's, where it takes part."""
    return [row["times"][peer]["least"] / row["times"][OURS]["least"] for row in rows if peer in row["times"]]


# ---- the first picture


def speed(found: dict[str, Any]) -> str:
    """Return one expression, the time that each library takes for it, and what holds for all expressions, as HTML."""
    largest = max(row["size"] for row in found["rows"])
    (row,) = [one for one in found["rows"] if (one["workload"], one["dtype"], one["size"]) == (SHOWN, DTYPE, largest)]
    times = {name: taken["least"] for name, taken in row["times"].items() if name != FUSED}
    bars = [_bar(name, times[name], max(times.values())) for name in sorted(times, key=lambda name: times[name])]
    return "".join(
        [
            '<figure class="speed">',
            f"<pre>{escape(_expression())}</pre>",
            f"<p>Written as for NumPy, run as one loop of machine code: {largest:,} {DTYPE} numbers take</p>",
            f'<table role="img" aria-label="{escape(_in_words(times))}">{"".join(bars)}</table>',
            f"<figcaption>{_caption(found, largest)}</figcaption></figure>",
        ]
    )


def _expression() -> str:
    """Return the expression that is run, in xtensor's words."""
    body = inspect.getsource(getattr(workloads, SHOWN)).partition("return ")[2]
    return f"y = {body.strip().replace('xp.', 'xt.')}"


def _bar(name: str, seconds: float, longest: float) -> str:
    ours = ' class="ours"' * (name == OURS)
    bar = f'<div style="width:{100 * seconds / longest:.1f}%"></div>'
    return f"<tr{ours}><th>{NAMES.get(name, name)}</th><td>{bar}</td><td>{seconds * 1e3:.1f} ms</td></tr>"


def _in_words(times: dict[str, float]) -> str:
    return ", ".join([f"{NAMES.get(name, name)} {seconds * 1e3:.1f} milliseconds" for name, seconds in times.items()])


def _caption(found: dict[str, Any], largest: int) -> str:
    """Return on what machine that was, and the mean over all expressions, of large arrays and of small ones."""
    machine, smallest = found["machine"], min(row["size"] for row in found["rows"])
    many = [row for row in found["rows"] if row["size"] == largest]
    few = [row for row in found["rows"] if row["size"] == smallest]
    peers = [name for name in many[0]["times"] if name not in (OURS, FUSED)]
    means = [f"{NAMES.get(name, name)} {mean(ratios(many, name)):.0f}" for name in peers]
    return (
        f"{machine['cpu']}, {machine['cores']} cores. Over {len({row['workload'] for row in many})} expressions of "
        f"this size the others take, in the geometric mean, so many times as long: {', '.join(means)}. Arrays of "
        f"{smallest} numbers are NumPy's own ground: there it takes {mean(ratios(few, NUMPY)):.1f} times as long as "
        'xtensor. <a href="benchmarks.html">All of it, and how it was measured</a>.'
    )


# ---- the panels


def panels(found: dict[str, Any]) -> str:
    """Return each library's time over xtensor's, a panel for each size, with a legend, as HTML."""
    names = list(dict.fromkeys(row["workload"] for row in found["rows"]))
    every = [one for peer in MARKS for one in ratios(found["rows"], peer)]
    reach = floor(log10(min(every))), ceil(log10(max(every)))
    sizes = sorted({row["size"] for row in found["rows"]})
    drawn = [_panel([row for row in found["rows"] if row["size"] == size], size, names, reach) for size in sizes]
    legend = "".join([f"<span>{_sample(peer)} {escape(NAMES.get(peer, peer))}</span>" for peer in MARKS])
    return f'<div class="panels"><p class="legend">{legend}</p>{"".join(drawn)}</div>'


def _panel(rows: Sequence[dict[str, Any]], size: int, names: Sequence[str], reach: tuple[int, int]) -> str:
    """Return one size: a line for each workload, with a mark for each library, the mean over the dtypes."""
    height = LINE * (len(names) + 3)
    parts = [f'<text x="{LABELS}" y="14" font-weight="bold">{size:,} elements</text>']
    for power in range(reach[0], reach[1] + 1):
        x, wide = _across(10.0**power, reach), 1.5 if power == 0 else 0.4
        parts.append(f'<path d="M{x:.1f} {LINE + 4}V{height - LINE}" stroke="currentColor" stroke-width="{wide}"/>')
        parts.append(f'<text x="{x:.1f}" y="{height - 4}" text-anchor="middle">{10.0**power:g}</text>')
    for place, name in enumerate(names):
        y = LINE * (place + 2)
        parts.append(f'<text x="{LABELS - 8}" y="{y + 4}" text-anchor="end">{escape(name)}</text>')
        for peer in MARKS:
            taken = ratios([row for row in rows if row["workload"] == name], peer)
            if taken:
                parts.append(_mark(peer, _across(mean(taken), reach), y, f"{peer}: {mean(taken):.2f}"))
    words = f"Times of each library over xtensor's on arrays of {size:,} elements"
    head = f'<svg viewBox="0 0 {WIDTH} {height}" role="img" aria-label="{words}" font-size="12" fill="currentColor">'
    return f"{head}{''.join(parts)}</svg>"


def _across(number: float, reach: tuple[int, int]) -> float:
    """Return where a number stands on the logarithmic axis."""
    part = (log10(number) - reach[0]) / (reach[1] - reach[0])
    return LABELS + part * (WIDTH - LABELS - MARGIN)


def _mark(peer: str, x: float, y: float, words: str) -> str:
    colour, shape = MARKS[peer]
    fill = "currentColor" if peer == NUMPY else colour  # black would be lost on a dark page
    path = f'<path d="{PATHS[shape]}" transform="translate({x:.1f} {y:.1f})" fill="{fill}" fill-opacity="0.85">'
    return f"{path}<title>{escape(words)}</title></path>"


def _sample(peer: str) -> str:
    return f'<svg width="14" height="14" viewBox="-7 -7 14 14" fill="currentColor">{_mark(peer, 0, 0, peer)}</svg>'
