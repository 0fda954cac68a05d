"""The charts of the pages say what the benchmark's result says, in a width that narrow screens have."""

from __future__ import annotations

import re
import sys
from html import unescape
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest

from benchmarks import workloads
from benchmarks.chart import MARKS

DOCS = Path(__file__).resolve().parent.parent / "docs"

sys.path.insert(0, str(DOCS))
import charts  # noqa: E402 - in docs/, found through the line above

sys.path.remove(str(DOCS))

NARROW = 400  # pixels of a small telephone


def row(workload: str, dtype: str, size: int, **milliseconds: float) -> dict[str, Any]:
    """Return a row of a result."""
    times = {name: {"least": one / 1e3, "median": one / 1e3} for name, one in milliseconds.items()}
    return {"workload": workload, "dtype": dtype, "size": size, "times": times}


@pytest.fixture
def result() -> dict[str, Any]:
    """Two expressions, of two sizes, by three libraries; one of them lacks one."""
    rows = [
        row("gelu", "float32", 10_000_000, xtensor=2.0, numpy=40.0, jax=10.0, **{"xtensor.fuse": 1.0}),
        row("gelu", "float64", 10_000_000, xtensor=4.0, numpy=20.0, jax=20.0),
        row("axpy", "float32", 10_000_000, xtensor=1.0, numpy=10.0),
        row("gelu", "float32", 100, xtensor=1.0, numpy=0.5, jax=2.0),
        row("axpy", "float32", 100, xtensor=1.0, numpy=0.5, jax=3.0),
    ]
    return {"machine": {"cpu": "A <processor>", "cores": 3}, "rows": rows}


def bars(page: str) -> list[tuple[str, float, str]]:
    """Return label, width in percent and time of every bar."""
    found = re.findall(r"<th>(.*?)</th><td><div style=\"width:([\d.]+)%\"></div></td><td>(.*?)</td>", page)
    return [(unescape(label), float(width), time) for label, width, time in found]


def test_bars_are_times_on_one_scale(result: dict[str, Any]) -> None:
    """The shortest first; fused functions have their own place, on the benchmarks' page."""
    page = charts.speed(result)
    assert bars(page) == [("xtensor", 5.0, "2.0 ms"), ("JAX", 25.0, "10.0 ms"), ("NumPy", 100.0, "40.0 ms")]
    assert page.count('class="ours"') == 1
    assert "10,000,000 float32 numbers" in page


def test_the_caption_has_the_means_of_all_expressions(result: dict[str, Any]) -> None:
    """Of large arrays and of small ones, where NumPy is faster, and the machine."""
    page = charts.speed(result)
    assert "A <processor>, 3 cores. Over 2 expressions" in page
    assert "NumPy 10, JAX 5. " in page  # of 20, 5 and 10; of 5 and 5
    assert "Arrays of 100 numbers" in page and "it takes 0.5 times as long as" in page


def test_the_expression_is_the_one_that_was_measured() -> None:
    """It is read from the benchmark's code."""
    (shown,) = re.findall(r"<pre>(.*?)</pre>", charts.speed(charts.result()))
    code = unescape(shown).removeprefix("y = ").replace("xt.tanh", "abs")
    for x in (-1.5, 0.25, 3.0):
        expected = workloads.gelu(type("xp", (), {"tanh": staticmethod(abs)}), x)
        assert eval(code, {"abs": abs, "x": x}) == expected


def test_the_committed_result_is_shown() -> None:
    """Every library that took part, with its own time."""
    found = charts.result()
    largest = max(one["size"] for one in found["rows"])
    (shown,) = [
        one for one in found["rows"] if (one["workload"], one["dtype"], one["size"]) == ("gelu", "float32", largest)
    ]
    expected = {f"{taken['least'] * 1e3:.1f} ms" for name, taken in shown["times"].items() if name != "xtensor.fuse"}
    assert {time for _, _, time in bars(charts.speed(found))} == expected


def panels_of(page: str) -> list[ElementTree.Element]:
    """Return the panels, without the samples in the legend."""
    return [one for one in ElementTree.fromstring(page) if one.tag == "svg"]


def marks(panel: ElementTree.Element) -> dict[str, list[float]]:
    """Return how far to the right each library's marks are, by what is said of them."""
    found: dict[str, list[float]] = {}
    for path in panel.iter("path"):
        title = path.find("title")
        if title is not None:
            (across,) = re.findall(r"translate\(([\d.]+) ", path.attrib["transform"])
            found.setdefault(str(title.text), []).append(float(across))
    return found


def test_panels_have_a_mark_for_each_library_and_workload(result: dict[str, Any]) -> None:
    """The mean over the dtypes, at its place on a logarithmic axis."""
    small, large = panels_of(charts.panels(result))
    assert set(marks(large)) == {"xtensor.fuse: 0.50", "numpy: 10.00", "jax: 5.00"}
    assert len(marks(large)["numpy: 10.00"]) == 2
    assert set(marks(small)) == {"numpy: 0.50", "jax: 2.00", "jax: 3.00"}
    places = {float(words.partition(": ")[2]): across[0] for words, across in {**marks(small), **marks(large)}.items()}
    assert sorted(places, key=lambda ratio: places[ratio]) == sorted(places)
    assert 2 * (places[10.0] - places[5.0]) == pytest.approx(places[2.0] - places[0.5], rel=0.02)  # 2, and 2 times 2


def test_panels_fit_a_narrow_screen() -> None:
    """Each is narrower than one, with letters of a readable size, and nothing leaves it."""
    drawn = panels_of(charts.panels(charts.result()))
    assert len(drawn) == len({one["size"] for one in charts.result()["rows"]})
    for panel in drawn:
        _, _, width, height = map(float, panel.attrib["viewBox"].split())
        assert width <= NARROW and float(panel.attrib["font-size"]) >= 12
        assert all(0 < across < width for places in marks(panel).values() for across in places)
        for text in panel.iter("text"):
            length, x = 0.58 * 12 * len(text.text or ""), float(text.attrib["x"])
            left = {"end": x - length, "middle": x - length / 2}.get(text.attrib.get("text-anchor", ""), x)
            assert left >= 0 and left + length <= width and float(text.attrib["y"]) <= height


def test_every_mark_has_a_shape() -> None:
    """A new peer's mark needs a path."""
    assert {shape for _, shape in MARKS.values()} <= charts.PATHS.keys()


def test_pages_of_the_gallery_have_figures() -> None:
    """The cards show the first one of each page that the list names."""
    listed = re.findall(r"```{gallery}\n(.*?)```", (DOCS / "gallery.md").read_text(encoding="utf-8"), re.DOTALL)
    names = listed[0].split()
    assert len(names) == 6 and {f"{name}.md" for name in names} == {page.name for page in DOCS.glob("gallery-*.md")}
    for name in names:
        assert "```{plot}" in (DOCS / f"{name}.md").read_text(encoding="utf-8")
