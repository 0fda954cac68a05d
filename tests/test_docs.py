"""The pages: their code runs, the output they show is the real one, and what they point to exists."""

from __future__ import annotations

import importlib.util
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path

import pytest

import xtensor as xt
from xtensor.calls.op import REGISTRY

ROOT = Path(__file__).resolve().parent.parent
README = ROOT / "README.md"
DOCS = ROOT / "docs"
PAGES = sorted(DOCS.glob("*.md"))

sys.path.insert(0, str(DOCS))
import pages  # noqa: E402 - in docs/, found through the line above
import rules  # noqa: E402 - likewise

sys.path.remove(str(DOCS))

every_page = pytest.mark.parametrize("page", [README, *PAGES], ids=lambda page: page.name)


@pytest.fixture
def registry() -> Iterator[None]:
    """Take back what a page declares: the registry drives other tests."""
    before = dict(REGISTRY)
    yield
    REGISTRY.clear()
    REGISTRY.update(before)


def blocks_of(page: Path, info: str) -> list[pages.Block]:
    """Return a page's blocks of one kind."""
    return [block for block in pages.blocks(page.read_text(encoding="utf-8")) if block.info == info]


def shown(pieces: list[tuple[str, str]]) -> str:
    """Return everything a block shows."""
    return "\n".join(output for _, output in pieces if output)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
@pytest.mark.usefixtures("registry")
def test_code_of_a_page_runs(page: Path) -> None:
    """Every block marked `{run}` runs in the order of the page, and raises what it says it raises.

    So does every `{plot}` where Matplotlib is installed.
    """
    if page.stem == "machines":
        pytest.importorskip("dask.array", reason="Dask is not installed (the extra `dask`)")
    if page.stem == "special":
        pytest.importorskip("scipy", reason="SciPy is not installed (the extra `special`)")
    session = pages.Session()
    draws = importlib.util.find_spec("matplotlib") is not None
    for block in pages.blocks(page.read_text(encoding="utf-8")):
        if block.info not in ("{run}", "{picture}") and not (draws and block.info.startswith("{plot}")):
            continue
        try:
            session.run(block.code, block.raises)
        except Exception as error:
            error.add_note(f"in the block at {page.name}:{block.line}")
            raise


def test_readme_shows_the_real_output() -> None:
    """The Python of the README gives the text that stands right under it."""
    session, everything = pages.Session(), list(pages.blocks(README.read_text(encoding="utf-8")))
    pairs = [(code, text) for code, text in pairwise(everything) if (code.info, text.info) == ("python", "text")]
    assert len(pairs) == 3
    for code, text in pairs:
        assert shown(session.run(code.code)) == text.code.rstrip()


def test_readme_shows_a_real_row() -> None:
    """The row in the README is the one in the code."""
    import inspect

    *_, row = blocks_of(README, "python")
    assert row.code == inspect.getsource(xt.exp)


def test_readme_runs_its_commands_in_ci() -> None:
    """The README's commands for the demo and the tests are these, word for word: CI runs them."""
    commands = "".join(block.code for block in blocks_of(README, "sh"))
    assert 'pip install -e ".[demo]" && python -m xtensor tour\n' in commands
    assert 'pip install -e ".[test]" && pytest -n auto\n' in commands


def test_code_with_other_libraries_runs() -> None:
    """The plain Python of 'Moving existing code' runs; in a process of its own, because SciPy is told at import."""
    pytest.importorskip("sklearn")
    pytest.importorskip("einops")
    for block in blocks_of(DOCS / "moving.md", "python"):
        command = [sys.executable, "-c", block.code]
        done = subprocess.run(command, cwd=ROOT, env=os.environ, capture_output=True, text=True)
        assert done.returncode == 0, done.stderr


def test_names_in_the_table_of_moved_names_exist() -> None:
    """Every `xt.name` on the page is there."""
    text = (DOCS / "moving.md").read_text(encoding="utf-8")
    for path in set(re.findall(r"`xt\.([a-z_0-9.]+)", text)):
        found = xt
        for name in path.split("."):
            assert hasattr(found, name), f"moving.md names xt.{path}"
            found = getattr(found, name)


@every_page
def test_links_lead_somewhere(page: Path) -> None:
    """Relative links and the headings they name exist."""
    for target in re.findall(r"\]\(([^)\s]+)\)", page.read_text(encoding="utf-8")):
        if not target.startswith(("http:", "https:")):
            file, _, heading = target.partition("#")
            other = page.parent / file
            assert other.exists(), f"{page.name} links to {target}"
            headings = re.findall(r"^#+ (.*)$", other.read_text(encoding="utf-8"), re.MULTILINE) if heading else []
            assert not heading or heading in [re.sub(r"[^\w -]", "", h).lower().replace(" ", "-") for h in headings]


@pytest.mark.parametrize("page", [p for p in PAGES if p.stem != "index"], ids=lambda page: page.name)
def test_every_page_is_in_the_index(page: Path) -> None:
    """No page is lost: those of the gallery are in its own list."""
    index = "gallery.md" if page.stem.startswith("gallery-") else "index.md"
    assert f"\n{page.stem}\n" in (DOCS / index).read_text(encoding="utf-8")


def test_coverage_has_every_function() -> None:
    """The table lists the 174 functions of the standard, and every row among them but those of extensions."""
    functions = pages.functions()
    assert len(functions) == 174
    assert {f.call.op.name for f in functions if hasattr(f.call, "op")} == {
        name for name in REGISTRY if hasattr(xt, name)
    }
    assert pages.coverage_table().count("\n") == 175  # a line each, after the heading and its rule


@pytest.mark.parametrize(
    ("name", "way"),
    [
        ("exp", "row: elementwise"),
        ("sum", "row: reduction"),
        ("flip", "view"),
        ("sort", "library"),
        ("take", "library"),
        ("clip", "function"),
    ],
)
def test_coverage_tells_how_a_function_is_declared(name: str, way: str) -> None:
    """One of each way."""
    assert pages.declared(getattr(xt, name)) == way


def test_coverage_tries_what_else_a_row_takes() -> None:
    """Integers go into floating functions; nothing but integers and booleans into bitwise ones."""
    assert pages.accepted(xt.exp) == ("floating", "boolean, integer")
    assert pages.accepted(xt.bitwise_and) == ("integer or boolean", "")
    assert pages.accepted(xt.sort) == ("", "")


def test_special_functions_are_in_their_table() -> None:
    """Each once, under what it is."""
    pytest.importorskip("scipy", reason="SciPy is not installed (the extra `special`)")
    cells = [line.split(" | ") for line in pages.special_table().splitlines()[2:]]
    found = {name: how for how, _, names in cells for name in re.findall("`(.*?)`", names)}
    assert set(dir(xt.special)) == set(found)
    assert "native" in found["erf"] and "composed" in found["logit"] and "library" in found["gammaln"]


def test_every_rule_is_in_the_table() -> None:
    """The table has a line for each argument of each public rule, read from the rows where they are written there."""
    found = {(one.function, one.argument): one for one in rules.written()}
    assert len(found) == rules.table().count("\n") - 1
    tanh, divided = found["{py:func}`tanh <xtensor.tanh>`", "x"], found["{py:func}`divide <xtensor.divide>`", "x1"]
    assert (tanh.text, tanh.slope, tanh.keeps) == ("1 - y * y", True, ("y",))
    assert (divided.text, divided.slope, divided.keeps) == ("g / _conjugate(x2)", False, ("x2",))
    assert not [one for one in found.values() if "<lambda>" in one.text]
    public = {getattr(getattr(xt, name, None), "rule", None) for name in dir(xt)} - {None}
    assert {rule.name for rule in public} <= {rule.name for _, _, rule, _ in rules.ruled()} | {"diag", "einsum"}


def test_functions_of_rules_are_shown_whole() -> None:
    """What a rule calls is listed under the table, and what that calls."""
    text = rules.helpers()["xtensor/standard/statistical.py"]
    assert "def _of_deviation(" in text and "def _of_variance(" in text


# The runner itself


def test_a_session_shows_what_the_interpreter_would() -> None:
    """Values of expressions and printed text, each after its statement; None and the rest show nothing."""
    pieces = pages.Session().run("a = 2\na * 3\nprint('x')\nNone\nb = a\n")
    assert pieces == [("a = 2\na * 3", "6"), ("print('x')", "x"), ("None\nb = a", "")]


def test_a_session_insists_on_the_error() -> None:
    """The named exception is shown; another passes through, and none at all fails."""
    session = pages.Session()
    assert session.run("int('a')", raises="ValueError")[0][1].startswith("ValueError: invalid literal")
    with pytest.raises(ZeroDivisionError):
        session.run("1 / 0", raises="ValueError")
    with pytest.raises(AssertionError, match="does not raise"):
        session.run("1 / 1", raises="ZeroDivisionError")


def test_blocks_are_found_with_their_options() -> None:
    """Line, word after the fence, option and code."""
    text = "Words.\n\n```{run}\n:raises: KeyError\n{}[1]\n```\n\n```sh\nls\n```\n"
    assert list(pages.blocks(text)) == [
        pages.Block(3, "{run}", "{}[1]\n", "KeyError"),
        pages.Block(8, "sh", "ls\n"),
    ]
