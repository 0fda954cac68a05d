"""`python -m xtensor`: what the two commands print and return."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import xtensor as xt
from xtensor import __main__ as program

ROOT = Path(__file__).resolve().parent.parent


def run(*arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    """Run the program in a process of its own."""
    command = [sys.executable, "-m", "xtensor", *arguments]
    return subprocess.run(command, cwd=ROOT, env=os.environ | environment, capture_output=True, text=True)


def test_info(capsys: pytest.CaptureFixture[str]) -> None:
    """A line per fact."""
    assert program.main(["info"]) == 0
    rows = dict(re.split(r"  +", line, maxsplit=1) for line in capsys.readouterr().out.splitlines())
    assert rows["xtensor"] == xt.__version__
    assert rows["array API"] == "2025.12"
    assert rows["numpy"] == np.__version__
    assert rows["devices"].split(", ")[0] == "cpu"  # CUDA devices where they can be used
    assert rows["lazy"] in {"auto", "always", "never"}
    assert int(rows["threads"].split()[0]) >= 1
    assert {"array-api-compat", "llvmlite", "cupy"} <= rows.keys()


def test_info_imports_nothing_optional() -> None:
    """Versions are read from metadata; only CuPy knows which CUDA devices there are."""
    code = (
        "import sys; from xtensor.__main__ import main; main(['info']);"
        "assert not {'llvmlite', 'scipy', 'sklearn'} & set(sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


def test_info_reads_the_lazy_mode() -> None:
    """As the environment sets it."""
    done = run("info", XTENSOR_LAZY="never")
    assert re.search(r"^lazy +never$", done.stdout, re.MULTILINE), done.stdout


@pytest.mark.parametrize("lazy", ["auto", "always", "never"])
def test_tour(lazy: str) -> None:
    """Existing code gives NumPy's results as tensors, and the engine part shows what it says."""
    pytest.importorskip("sklearn")
    done = run("tour", XTENSOR_LAZY=lazy)
    assert done.returncode == 0, done.stderr
    for line in ("PCA", "LinearDiscriminantAnalysis", "Ridge", "scipy.stats.zscore"):
        assert re.search(rf"^ +{line}\S* +Tensor ", done.stdout, re.MULTILINE), done.stdout
    assert "6 of 6 agree" in done.stdout
    assert "2 steps pending, no value computed" in done.stdout
    assert "3 steps pending, no value computed" in done.stdout
    assert re.search(r"float\(z\[0\]\), float\(x\[0\]\) +1\.0, 5\.0", done.stdout), done.stdout
    assert "plan: 1 kernel, moving 32 MB" in done.stdout and "%y = multiply(" in done.stdout
    assert re.search(r"times as fast; largest difference \d\.\de-0\d\.", done.stdout), done.stdout
    accuracy = re.search(r"test images classified correctly +(\d+\.\d)%", done.stdout)
    assert accuracy and float(accuracy[1]) >= 96, done.stdout


def test_tour_names_what_is_missing(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    """Without the demo's packages it says which, and how to get them."""
    monkeypatch.setattr(program, "find_spec", lambda module: None)
    assert program.main(["tour"]) == 1
    assert capsys.readouterr().err == 'tour: scikit-learn and scipy not installed: pip install "xtensor[demo]"\n'


def test_a_wrong_result_is_told_from_rounding() -> None:
    """Differences of a few units in the last place agree; others do not."""
    numbers = np.asarray([1.0, 1000.0])
    assert program.Result("f", numbers, xt.asarray(numbers * (1 + 1e-15))).agrees()
    wrong = program.Result("f", numbers, xt.asarray(numbers + 1e-3))
    assert not wrong.agrees()
    assert wrong.difference() == pytest.approx(1e-3)


@pytest.mark.parametrize("arguments", [[], ["dance"]])
def test_unknown_commands(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    """argparse's own exit code and usage."""
    with pytest.raises(SystemExit) as stopped:
        program.main(arguments)
    assert stopped.value.code == 2
    assert "usage: python -m xtensor" in capsys.readouterr().err
