"""What type checkers say of programs that use xtensor, in their strict modes."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
PROGRAM = Path(__file__).resolve().parent / "typed" / "program.py"

# One mistake a line.
MISTAKES = [
    "xt.exp('text')",
    "xt.sum(xt.ones(3), axes=0)",
    "xt.ones(3).missing",
    "number: int = xt.ones(3)",
    "xt.special.gammaln(xt.ones(3), 2)",
]


def needs(tool: str) -> pytest.MarkDecorator:
    """Skip a test where a tool is not installed."""
    return pytest.mark.skipif(find_spec(tool) is None, reason=f"{tool} is not installed (the extra `dev`)")


def check(tool: str, file: Path) -> subprocess.CompletedProcess[str]:
    """Run a type checker in its strict mode on a file outside of this repository."""
    folder = file.parent
    if tool == "mypy":
        options = ["--strict", "--config-file=", "--no-incremental", file.name]
    else:
        settings = {"typeCheckingMode": "strict", "include": [file.name], "extraPaths": [str(ROOT)]}
        (folder / "pyrightconfig.json").write_text(json.dumps(settings), encoding="utf-8")
        options = ["--project", ".", "--pythonpath", sys.executable]
    environment = os.environ | {"MYPYPATH": str(ROOT), "PYTHONPATH": str(ROOT)}
    command = [sys.executable, "-m", tool, *options]
    return subprocess.run(command, cwd=folder, env=environment, capture_output=True, encoding="utf-8")


@pytest.mark.parametrize("tool", [pytest.param(tool, marks=needs(tool)) for tool in ("mypy", "pyright")])
def test_a_program_is_typed(tool: str, tmp_path: Path) -> None:
    """A checker has nothing to say of typical programs."""
    done = check(tool, Path(shutil.copy(PROGRAM, tmp_path)))
    assert done.returncode == 0, done.stdout


@pytest.mark.parametrize("tool", [pytest.param(tool, marks=needs(tool)) for tool in ("mypy", "pyright")])
def test_mistakes_are_found(tool: str, tmp_path: Path) -> None:
    """And something to say of each mistake: the types are not all Any."""
    file = tmp_path / "mistakes.py"
    file.write_text("\n".join(["import xtensor as xt", *MISTAKES, ""]), encoding="utf-8")
    done = check(tool, file)
    for line, mistake in enumerate(MISTAKES, 2):
        assert f"mistakes.py:{line}:" in done.stdout, f"{mistake} is let pass:\n{done.stdout}"


def test_the_program_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is checked is right as a program, too."""
    monkeypatch.syspath_prepend(str(PROGRAM.parent))
    import_module(PROGRAM.stem).run()
