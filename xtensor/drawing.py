"""Sketches of the engine's work, as SVG, as HTML with text below it, and as text for Graphviz.

Items are placed in rows, each below all that it depends on; edges pass through the rows between. Text has fills behind
it with enough contrast, so that a picture can be shown on light and on dark pages.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from html import escape
from itertools import accumulate, pairwise
from unicodedata import east_asian_width

from .run.sketch import BETWEEN, GIVEN, HANDED, KERNEL, NOTE, RESULT, Item, Sketch

# For each look: the fill, the border, and its dashes.
LOOKS = {
    KERNEL: ("#fff6dc", "#c08a12", ""),
    GIVEN: ("#e2eefc", "#2f6fb7", ""),
    BETWEEN: ("#eff1f4", "#7d8899", ""),
    HANDED: ("#eff1f4", "#7d8899", "4 3"),
    RESULT: ("#dff4e4", "#2d8a4b", ""),
    NOTE: ("#eff1f4", "#b6bfcc", ""),
}
INK, EDGE = "#1b2333", "#8490a6"

# The most items of a sketch, lines of an item, and letters of a line that are drawn. The text, and Graphviz, have all.
ITEMS, LINES, LETTERS = 150, 24, 90

# In pixels: a letter's width, a line's height, space within items, between them, between rows, and for a passing edge.
LETTER, LINE, PAD, GAP, RISE, PASS = 7.25, 16, 9, 22, 34, 14

# How often items are moved towards those that they are joined to.
ROUNDS = 8

FONT = "ui-monospace, SFMono-Regular, Menlo, Consolas, 'DejaVu Sans Mono', monospace"


# ---- the parts of a page


def html_of(sketches: Sequence[Sketch], text: str) -> str:
    """Return sketches as HTML, with a text below them that can be unfolded."""
    return page_of(svg_of(sketches), text)


def page_of(picture: str, text: str) -> str:
    """Return an SVG as HTML, with a text below it that can be unfolded."""
    picture = f'<div style="overflow-x:auto">{picture}</div>'
    return f"<div>{picture}<details><summary>as text</summary><pre>{escape(text)}</pre></details></div>"


def svg_of(sketches: Sequence[Sketch]) -> str:
    """Return sketches as SVG, one below the other."""
    parts, width, height = [], 0.0, 0.0
    for sketch in sketches:
        picture = _Picture(_shortened(sketch))
        parts.append(f'<g transform="translate(0 {height:.0f})">{picture.svg()}</g>')
        width, height = max(width, picture.width), height + picture.height
    size = f'width="{width:.0f}" height="{height:.0f}" viewBox="0 0 {width:.0f} {height:.0f}"'
    head = f'<svg xmlns="http://www.w3.org/2000/svg" {size} font-family="{FONT}" font-size="12" fill="{INK}">'
    return f"{head}{''.join(parts)}</svg>"


def dot_of(sketches: Sequence[Sketch]) -> str:
    """Return sketches as text for Graphviz, each a cluster of its own."""
    lines = ["digraph xtensor {", f'  node [fontname=monospace, fontsize=10, style=filled, fontcolor="{INK}"];']
    lines.append(f'  edge [color="{EDGE}"];')
    for number, sketch in enumerate(sketches):
        lines += [f"  subgraph cluster_{number} {{", f"    label={_quoted(sketch.heading)};", "    color=none;"]
        lines += [f"    {_dot_item(f'n{number}_{place}', item)}" for place, item in enumerate(sketch.items)]
        lines += [f"    n{number}_{start} -> n{number}_{end};" for start, end in sketch.edges]
        lines.append("  }")
    return "\n".join([*lines, "}"])


def _dot_item(name: str, item: Item) -> str:
    fill, border, dashes = LOOKS[item.look]
    style = "filled,dashed" if dashes else "filled" if item.look in (KERNEL, NOTE) else "filled,rounded"
    label = _quoted([item.title, *item.lines])
    return f'{name} [shape=box, style="{style}", fillcolor="{fill}", color="{border}", label={label}];'


def _quoted(lines: Iterable[str]) -> str:
    r"""Return lines as one string of Graphviz, each ended by \l, which sets it to the left."""
    inside = [line.replace("\\", "\\\\").replace('"', '\\"') for line in lines]
    return '"' + "".join([f"{line}\\l" for line in inside]) + '"'


# ---- shortening


def _shortened(sketch: Sketch) -> Sketch:
    """Return the part of a sketch that is drawn, with long lines cut; the heading says how much is left out."""
    heading, count = [*map(_short, sketch.heading)], len(sketch.items)
    if count > ITEMS:
        heading.append(f"the first {ITEMS} of {count} boxes")
    edges = [edge for edge in sketch.edges if max(edge) < ITEMS]
    return Sketch(tuple(heading), tuple([_cut(item) for item in sketch.items[:ITEMS]]), tuple(edges))


def _cut(item: Item) -> Item:
    lines, left = item.lines, len(item.lines) - LINES
    if left > 0:
        lines = (*lines[:LINES], f"and {left} more")
    return Item(_short(item.title), tuple([_short(line) for line in lines]), item.look)


def _short(line: str) -> str:
    return line if len(line) <= LETTERS else f"{line[: LETTERS - 1]}…"


# ---- one sketch


class _Picture:
    """A sketch with its layout: the place of each item, and each place at which an edge passes through a row.

    Items are numbered as in the sketch; further numbers are the places where edges pass.
    """

    def __init__(self, sketch: Sketch) -> None:
        self.sketch = sketch
        self.size = {number: _size(item) for number, item in enumerate(sketch.items)}
        self.row = _rows(len(sketch.items), sketch.edges)
        self.places: dict[tuple[int, int], int] = {}
        paths = [self._path(start, end) for start, end in sketch.edges]
        self.pairs = dict.fromkeys([pair for path in paths for pair in pairwise(path)])
        self.joined: dict[int, list[int]] = defaultdict(list)
        for one, other in self.pairs:
            self.joined[one].append(other)
            self.joined[other].append(one)
        rows = self._ordered()
        middles = self._middles(rows)
        left = min([x - self.size[n][0] / 2 for n, x in middles.items()], default=0.0) - PAD
        self.middles = {number: x - left for number, x in middles.items()}
        heading = max(map(_wide, sketch.heading), default=0) * LETTER + PAD
        self.width = max([heading, *[x + self.size[n][0] / 2 for n, x in self.middles.items()]]) + PAD
        self.height = float(PAD + (len(sketch.heading) * LINE + PAD) * bool(sketch.heading))
        self.tops = self._tops(rows)

    def _path(self, start: int, end: int) -> list[int]:
        """Return an edge as the numbers that it passes; edges from one item share places in rows between."""
        path = [start]
        for row in range(self.row[start] + 1, self.row[end]):
            path.append(self.places.setdefault((start, row), len(self.size)))
            self.row[path[-1]], self.size[path[-1]] = row, (PASS, 0)
        return [*path, end]

    def _ordered(self) -> list[list[int]]:
        """Return the numbers of each row, from left to right, near those that they are joined to."""
        rows: list[list[int]] = [[] for _ in range(1 + max(self.row.values(), default=-1))]
        for number, place in self.row.items():
            rows[place].append(number)
        for row, upper in zip(rows[1:], rows, strict=False):
            _sort(row, upper, self.joined)
        for row, lower in zip(rows[-2::-1], rows[::-1], strict=False):
            _sort(row, lower, self.joined)
        return rows

    def _middles(self, rows: Sequence[Sequence[int]]) -> dict[int, float]:
        """Return the horizontal middle of every number: after some rounds near the middles of those it is joined to."""
        middles = dict.fromkeys(self.size, 0.0)
        for row in [*rows, *rows[::-1]] * ROUNDS:
            wanted = [_mean([middles[one] for one in self.joined[number]] or [middles[number]]) for number in row]
            apart = [GAP + (self.size[one][0] + self.size[other][0]) / 2 for one, other in pairwise(row)]
            middles.update(zip(row, _spread(wanted, apart), strict=True))
        return middles

    def _tops(self, rows: Sequence[Sequence[int]]) -> dict[int, float]:
        """Return the upper end of every number; this also sets the heights of the picture and of passing edges."""
        tops = {}
        for row in rows:
            tallest = max([self.size[number][1] for number in row])
            for number in row:
                width, height = self.size[number]
                self.size[number] = width, height or tallest
                tops[number] = self.height + (tallest - self.size[number][1]) / 2
            self.height += tallest + RISE
        self.height += PAD - RISE * bool(rows)
        return tops

    def svg(self) -> str:
        """Return the drawing: edges first, then items over them, under a heading."""
        heading = heading_of(self.sketch.heading, self.width) if self.sketch.heading else ""
        edges = [self._edge(*pair) for pair in self.pairs]
        items = [_box(item, self.middles[n], self.tops[n], *self.size[n]) for n, item in enumerate(self.sketch.items)]
        return "".join([heading, *edges, *items])

    def _edge(self, one: int, other: int) -> str:
        """Return a curve from the lower end of a number to the next one: through a row, or with a head to an item."""
        start, x, y = self.middles[one], self.middles[other], self.tops[other]
        bottom = self.tops[one] + self.size[one][1]
        bend = (bottom + y) / 2
        line = f"M{start:.1f} {bottom:.1f}C{start:.1f} {bend:.1f} {x:.1f} {bend:.1f} {x:.1f} {y:.1f}"
        if other >= len(self.sketch.items):
            return _curve(f"{line}v{self.size[other][1]:.1f}")
        return f'{_curve(line)}<path d="M{x - 4:.1f} {y - 7:.1f}h8l-4 7z" fill="{EDGE}"/>'


def _curve(line: str) -> str:
    return f'<path d="{line}" fill="none" stroke="{EDGE}" stroke-width="1.5"/>'


def _size(item: Item) -> tuple[float, float]:
    """Return the width and height of an item."""
    widest = max([_wide(line) for line in (item.title, *item.lines)])
    return widest * LETTER + 2 * PAD, (1 + len(item.lines)) * LINE + 2 * PAD - 4


def _wide(text: str) -> int:
    """Return the width of a text in letters."""
    return sum([2 if east_asian_width(letter) in "WF" else 1 for letter in text])


def _rows(count: int, edges: Sequence[tuple[int, int]]) -> dict[int, int]:
    """Return the row of each item: below all that lead to it; one without these is right above its first reader."""
    above, below = defaultdict(list), defaultdict(list)
    for start, end in edges:
        above[end].append(start)
        below[start].append(end)
    row: dict[int, int] = {}
    for number in range(count):  # an edge leads to a later item
        row[number] = 1 + max([row[one] for one in above[number]], default=-1)
    for number in range(count):
        if not above[number] and below[number]:
            row[number] = min([row[one] for one in below[number]]) - 1
    return row


def _sort(row: list[int], beside: Sequence[int], joined: Mapping[int, list[int]]) -> None:
    """Sort a row by the mean place of the numbers in the row beside it to which each number is joined."""
    places = {number: (place + 0.5) / len(beside) for place, number in enumerate(beside)}
    own = {number: (place + 0.5) / len(row) for place, number in enumerate(row)}
    row.sort(key=lambda n: _mean([places[one] for one in joined[n] if one in places] or [own[n]]))


def _spread(wanted: Sequence[float], apart: Sequence[float]) -> list[float]:
    """Return numbers near those wanted, each at least `apart` after the one before."""
    right = accumulate(zip(wanted[1:], apart, strict=True), _after, initial=wanted[0])
    turned = [-x for x in wanted[::-1]]
    left = accumulate(zip(turned[1:], apart[::-1], strict=True), _after, initial=turned[0])
    return [(one - other) / 2 for one, other in zip(right, [*left][::-1], strict=True)]


def _after(before: float, next_one: tuple[float, float]) -> float:
    return max(next_one[0], before + next_one[1])


def _mean(numbers: Sequence[float]) -> float:
    return sum(numbers) / len(numbers)


def _box(item: Item, middle: float, y: float, width: float, height: float) -> str:
    """Return an item: a box, or the rounder shape of a value, with its title and lines."""
    fill, border, dashes = LOOKS[item.look]
    dashed = f' stroke-dasharray="{dashes}"' * bool(dashes)
    square, x = item.look in (KERNEL, NOTE), middle - width / 2
    rounding = 4 if square else height / 2.5
    place = f'x="{x:.1f}" y="{y:.1f}" width="{width:.1f}" height="{height:.1f}" rx="{rounding:.1f}"'
    rectangle = f'<rect {place} fill="{fill}" stroke="{border}"{dashed}/>'
    first = y + PAD + 9
    title = _lines([item.title], x + PAD, middle, first, square, ' font-weight="bold"')
    return rectangle + title + _lines(item.lines, x + PAD, middle, first + LINE, square)


def _lines(lines: Sequence[str], left: float, middle: float, y: float, square: bool = True, style: str = "") -> str:
    """Return lines of text, one below the other: aligned to the left in a square box, else centred."""
    place = f'x="{left:.1f}"' if square else f'x="{middle:.1f}" text-anchor="middle"'
    texts = [f'<text {place} y="{y + n * LINE:.1f}"{style}>{escape(line)}</text>' for n, line in enumerate(lines)]
    return "".join(texts)


def heading_of(lines: Sequence[str], width: float) -> str:
    """Return a heading, on a fill of its own, as for all text."""
    height = len(lines) * LINE + PAD
    ground = f'<rect width="{width:.1f}" height="{height}" rx="4" fill="{LOOKS[NOTE][0]}"/>'
    return ground + _lines(lines, PAD, 0, LINE)
