"""The benchmarks run and print what they promise; how fast anything is, is no test."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent

sys.path.insert(0, str(ROOT))  # the benchmarks are not installed with the package
from benchmarks.__main__ import BENCHMARKS  # noqa: E402 - found through the line above
from benchmarks.measure import Times, print_table, take_turns  # noqa: E402 - likewise
from benchmarks.overhead import EXPRESSIONS  # noqa: E402 - likewise

sys.path.remove(str(ROOT))


def run(*arguments: str) -> subprocess.CompletedProcess[str]:
    """Run the command line."""
    command = [sys.executable, "-m", "benchmarks", *arguments]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)


def test_overhead_prints_a_line_for_everything() -> None:
    """Each expression, and the imports."""
    done = run("overhead", "--quick")
    assert done.returncode == 0, done.stderr
    for line in (*EXPRESSIONS, 'python -c "import numpy"', 'python -c "import xtensor"'):
        assert f"\n{line} " in done.stdout
    assert "xtensor / numpy" in done.stdout


def test_an_unknown_benchmark() -> None:
    """It is answered with those there are."""
    done = run("speed")
    assert done.returncode == 2
    assert f"no benchmark 'speed': there is {', '.join(BENCHMARKS)}" in done.stderr


def test_contestants_take_turns() -> None:
    """Round by round; the first round only warms up."""
    turns: list[str] = []
    seconds = {"a": iter([9.0, 1.0, 4.0, 2.0]), "b": iter([0.0, 3.0, 3.0, 6.0])}

    def contestant(name: str) -> float:
        turns.append(name)
        return next(seconds[name])

    found = take_turns({name: lambda name=name: contestant(name) for name in seconds}, repeats=3)
    assert turns == ["a", "b"] * 4
    assert found == {"a": Times(1.0, 2.0), "b": Times(3.0, 3.0)}
    assert found["b"].over(found["a"]) == "3.00 (1.50)"


def test_tables_are_aligned(capsys: pytest.CaptureFixture[str]) -> None:
    """Words to the left, numbers to the right."""
    print_table("Title", ["name", "us"], [["x", "1.00"], ["longer", "12.00"]])
    assert capsys.readouterr().out == "\nTitle\nname       us\n------  -----\nx        1.00\nlonger  12.00\n"
