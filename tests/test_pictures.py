"""Pictures: they are well-formed, say what the text of explain says, and looking at them computes nothing."""

from __future__ import annotations

import pickle
import re
import warnings
from collections.abc import Callable
from typing import Any
from xml.etree import ElementTree

import numpy as np
import pytest

import xtensor as xt
from xtensor import drawing
from xtensor.codegen.cpu.compile import host
from xtensor.explaining import Explanation
from xtensor.plan import costs
from xtensor.run.sketch import Item, Sketch, column_of
from xtensor.tensor.picture import CELLS, COLORS, NOT_FINITE

SVG = "{http://www.w3.org/2000/svg}"

needs_llvm = pytest.mark.skipif(host() is None, reason="generated code needs llvmlite and a fused multiply-add")


def ones(*shape: int, dtype: Any = xt.float64) -> xt.Tensor:
    return xt.ones(shape, dtype=dtype).evaluate()


def texts(picture: str) -> list[str]:
    """Return the lines of text of an SVG, which is well-formed."""
    return [element.text or "" for element in ElementTree.fromstring(picture).iter(f"{SVG}text")]


def boxes(picture: str) -> list[tuple[float, float, float, float]]:
    """Return left, top, right and bottom of all rectangles that are items, not headings."""
    found = [element.attrib for element in ElementTree.fromstring(picture).iter(f"{SVG}rect") if "x" in element.attrib]
    sides = [[float(one[name]) for name in ("x", "y", "width", "height")] for one in found]
    return [(x, y, x + width, y + height) for x, y, width, height in sides]


DOT_STRING = re.compile(r'"(?:[^"\\]|\\.)*"')


def dot_graph(text: str) -> tuple[dict[str, str], list[tuple[str, str]]]:
    """Return the labels of the nodes of a Graphviz text, and its edges; braces and quotes are in pairs."""
    outside = DOT_STRING.sub("", text)
    assert '"' not in outside and outside.count("{") == outside.count("}") > 0
    nodes = dict(re.findall(r'^ *(n\d+_\d+) \[.*label=("(?:[^"\\]|\\.)*")\];$', text, re.MULTILINE))
    edges = re.findall(r"^ *(n\d+_\d+) -> (n\d+_\d+);$", text, re.MULTILINE)
    assert all(end in nodes for edge in edges for end in edge)
    return nodes, edges


def softmax(x: xt.Tensor) -> xt.Tensor:
    e = xt.exp(x - xt.max(x, axis=1, keepdims=True))
    return e / xt.sum(e, axis=1, keepdims=True)


def network(x: xt.Tensor) -> xt.Tensor:
    """Return what takes library calls, loops, and a value that skips some of them."""
    hidden = xt.tanh(xt.matmul(x, x) + xt.named(ones(x.shape[1]), "größe/b-1.x"))
    return hidden + xt.sum(hidden * hidden, axis=0) / xt.argmax(hidden, axis=1)


GRAPHS: dict[str, Callable[[], xt.Tensor]] = {
    "one kernel": lambda: xt.exp(ones(1000) * 2.5) - 1.0,
    "rows": lambda: softmax(ones(300, 400, dtype=xt.float32)),
    "columns": lambda: ones(1000, 100) - xt.mean(ones(1000, 100), axis=0),
    "network": lambda: network(ones(30, 30)),
    "nothing": lambda: ones(0, 4) * 2.0,
    "0-d": lambda: ones() + 1.0,
}


# ---- explain


@pytest.fixture(params=["interpret", "llvm"])
def engine(request: pytest.FixtureRequest) -> str:
    """Plan everything, under two engines."""
    if request.param == "llvm" and host() is None:
        pytest.skip("generated code needs llvmlite and a fused multiply-add")
    return str(request.param)


@pytest.mark.parametrize("name", GRAPHS)
def test_the_picture_says_what_the_text_says(name: str, engine: str) -> None:
    """As many kernels, of the same titles, with the same steps inside; every value that is read or written is there."""
    with xt.options(lazy="always", engine=engine):
        z = GRAPHS[name]()
        text = xt.explain(z)
        assert z.is_pending
    said = texts(text._repr_svg_())
    plan = text[text.index("plan: ") :].splitlines()
    titles = re.findall(r"^  (kernel \d+ over .*?, \w+): ", text, re.MULTILINE)
    assert titles == [line for line in said if line.startswith("kernel ")] != []
    assert said[0] == plan[0]
    steps = [line.strip() for line in plan if " = " in line]
    assert steps == [line for line in said if " = " in line] != []
    moved = {re.findall(r"%\S+", line)[0] for line in plan if re.match(r"    (reads|writes|hands on) ", line)}
    assert moved <= {line for line in said if line.startswith("%") and " " not in line}


@pytest.mark.parametrize("name", GRAPHS)
def test_items_do_not_overlap(name: str, engine: str) -> None:
    """Nor do they stand outside of the picture."""
    with xt.options(lazy="always", engine=engine):
        picture = xt.explain(GRAPHS[name]())._repr_svg_()
    size = ElementTree.fromstring(picture).attrib
    found = boxes(picture)
    for place, (left, top, right, bottom) in enumerate(found):
        assert left >= 0 and top >= 0 and right <= float(size["width"]) and bottom <= float(size["height"])
        for other in found[place + 1 :]:
            apart = right <= other[0] or other[2] <= left or bottom <= other[1] or other[3] <= top
            assert apart, (found[place], other)


@pytest.mark.parametrize("name", GRAPHS)
def test_graphviz_has_the_same_graph(name: str, engine: str) -> None:
    """The same items; a kernel has an edge from each value it reads and to each one it writes."""
    with xt.options(lazy="always", engine=engine):
        text = xt.explain(GRAPHS[name]())
    nodes, edges = dot_graph(text.to_dot())
    assert len(nodes) == len(boxes(text._repr_svg_()))
    assert sum('"kernel ' in label for label in nodes.values()) == len(re.findall("^  kernel", text, re.MULTILINE))
    loops = {number: label for number, label in nodes.items() if '"kernel ' in label and "direct" not in label}
    reads = [edge for edge in edges if edge[1] in loops]
    writes = [edge for edge in edges if edge[0] in loops]
    assert len(reads) == len(re.findall("^    reads ", text, re.MULTILINE))
    assert len(writes) == len(re.findall("^    (?:writes|hands on) ", text, re.MULTILINE))


@needs_llvm
def test_values_look_as_they_lie() -> None:
    """Given, kept, and between kernels, where those that never reach memory have a dashed border."""
    with xt.options(lazy="always", engine="llvm"):
        picture = xt.explain(softmax(ones(300, 400, dtype=xt.float32)))._repr_svg_()
    fills = [element.attrib["fill"] for element in ElementTree.fromstring(picture).iter(f"{SVG}rect")]
    given, handed, kept = [drawing.LOOKS[look][0] for look in ("given", "handed on", "result")]
    assert (fills.count(given), fills.count(kept)) == (1, 1)
    assert picture.count("stroke-dasharray") == 3 and fills.count(handed) == 3 + 1  # and the heading


def test_small_graphs_are_steps() -> None:
    """Where each step is a library call, each is a box."""
    with xt.options(lazy="always"):
        x = xt.named(ones(5), "x")
        text = xt.explain((x + 1) * x)
    assert "plan: one library call per step: no array" in text
    said = texts(text._repr_svg_())
    assert said[:2] == ["graph: 2 steps", "one library call per step: no array takes more than 32 KiB"]
    calls = [line for line in said if " = " in line]
    assert calls == re.findall(r"^  (%\S+ = .*?\))  ", text, re.MULTILINE) and len(calls) == 2


def test_evaluated_and_pending_together() -> None:
    """What has its values has its own box, of the same lines."""
    x = xt.named(ones(3, 4), "x")
    text = xt.explain(x, ones(2))
    assert texts(text._repr_svg_()) == [line.strip() for line in text.splitlines()]
    with xt.options(lazy="always"):
        both = xt.explain(x, x * 2.0)
    nodes, _ = dot_graph(both.to_dot())
    assert any("evaluated: %x" in label for label in nodes.values())
    assert any("multiply(%x, 2.0)" in label for label in nodes.values())
    assert "evaluated: %x float64 (3, 4)" in texts(both._repr_svg_())


def test_fused_functions_are_columns(monkeypatch: pytest.MonkeyPatch) -> None:
    """The instructions of the schedule, in their order."""
    monkeypatch.setattr(costs, "NATIVE_PRODUCT", 0)  # else machine code calls the product

    @xt.fuse
    def step(x: xt.Tensor) -> xt.Tensor:
        return xt.tanh(xt.matmul(x, x)) * 0.5

    x = ones(200, 200)
    assert texts(xt.explain(step)._repr_svg_()) == []
    for _ in range(3):
        step(x)
    text = xt.explain(step)
    said = texts(text._repr_svg_())
    title, *instructions = [line.strip() for line in text.splitlines()[1:] if "schedule of" not in line]
    assert "captured" in title and len(instructions) == 2
    assert said == [repr(step), title, *instructions]
    _, edges = dot_graph(text.to_dot())
    assert edges == [("n0_0", "n0_1")]


def test_equal_instructions_are_counted() -> None:
    """A hundred of one kind are one box."""
    sketch = column_of(["f"], ["a"] * 100 + ["b"] + ["a"] * 2)
    assert [item.title for item in sketch.items] == ["100 times a", "b", "2 times a"]
    assert sketch.edges == ((0, 1), (1, 2))


def test_text_is_escaped() -> None:
    """In SVG, HTML and Graphviz, whatever it says."""
    odd = 'a<b>&"c"\\l{%ü'
    found = Explanation(odd, [Sketch((odd,), (Item(odd, (odd,)),))])
    assert texts(found._repr_svg_()) == [odd] * 3
    page = ElementTree.fromstring(found._repr_html_())
    assert [element.text for element in page.iter("pre")] == [odd]
    nodes, _ = dot_graph(found.to_dot())
    escaped = odd.replace("\\", "\\\\").replace('"', '\\"')
    assert nodes == {"n0_0": f'"{escaped}\\l{escaped}\\l"'}


def test_much_is_cut() -> None:
    """A picture says what it leaves out; Graphviz has everything."""
    with xt.options(lazy="always", engine="interpret"):
        z = ones(1000)
        for number in range(200):
            z = z * float(number)
        text = xt.explain(z)
    said = texts(text._repr_svg_())
    kernels = len(re.findall("^  kernel", text, re.MULTILINE))
    assert sum(line.startswith("and ") for line in said) == kernels
    assert max(map(len, said)) <= drawing.LETTERS
    nodes, _ = dot_graph(text.to_dot())
    assert "".join(nodes.values()).count("multiply(") == 200
    many = Sketch(("many",), tuple([Item(str(number)) for number in range(1000)]), ((0, 999), (0, 1)))
    said = texts(drawing.svg_of([many]))
    assert len(said) == drawing.ITEMS + 2 and said[1] == f"the first {drawing.ITEMS} of 1000 boxes"


def test_edges_of_one_value_share_their_way() -> None:
    """A value that many kernels read, one after the other, does not make the picture wider with each."""

    def width(kernels: int) -> float:
        with xt.options(lazy="always", engine="interpret"):
            w = z = ones(50, 50)
            for _ in range(kernels):
                z = xt.tanh(xt.matmul(z, w))
            picture = xt.explain(z)._repr_svg_()
        assert sum(line.startswith("kernel ") for line in texts(picture)) == 2 * kernels
        return float(ElementTree.fromstring(picture).attrib["width"])

    assert width(30) < width(3) + 100


def test_an_explanation_is_still_a_string() -> None:
    """It survives pickling with its picture, and keeps nothing alive."""
    with xt.options(lazy="always"):
        text = xt.explain(ones(5) + 1.0)
    again = pickle.loads(pickle.dumps(text))
    assert again == text and again._repr_svg_() == text._repr_svg_()
    assert texts(Explanation("plain")._repr_svg_()) == []
    page = ElementTree.fromstring(text._repr_html_())
    assert [element.text for element in page.iter("pre")] == [text]


# ---- tensors

VALUES: dict[str, Any] = {
    "empty": np.zeros((0, 4)),
    "empty stack": np.zeros((0, 4, 4)),
    "0-d": np.asarray(3.5),
    "vector": np.arange(100),
    "column": np.ones((1000, 1)),
    "stack of columns": np.ones((3, 1000, 1)),
    "boolean": np.eye(6, dtype=bool),
    "complex": np.asarray([[1j, 2], [3, 3 + 4j]]),
    "complex vector": np.asarray([1j, np.nan]),
    "not finite": np.asarray([[1.0, 2.0, np.nan], [np.inf, -np.inf, 5.0]]),
    "nothing finite": np.full((3, 3), np.nan),
    "constant": np.full((40, 2), 7, dtype=np.int8),
    "huge": np.asarray([[-1.7e308, 1.7e308], [0.0, 1.0]]),
    "huge complex": np.asarray([[1.7e308 + 1.7e308j, 0], [0, 1]]),
    "huge integers": np.asarray([[2**64 - 1, 0], [1, 2]], dtype=np.uint64),
    "tiny": np.asarray([[5e-324, 0.0], [1e-323, 0.0]]),
    "stack": np.arange(2 * 3 * 64 * 65.0).reshape(2, 3, 64, 65),
    "long": np.arange(3 * 10_000.0).reshape(3, 10_000),
    "reversed": np.arange(30.0).reshape(5, 6)[::-1, ::2],
}


def cells_of(page: ElementTree.Element) -> dict[tuple[int, int], str]:
    """Return the colour of each cell of a heat map, by row and column."""
    found = {}
    for path in page.iter(f"{SVG}path"):
        squares = re.findall(r"M(\d+) (\d+)h1v1h-1z", path.attrib["d"])
        assert "".join([f"M{j} {i}h1v1h-1z" for j, i in squares]) == path.attrib["d"]
        found.update({(int(i), int(j)): path.attrib["fill"] for j, i in squares})
    return found


@pytest.mark.parametrize("name", VALUES)
def test_tensors_are_well_formed(name: str) -> None:
    """They say shape, dtype and device; a matrix has a cell for each element that is shown."""
    x = xt.asarray(VALUES[name], copy=True)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        page = ElementTree.fromstring(x._repr_html_())
    words = "".join(page.itertext())
    assert words.startswith(f"Tensor {x.shape} · {x.dtype} · cpu") and "pending" not in words
    found = cells_of(page)
    if x.ndim < 2 or not x.size or min(x.shape[-2:]) < 2:
        assert not found
        return
    steps = [-(-length // CELLS) for length in x.shape[-2:]]
    shown = VALUES[name][(0,) * (x.ndim - 2)][:: steps[0], :: steps[1]]
    assert max(shown.shape) <= CELLS
    assert {*found} == {*np.ndindex(shown.shape)}
    with np.errstate(over="ignore"):
        size = np.abs(shown) if x.dtype.kind == "c" else shown
    assert {cell for cell, color in found.items() if color == NOT_FINITE} == {
        cell for cell in np.ndindex(shown.shape) if not np.isfinite(size[cell])
    }


def test_colours_follow_the_values() -> None:
    """From the smallest to the largest, in equal steps."""
    x = xt.reshape(xt.linspace(-3.0, 12.0, 16), (4, 4))
    found = cells_of(ElementTree.fromstring(x._repr_html_()))
    assert [found[cell] for cell in np.ndindex(4, 4)] == [*COLORS]
    assert "-3 to 12" in x._repr_html_()


def test_a_vector_shows_its_first_values() -> None:
    assert "0, 1, 2, 3, 4, 5, 6, 7, ...<" in xt.arange(100)._repr_html_()
    assert ">0, 1, 2<" in xt.arange(3)._repr_html_()
    assert ">True<" in xt.asarray(True)._repr_html_()


@pytest.mark.parametrize("shape", [(1000,), (30, 30), (0, 4), ()])
def test_pending_tensors_stay_pending(shape: tuple[int, ...]) -> None:
    """They say how many steps wait, to notebooks and where only text is shown."""
    with xt.options(lazy="always"):
        x = ones(*shape)
        z = xt.exp(x * 2.0) + x
        page = z._repr_html_()
        bundle = z._repr_mimebundle_(include=None, exclude=None)
    assert z.is_pending
    assert "".join(ElementTree.fromstring(page).itertext()) == (
        f"Tensor {shape} · float64 · cpu · pending: 3 steps to compute"
    )
    assert bundle["text/html"] == page
    assert bundle["text/plain"] == f"Tensor(pending: 3 steps to compute, shape={shape}, dtype=float64, device=cpu)"
    z.evaluate()
    assert "pending" not in z._repr_html_() and z._repr_mimebundle_() == {}


def test_parts_of_pending_tensors_stay_parts() -> None:
    """A part says what its whole waits for."""
    with xt.options(lazy="always"):
        z = ones(100, 100) * 2.0
        part = z[:3, ::2]
        assert "pending: 1 step to compute" in part._repr_html_()
        assert part.is_pending and z.is_pending


def test_within_a_captured_function_it_is_as_repr() -> None:
    """Which looks at values, so that the function is called plainly."""

    def shown(show: Callable[[xt.Tensor], str]) -> tuple[list[str], str]:
        said = []

        @xt.fuse
        def step(x: xt.Tensor) -> xt.Tensor:
            y = x * 2.0
            said.append(show(y))
            return y + 1.0

        for _ in range(2):
            step(ones(20, 20))
        return said, step.why(ones(20, 20))

    pages, why = shown(xt.Tensor._repr_html_)
    lines, as_repr = shown(repr)
    assert why == as_repr != ""
    assert len(pages) == len(lines) == 2
    assert all("2 to 2" in page and "pending" not in page for page in pages)


def test_drawing_is_imported_when_asked_for() -> None:
    """`import xtensor` does not load it."""
    from test_house import run_python

    names = {"xtensor.drawing", "xtensor.tensor.picture", "xtensor.run.sketch"}
    assert run_python(f"import sys, xtensor; print(*sorted({names} & set(sys.modules)))") == ""
