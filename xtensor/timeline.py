"""The timeline of a profile as SVG: a row for each thread, a bar for each entry, time to the right."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from html import escape
from itertools import takewhile
from math import floor, log10

from .base.machine import size_text
from .base.profiling import KERNEL, LIBRARY, PREPARE, WAIT, Entry
from .drawing import FONT, INK, LETTER, LINE, LOOKS, PAD, heading_of
from .run.sketch import BETWEEN, GIVEN, HANDED
from .run.sketch import KERNEL as BOX

# The look of each kind of entry, in the order of the legend.
KINDS = {KERNEL: BOX, LIBRARY: GIVEN, PREPARE: BETWEEN, WAIT: HANDED}

# In pixels: the width of the picture and the height of a row. The most entries that are drawn, and marks on the axis.
WIDTH, ROW, ENTRIES, MARKS = 720, 40, 2000, 8


def svg_of(title: str, entries: Sequence[Entry], began: float, seconds: float) -> str:
    """Return the timeline of a block that began at `began` and took `seconds` as SVG."""
    drawn = entries[:ENTRIES]
    threads = list(dict.fromkeys([entry.thread for entry in drawn]))
    heading = _wrapped(title) + ([f"the first {ENTRIES} of {len(entries)} entries"] if len(entries) > ENTRIES else [])
    top = len(heading) * LINE + 2 * PAD
    bottom = top + len(threads) * ROW
    scale = (WIDTH - 2 * PAD) / (seconds or 1.0)
    bars = [
        _bar(one, PAD + (one.began - began) * scale, one.seconds * scale, top + threads.index(one.thread) * ROW)
        for one in drawn
    ]
    parts = [heading_of(heading, WIDTH), *_axis(seconds, scale, top, bottom), *bars, _legend(bottom + 2 * LINE)]
    height = bottom + 3 * LINE + PAD
    size = f'width="{WIDTH}" height="{height}" viewBox="0 0 {WIDTH} {height}"'
    head = f'<svg xmlns="http://www.w3.org/2000/svg" {size} font-family="{FONT}" font-size="12" fill="{INK}">'
    return f"{head}{''.join(parts)}</svg>"


def _bar(entry: Entry, x: float, width: float, y: float) -> str:
    """Return an entry as a bar with its words, and with more of them in a tooltip."""
    fill, border, dashes = LOOKS[KINDS[entry.kind]]
    words, width = entry.words, max(width, 1.0)
    dashed = f' stroke-dasharray="{dashes}"' * bool(dashes)
    place = f'x="{x:.2f}" y="{y + 4:.1f}" width="{width:.2f}" height="{ROW - 8}" rx="{min(3.0, width / 3):.1f}"'
    more = [f"{entry.kind} ({entry.by}): {words}", f"{entry.seconds * 1e3:.3f} ms", size_text(entry.nbytes)]
    more += [f"asked for at {entry.line}"] * bool(entry.line) + [f"ended in {entry.failure}"] * bool(entry.failure)
    rectangle = f'<rect {place} fill="{fill}" stroke="{border}"{dashed}/>'
    letters = floor((width - PAD) / LETTER)
    shown = words if len(words) <= letters else f"{words[: letters - 1]}…"
    text = f'<text x="{x + PAD / 2:.2f}" y="{y + ROW / 2 + 4:.1f}">{escape(shown)}</text>' * (letters > 2)
    return f"<g><title>{escape(chr(10).join(more))}</title>{rectangle}{text}</g>"


def _axis(seconds: float, scale: float, top: float, bottom: float) -> Iterable[str]:
    """Yield the background, and marks at round times, in milliseconds."""
    fill, border, _ = LOOKS[BETWEEN]
    yield f'<rect y="{top}" width="{WIDTH}" height="{bottom - top + LINE + PAD}" rx="4" fill="{fill}"/>'
    step = _round(seconds / MARKS) or 1.0
    for number in takewhile(lambda n: n * step <= seconds, range(2 * MARKS + 2)):
        x = PAD + number * step * scale
        yield f'<path d="M{x:.1f} {top}V{bottom}" stroke="{border}" stroke-width="0.5"/>'
        label = f"{number * step * 1e3:g}" + " ms" * (number == 0)
        if x + len(label) * LETTER < WIDTH:
            yield f'<text x="{x:.1f}" y="{bottom + LINE:.1f}">{label}</text>'


def _round(seconds: float) -> float:
    """Return a time rounded up to 1, 2, 5 or 10 times a power of ten."""
    if seconds <= 0:
        return 0.0
    power = 10.0 ** floor(log10(seconds))
    return next(n * power for n in (1, 2, 5, 10) if n * power >= seconds * 0.999)


def _legend(y: float) -> str:
    """Return the legend of the looks of bars."""
    x, parts = float(PAD), []
    for kind, look in KINDS.items():
        fill, border, dashes = LOOKS[look]
        dashed = f' stroke-dasharray="{dashes}"' * bool(dashes)
        parts.append(
            f'<rect x="{x}" y="{y - 11}" width="14" height="14" rx="3" fill="{fill}" stroke="{border}"{dashed}/>'
        )
        parts.append(f'<text x="{x + 20}" y="{y}">{kind}</text>')
        x += 20 + (len(kind) + 3) * LETTER
    ground = f'<rect y="{y - LINE}" width="{x}" height="{LINE + PAD}" rx="4" fill="{LOOKS[BETWEEN][0]}"/>'
    return ground + "".join(parts)


def _wrapped(text: str) -> list[str]:
    """Return words as lines that fit the picture."""
    lines = [""]
    for word in text.split():
        if lines[-1] and (len(lines[-1]) + 1 + len(word)) * LETTER > WIDTH - 2 * PAD:
            lines.append("")
        lines[-1] += " " * bool(lines[-1]) + word
    return lines
