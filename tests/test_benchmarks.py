"""The benchmarks run and print what they promise; how fast anything is, is no test."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import xtensor as xt
import xtensor.numpy as xnp
from xtensor.calls import thin

ROOT = Path(__file__).resolve().parent.parent

sys.path.insert(0, str(ROOT))  # the benchmarks are not installed with the package
from benchmarks import calls, consumers, engine, gpu, gradients, losses, npbench, programs, progress, report, sizes  # noqa: E402 - found through the line above
from benchmarks.__main__ import BENCHMARKS  # noqa: E402 - likewise
from benchmarks.measure import Times, print_table, repeated, take_turns, warmed  # noqa: E402 - likewise
from benchmarks.overhead import EXPRESSIONS  # noqa: E402 - likewise
from benchmarks.peers import Numexpr, Peer, Torch, TorchCompile, UnsupportedError, Xtensor, XtensorFuse, installed  # noqa: E402 - likewise
from benchmarks.workloads import WORKLOADS, Workload, uniform  # noqa: E402 - likewise

sys.path.remove(str(ROOT))

CASES = [(workload, dtype) for workload in WORKLOADS for dtype in workload.dtypes]
every_case = pytest.mark.parametrize(("workload", "dtype"), CASES, ids=[f"{w.name}-{dtype}" for w, dtype in CASES])


def run(*arguments: str) -> subprocess.CompletedProcess[str]:
    """Run the command line."""
    command = [sys.executable, "-m", "benchmarks", *arguments]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)


# ---- the command line


def test_overhead_prints_a_line_for_everything() -> None:
    """Each expression, and the imports."""
    done = run("overhead", "--quick")
    assert done.returncode == 0, done.stderr
    for line in (*EXPRESSIONS, 'python -c "import numpy"', 'python -c "import xtensor"'):
        assert f"\n{line} " in done.stdout
    assert "xtensor / numpy" in done.stdout


def test_functions_beside_numpys() -> None:
    """A table for each size, with a ratio to NumPy's time in each line."""
    done = run("functions", "--quick")
    assert done.returncode == 0, done.stderr
    tables = done.stdout.strip().split("\n\n")
    assert [one.split(" elements: ")[0] for one in tables] == ["100", "10,000"]
    for one in tables:
        lines = one.splitlines()[3:]
        assert any(line.startswith("g += f ") for line in lines)
        for line in lines:
            ours, numpys, ratio = map(float, line.split()[-3:])
            assert ours > 0
            assert numpys > 0
            assert ratio > 0


def test_memory_shared_with_numpy() -> None:
    """A line for each workload, with ratios to NumPy's time."""
    done = run("imported", "--quick")
    assert done.returncode == 0, done.stderr
    title, heading, _, *lines = done.stdout.strip().splitlines()
    assert title == "10,000 elements, float64: times over NumPy's"
    assert heading.split()[:3] == ["numpy", "us", "own"]
    assert [line.split()[0] for line in lines] == ["axpy", "trigonometric", "heat"]
    assert all(float(ratio) > 0 for line in lines for ratio in line.split()[1:])


def test_an_unknown_benchmark() -> None:
    """It is answered with those there are."""
    done = run("speed")
    assert done.returncode == 2
    assert f"no benchmark 'speed': there is {', '.join(BENCHMARKS)}" in done.stderr


def has_gpu() -> bool:
    import xtensor

    return len(xtensor.__array_namespace_info__().devices()) > 1


@pytest.mark.skipif(has_gpu(), reason="there is a usable GPU here")
def test_without_a_gpu_there_are_no_benchmarks_of_one() -> None:
    """The reason is given, and the exit status is not 0."""
    for arguments in (("--device", "cuda:0"), ("gpu", "--quick")):
        done = run(*arguments)
        assert done.returncode == 1
        assert "no benchmarks on cuda:0: zeros: device must be usable" in done.stderr
    done = run("engine", "--device", "cuda:0")
    assert done.returncode == 2
    assert "engine runs on the CPU alone" in done.stderr


def test_results_beside_a_jump_are_not_wrong() -> None:
    """Where c of ten-costly is 0.5, float32 takes it to either side; one element that is wrong is still seen."""
    (work,) = (one for one in WORKLOADS if one.name == "ten-costly")
    x, y = work.inputs(np.random.default_rng(0), 10**5, "float64")
    for _ in range(30):  # y / (exp(-b) + 1) = 0.5
        y = 0.5 * (np.exp(-np.tanh(x * y) - x) + 1.0)
    given = [x.astype(np.float32), y.astype(np.float32)]
    wanted, result = work.formula(np, *[one.astype(float) for one in given]), work.formula(np, *given)
    assert np.abs(result - wanted).max() > gpu.TOLERANCE * np.abs(wanted).max()
    assert gpu.error_of(work, np, given, wanted, result) < gpu.TOLERANCE
    result[12_345] += 0.01 * np.abs(wanted).max()
    assert gpu.error_of(work, np, given, wanted, result) > gpu.TOLERANCE


@pytest.mark.skipif(has_gpu(), reason="there is a usable GPU here")
@pytest.mark.skipif(sys.platform == "win32", reason="a script for bash")
def test_without_a_gpu_there_is_no_report(tmp_path: Path) -> None:
    """The script says why, exits with status 1, and writes nothing."""
    environment = {**os.environ, "PYTHON": sys.executable}
    command = ["bash", "benchmarks/gpu_report.sh", str(tmp_path / "report.txt")]
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert done.stderr.startswith("no report: cuda:0 cannot be used here\nones: device must be usable")
    assert not list(tmp_path.iterdir())


FAKE = """case "$*" in
*ones*) ;;
*pytest*) echo "3 failed, 7 passed in 1.00s"; exit 1 ;;
*conformance*) echo "10 tests in 0:01: 10 passed, 0 failed" ;;
*) echo "$*" ;;
esac
"""


@pytest.mark.skipif(sys.platform == "win32", reason="a script for bash")
def test_the_report_counts_at_its_end_and_goes_on_after_failures(tmp_path: Path) -> None:
    python, report = tmp_path / "python", tmp_path / "report.txt"
    python.write_text("#!/bin/sh\n" + FAKE, encoding="utf-8")
    python.chmod(0o755)
    command = ["bash", "benchmarks/gpu_report.sh", str(report)]
    done = subprocess.run(
        command, cwd=ROOT, env={**os.environ, "PYTHON": str(python)}, capture_output=True, check=False
    )
    assert done.returncode == 1
    summary = report.read_text(encoding="utf-8").split("=== Summary\n")[1]
    assert summary.splitlines()[:3] == [  # compute-sanitizer comes after them, where there is one
        "Tests on the device (pytest -m gpu): exit status 1, 3 failed, 7 passed in 1.00s",
        "Conformance, 200 examples: exit status 0, 10 tests in 0:01: 10 passed, 0 failed",
        "Benchmarks: exit status 0, 0 lines say Error or wrong",
    ]

    def summed(**given: str) -> list[str]:
        environment = {**os.environ, "PYTHON": str(python), **given}
        done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False)
        return done.stderr.splitlines() or report.read_text(encoding="utf-8").split("=== Summary\n")[1].splitlines()

    assert summed(PARTS="benchmarks") == ["Benchmarks: exit status 0, 0 lines say Error or wrong"]
    assert summed(PARTS="tests", WITHIN="40") == ["Tests on the device (pytest -m gpu): not begun, 40 seconds are over"]
    assert summed(PARTS="benchmark")[0].startswith("PARTS must be of tests conformance")


def test_engine_runs_every_workload_with_every_peer(tmp_path: Path) -> None:
    """Nobody fails or is wrong; tables, numbers and chart are written. torch.compile would take too long here."""
    peers = [name for name in installed() if name != TorchCompile.name]
    done = run("engine", "--quick", "--sizes", "100", "--out", str(tmp_path), "--peers", *peers)
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "benchmarks.txt").read_text(encoding="utf-8").strip() in done.stdout
    numbers = json.loads((tmp_path / "benchmarks.json").read_text(encoding="utf-8"))
    assert [(row["workload"], row["dtype"]) for row in numbers["rows"]] == [(w.name, dtype) for w, dtype in CASES]
    assert list(numbers["threads"]) == ["xtensor", "xtensor.fuse", *peers]
    for row in numbers["rows"]:
        assert set(row["absent"].values()) <= {w.numexpr for w in WORKLOADS if isinstance(w.numexpr, str)}, row
        assert {*row["times"], *row["absent"]} == {"xtensor", "xtensor.fuse", *peers}
        assert all(times["median"] >= times["least"] > 0 for times in row["times"].values())
    assert all(speed > 0 for speed in numbers["bandwidth"].values())
    assert (tmp_path / "benchmarks.png").exists() == bool(find_spec("matplotlib"))


def test_engine_runs_what_is_chosen(tmp_path: Path) -> None:
    """Sizes, workloads, dtypes; no peers at all is a choice too."""
    chosen = ("--sizes", "100", "400", "--workloads", "heat", "softmax", "--dtypes", "float32", "--peers")
    done = run("engine", "--quick", "--out", str(tmp_path), *chosen)
    assert done.returncode == 0, done.stderr
    rows = json.loads((tmp_path / "benchmarks.json").read_text(encoding="utf-8"))["rows"]
    found = [(row["size"], row["workload"], row["dtype"], list(row["times"])) for row in rows]
    assert found == [
        (size, name, "float32", ["xtensor", "xtensor.fuse"]) for size in (100, 400) for name in ("softmax", "heat")
    ]


def test_latency_prints_its_tables() -> None:
    """Small arrays always; the rest as far as the engines are there."""
    done = run("latency", "--quick")
    assert done.returncode == 0, done.stderr
    assert "\nten costly steps " in done.stdout
    assert "cache_info" in done.stdout


def test_layers_of_networks_have_a_line_each() -> None:
    """In both layouts, forward and backward."""
    done = run("lay", "--quick")  # the beginning of a name
    assert done.returncode == 0, done.stderr
    assert "\nEfficientNet 24 -> 144 " in done.stdout


def test_networks_have_a_line_each() -> None:
    """Plain and fused steps have the same loss, and PyTorch's where it is installed: others are an error."""
    done = run("networks", "--quick")
    assert done.returncode == 0, done.stderr
    assert "\nperceptron " in done.stdout and "\nautoencoder " in done.stdout


def test_memory_prints_a_line_for_each_library() -> None:
    """Where the system tells its peaks."""
    done = run("memory", "--quick")
    assert done.returncode == 0, done.stderr
    assert "/proc" in done.stdout or ("\nxtensor " in done.stdout and "\nnumpy " in done.stdout)


# ---- small calls


def test_calls_beside_numpys() -> None:
    """A line for each with the ratio of the times, the slowest first, and a line of means."""
    done = run("calls", "--quick")
    assert done.returncode == 0, done.stderr
    both = done.stdout.strip().split("\n\n\n")
    others = ["xtensor", *(["torch"] if "torch" in installed() else [])]
    for text, texts, peers in zip(both, (calls.CALLS, calls.FUNCTIONS), (others, others[:1]), strict=True):
        check_calls(text, texts, peers)


def check_calls(text: str, texts: Sequence[str], others: list[str]) -> None:
    title, heading, _, *lines, empty, means = text.splitlines()
    assert heading.split() == [word for name in ("numpy", *others) for word in (name, "us")] + [
        word for name in others for word in (name, "/", "numpy")
    ]
    cells = [[cell for cell in line.split("  ") if cell] for line in lines]
    assert ({text for text, *_ in cells}, empty) == (set(texts), "")
    assert title.startswith(f"{len(texts)} calls")
    ratios = [float(line[2 + len(others)].split()[0]) for line in cells]
    assert ratios == sorted(ratios, reverse=True)
    assert means.startswith("xtensor: geometric mean ")
    assert f", worst {ratios[0]:.2f} ({cells[0][0]})" in means


@pytest.mark.parametrize("text", (*calls.CALLS, *calls.FUNCTIONS))
def test_calls_are_the_same_in_every_library(text: str) -> None:
    """They return, and leave in their operands, what NumPy does."""
    found: list[list[Any]] = []
    torch = [Torch()] if "torch" in installed() and text in calls.CALLS else []
    for peer in (Peer(), Xtensor(), *torch):
        scope = {"xp": peer.xp, **calls.operands(peer)}
        exec(text if text in calls.STATEMENTS + calls.WRITES else f"result = {text}", scope)
        result = scope.get("result", ())
        results = result if isinstance(result, (tuple, list)) else (result,)
        found.append([peer.numpy(one) if hasattr(one, "shape") else one for one in (*results, scope["s"], scope["L"])])
    for other in found[1:]:
        for one, expected in zip(other, found[0], strict=True):
            np.testing.assert_allclose(one, expected, rtol=1e-12)


def test_wide_calls_beside_numpys() -> None:
    """The slowest of many calls, and the mean of all."""
    done = run("calls", "--wide", "--quick")
    assert done.returncode == 0, done.stderr
    lines = done.stdout.strip().splitlines()
    assert lines[0].startswith(f"{len(calls.WIDE)} calls")
    assert len(lines) == 3 + calls.SHOWN + 2
    assert lines[-1].startswith("xtensor: geometric mean ")


@pytest.mark.parametrize("text", [text for text in calls.WIDE if "empty" not in text])
def test_wide_calls_are_numpys(text: str) -> None:
    """They return, and leave in their operands, what NumPy does; of `unique_values` the order is left open."""
    thin.exchange()
    found = []
    for peer, names in ((Peer(), np), (Xtensor(), xt.numpy)):
        scope = {"xp": peer.xp, "np": names, **calls.operands(peer)}
        try:
            result = eval(text, scope)
        except SyntaxError:
            exec(text, scope)
            result = ()
        result = np.sort(np.asarray(result)) if "unique_values" in text else result
        found.append(parts([result, *[scope[name] for name in ("s", "m", "q", "w64")]]))
    for one, expected in zip(*found, strict=True):
        np.testing.assert_allclose(one, expected, rtol=1e-12)
        assert np.asarray(one).dtype == np.asarray(expected).dtype


def parts(result: Any) -> list[Any]:
    """Return what a call gave, as NumPy's arrays and Python's objects, one behind the other."""
    if isinstance(result, (tuple, list)):
        return [part for one in result for part in parts(one)]
    if result is None or isinstance(result, (str, np.dtype, range)):
        return [result == result, len(str(result))]
    return [np.asarray(result)]


def test_means_of_calls() -> None:
    """The geometric mean of the ratios of least times, and which is the largest."""
    found = {text: {"numpy": Times(1.0, 9.0), "xtensor": Times(ratio, 9.0)} for text, ratio in (("a", 2.0), ("b", 8.0))}
    assert calls.summary("xtensor", found) == "xtensor: geometric mean 4.00, worst 8.00 (b)"


# ---- consumers


def test_consumers_beside_numpys() -> None:
    """A line for each call, the slowest first beside NumPy, then the median and the worst."""
    pytest.importorskip("sklearn")
    done = run("consumers", "--quick")
    assert done.returncode == 0, done.stderr
    lines = done.stdout.strip().splitlines()
    ratios = [float(line.split()[-1]) for line in lines[3:-2]]
    assert len(ratios) == len(consumers.CALLS)
    assert ratios == sorted(ratios, reverse=True)
    assert lines[-1].startswith("median ")


def test_consumers_that_differ_are_not_timed() -> None:
    """Values, shapes; of the axes of a discriminant either sign will do."""
    ones: Any = np.ones(3)
    consumers.check("same", {"": xt.ones(3)}, {"": ones})
    consumers.check("turned", {"scalings_": -xt.ones(3)}, {"scalings_": ones})
    for wrong in (xt.ones(4), xt.zeros(3), xt.full(3, xt.nan), -xt.ones(3)):
        with pytest.raises(ArithmeticError, match="wrong: mean_ differs from NumPy's"):
            consumers.check("wrong", {"mean_": wrong}, {"mean_": ones})


def test_summary_of_consumers() -> None:
    """The median of the ratios, and the largest with its name."""
    rows = [(0.5, "a", 1.0, 2.0), (3.0, "b", 3.0, 1.0), (1.0, "c", 1.0, 1.0)]
    assert consumers.summary(rows) == "\nmedian 1.00, worst 3.00 (b)"


# ---- sizes


def test_sizes_beside_numpys() -> None:
    """A table for each expression, with the nanoseconds an element of each size and the ratios to NumPy's."""
    done = run("sizes", "--quick")
    assert done.returncode == 0, done.stderr
    *tables, growth = done.stdout.strip().split("\n\n")
    assert [one.partition(",")[0] for one in tables] == [expression.name for expression in sizes.EXPRESSIONS]
    for one in tables:
        lines = [line.split() for line in one.splitlines()[3:]]
        assert [line[0] for line in lines] == ["1,000", "10,000", "100,000", "1,000,000"]
        assert all(float(cell.strip("()")) > 0 for line in lines for cell in line[1:])
    assert growth.startswith("Not measured here")


def test_sizes_that_memory_allows(monkeypatch: pytest.MonkeyPatch) -> None:
    """Five arrays must fit what is free, and the limit."""
    monkeypatch.setattr(sizes, "available_memory", lambda: 1_000_000_000)
    usable, reasons = sizes.affordable([1000, 20_000_000, 200_000_000])
    assert usable == [1000, 20_000_000]
    assert reasons == ["200,000,000 elements: skipped, 8.0 GB would be held and 1.0 GB may be"]
    monkeypatch.setattr(sizes, "available_memory", lambda: 1 << 50)
    usable, reasons = sizes.affordable([400_000_000, 500_000_000])
    assert usable == [400_000_000]
    assert len(reasons) == 1


def test_growth_of_an_element() -> None:
    """The ratio of the times of an element, not of the times."""
    small, large = (
        {"xtensor": Times(one, one), "xtensor.fuse": Times(other, other)} for one, other in ((1, 2), (15, 10))
    )
    found = {"x + y": dict(zip(sizes.COMPARED, (small, large), strict=True))}
    assert sizes.growth(found).endswith(": x + y 1.50 (0.50).")


@pytest.mark.parametrize("workload", sizes.EXPRESSIONS, ids=[one.name for one in sizes.EXPRESSIONS])
@pytest.mark.parametrize("contestant", [Xtensor, XtensorFuse])
def test_sizes_agree_with_numpy(workload: Workload, contestant: type[Peer]) -> None:
    """Each expression has NumPy's value."""
    given = workload.inputs(np.random.default_rng(1), 2000, "float64")
    ours = contestant()
    result = ours.numpy(ours.function(workload, "float64")(*map(ours.operand, given)))
    np.testing.assert_allclose(result, workload.formula(np, *given), rtol=1e-12)


# ---- NPBench's programs: on a suite of a few lines, since NPBench itself is not here

TWICE = """
import numpy as np
def kernel(factor, A, B):
    A[:] = A * factor
    B[0, 0] += np.dot(A[0], A[0])
    return np.power(A, 2), A.shape[0]
"""
NESTED = "import numpy as np\ndef kernel(factor, A, B):\n    return np.nested_iters(A, [[0], [1]])\n"
HANGING = (
    "import numpy as np\ndef kernel(factor, A, B):\n    while getattr(np, '__name__', '') != 'numpy':\n        pass\n"
)
CRASHING = "import numpy as np, os\ndef kernel(factor, A, B):\n    os._exit(3)\n"
OTHER_INPUTS = "import numpy as np\ndef initialize(N):\n    return 2.0, np.random.rand(N, N), np.ones((N, N))\n"


def suite_of(folder: Path, sources: dict[str, str]) -> Path:
    """Write a suite: programs by their names and suffixes."""
    for name in {name.partition("_")[0] for name in sources}:
        place = folder / "npbench" / "benchmarks" / name
        place.mkdir(parents=True)
        (place / f"{name}.py").write_text(OTHER_INPUTS, encoding="utf-8")
        information = {
            "relative_path": name,
            "module_name": name,
            "func_name": "kernel",
            "parameters": {"S": {"N": 4}},
            "init": {"func_name": "initialize", "input_args": ["N"], "output_args": ["factor", "A", "B"]},
            "input_args": ["factor", "A", "B"],
            "array_args": ["A", "B"],
            "output_args": ["A"],
        }
        (folder / "bench_info").mkdir(exist_ok=True)
        (folder / "bench_info" / f"{name}.json").write_text(json.dumps({"benchmark": information}), encoding="utf-8")
    for name, text in sources.items():
        (folder / "npbench" / "benchmarks" / name.partition("_")[0] / f"{name}.py").write_text(text, encoding="utf-8")
    return folder


def test_programs_of_a_suite(tmp_path: Path) -> None:
    """Right ones have times, the others a word in the table and a reason under it; kinds have means of their own."""
    wrong = TWICE.replace("return np.power(A, 2)", "return np.power(A, 3)")
    sources = {"lu_numpy": TWICE, "lu_numba_n": wrong, "twice_numpy": TWICE, "nested_numpy": NESTED}
    suite = suite_of(tmp_path, sources)
    done = run("programs", "--quick", "--suite", str(suite), "--fused", "--beside", "numba")
    assert done.returncode == 0, done.stderr
    table, last = done.stdout.strip().split("\n\n")
    cells = {line.split()[0]: line.split()[1:] for line in table.splitlines()[3:]}
    assert list(cells) == ["lu", "nested", "twice"]
    assert cells["nested"][1:] == ["stops", "stops"]
    assert cells["lu"][4:] == ["wrong"]
    assert all(float(cell) > 0 for cell in cells["lu"][:4] + cells["twice"])
    reasons, summary = last.splitlines()[:3], last.splitlines()[3:]
    assert reasons[1:] == ["nested, xtensor: stops at nested_iters", "nested, xtensor.fuse: stops at nested_iters"]
    assert reasons[0].startswith("lu, numba: wrong: relative error ")
    assert [line.partition(" run")[0] for line in summary] == [
        *("whole-array programs, xtensor: 1 of 2", "whole-array programs, xtensor.fuse: 1 of 2"),
        "whole-array programs, numba: 0 of 2",
        *("scalar loops, xtensor: 1 of 1", "scalar loops, xtensor.fuse: 1 of 1", "scalar loops, numba: 0 of 1"),
    ]


def test_programs_that_hang_or_crash(tmp_path: Path) -> None:
    """They end with a reason; where NumPy's version does, the others are not run."""
    suite = suite_of(tmp_path, {"hangs_numpy": HANGING, "crashes_numpy": CRASHING})
    hanging, crashing = npbench.Program(suite, "hangs"), npbench.Program(suite, "crashes")
    assert programs.in_process(hanging, "xtensor", "S", 1, str(tmp_path), 3.0) == "over 3 s"
    row = programs.row_of(crashing, ["xtensor"], "S", 1, 60.0)
    assert row == {"numpy": "ended with status 3", "xtensor": "skipped: NumPy's version has no result"}
    assert programs.line_of("crashes", row, ["xtensor"]) == ["crashes", "", "", "skipped"]


def test_without_npbench(tmp_path: Path) -> None:
    """It is said where it was looked for and how to get it; so are unknown programs."""
    done = run("programs", "--suite", str(tmp_path))
    assert done.returncode == 1
    assert f"NPBench was not found: {tmp_path.resolve() / 'bench_info'} does not exist" in done.stderr
    assert f"git clone {npbench.URL} " in done.stderr
    done = run("programs", "--suite", str(suite_of(tmp_path, {"twice_numpy": TWICE})), "--programs", "thrice")
    assert done.returncode == 1
    assert done.stderr.startswith("no program thrice in ")


def test_where_npbench_is_looked_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """In the given folder, else in that of the environment variable, else in the cache."""
    folders = [suite_of(tmp_path / name, {"twice_numpy": TWICE}) for name in ("given", "variable", "xtensor/npbench")]
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setenv("NPBENCH_DIR", str(folders[1]))
    assert npbench.find(folders[0]) == folders[0].resolve()
    assert npbench.find() == folders[1].resolve()
    monkeypatch.delenv("NPBENCH_DIR")
    assert npbench.find() == folders[2].resolve()


def test_where_a_program_stops() -> None:
    """At the name that is missing, or at an error's first line."""
    with pytest.raises(AttributeError) as caught:
        xnp.memmap  # noqa: B018 - looking it up is what fails
    assert npbench.reason_of(caught.value) == "stops at memmap"
    assert npbench.reason_of(TypeError("no\nmore")) == "stops: TypeError: no"


ONE, TWO = np.ones(3), np.full(3, 2.0)


def compared(
    version: npbench.Version, returned: list[Any], a: Any = TWO, b: Any = ONE, sensitivity: float = 0.0, **info: float
) -> str:
    """Compare outputs, after right ones, with a program's that returns ONE and turns its argument A from ONE to TWO."""
    program = npbench.Program(Path(), "none")
    vars(program)["info"] = info
    running = npbench.Run(program, version, "S")
    vars(running)["inputs"] = {"A": ONE, "B": ONE}
    right, found = npbench.Outputs([ONE], {"A": TWO, "B": ONE}), npbench.Outputs(returned, {"A": a, "B": b})
    return npbench.compared(running, right, sensitivity, [right, found])


def test_programs_are_compared_by_npbenchs_measure() -> None:
    """Each output in turn, arguments among them, by element and as a whole."""
    ours = npbench.Xtensor()
    assert compared(ours, [ONE + 1e-7]) == ""
    assert compared(ours, [ONE], b=TWO) == "wrong: relative error 1.0e+00"
    assert compared(ours, [ONE, TWO]) == "wrong: 4 outputs, not 3"
    assert compared(ours, [ONE[:2]]) == "wrong: shape (2,), not (3,)"
    assert compared(ours, [ONE + 1e-3]) == "wrong: relative error 1.0e-03"
    assert compared(ours, [ONE + 1e-3], norm_error=0.01) == ""
    assert compared(ours, [ONE + 1e-3], sensitivity=2e-4) == ""
    assert compared(ours, [ONE + 1e-3], sensitivity=5e-5) == "wrong: relative error 1.0e-03"


def test_what_last_bits_of_its_inputs_change_in_a_program() -> None:
    """Nothing where it is well-behaved, all where it is chaotic."""

    def logistic(a: Any, steps: int) -> Any:
        for _ in range(steps):
            a = 3.9 * a * (1 - a)
        return a

    for steps, low, high in ((0, 1e-17, 3e-16), (200, 0.01, 10.0)):
        program = npbench.Program(Path(), "none")
        vars(program)["info"] = {"input_args": ["A", "steps"], "array_args": ["A"]}
        running = npbench.Run(program, npbench.Version(), "S")
        vars(running).update(inputs={"A": np.linspace(0.1, 0.4, 50), "steps": steps}, function=logistic)
        assert low < running.sensitivity(running.call()[1]) < high


def test_other_versions_return_in_any_order() -> None:
    """NumPy's results must be among theirs, or what it wrote where it returns nothing."""
    other = npbench.Numba()
    assert compared(other, [TWO, ONE], a=ONE) == ""
    assert compared(other, [TWO], a=TWO, b=TWO[:2]) == "wrong: relative error 1.0e+00"
    wanted, given = [TWO], [ONE[:2], ONE]
    differ = partial(npbench.difference, **npbench.TOLERANCES)
    assert npbench.in_any_order(given, wanted, differ) == "relative error 5.0e-01"
    assert npbench.in_any_order([], wanted, differ) == "no outputs"


def test_scalar_loops_are_programs() -> None:
    """Of NPBench, where it is found."""
    try:
        suite = npbench.find()
    except npbench.SuiteMissingError as error:
        pytest.skip(str(error))
    assert set(npbench.names(suite)) >= programs.SCALAR_LOOPS


# ---- gradients


def test_gradients_print_a_line_for_every_loss(tmp_path: Path) -> None:
    """Nobody is wrong; tables and numbers are written, checkpoints take less memory."""
    done = run("gradients", "--quick", "--out", str(tmp_path))
    assert done.returncode == 0, done.stderr
    text = (tmp_path / "gradients.txt").read_text(encoding="utf-8")
    assert "Not timed" not in text and text in done.stdout
    numbers = json.loads((tmp_path / "gradients.json").read_text(encoding="utf-8"))
    assert len(numbers["rows"]) == sum(len(case.dtypes) for case in losses.CASES)
    for library, peaks in numbers["memory"].items():
        assert peaks["checkpoint"] > 0
        assert library != "xtensor" or peaks["checkpoint"] < peaks["whole"]  # others keep at times what was let go of


def test_only_right_gradients_are_timed() -> None:
    """A gradient that is off, and an error, are answered with words."""
    case = losses.CASES[1]
    given = case.inputs(np.random.default_rng(0))
    value, grads = case.by_hand(*given)
    ours = gradients.ByXtensor()
    assert callable(gradients.checked(ours, case, given, (value, grads), 1e-10))
    off = gradients.checked(ours, case, given, (value, [grads[0], 2 * grads[1]]), 1e-10)
    assert off == "wrong: relative error 5.0e-01"
    failed = gradients.checked(ours, case, given[:1], (value, grads), 1e-10)
    assert isinstance(failed, str) and failed.startswith("failed: ")


# ---- workloads


@every_case
@pytest.mark.parametrize("contestant", [Xtensor, XtensorFuse])
def test_workload_agrees_with_numpy(workload: Workload, dtype: str, contestant: type[Peer]) -> None:
    """xtensor gives NumPy's values and dtype, close to those in float64."""
    given = workload.inputs(np.random.default_rng(1), 100, dtype)
    ours, expected = contestant(), workload.formula(np, *given)
    result = ours.numpy(ours.function(workload, dtype)(*map(ours.operand, given)))
    assert result.dtype == np.asarray(expected).dtype
    allowed = engine.TOLERANCE.get(dtype, 0.0)
    assert engine.relative_error(result, np.asarray(expected)) <= allowed
    assert engine.relative_error(result, engine.reference(workload, given)) <= allowed


def test_bytes_are_counted_once() -> None:
    """Operands and result, in their own dtypes."""
    axpy = WORKLOADS[0]
    given = axpy.inputs(np.random.default_rng(1), 100, "float32")
    assert axpy.moved(given, axpy.formula(np, *given)) == 3 * 400


def test_numexpr_gets_constants_of_the_dtype() -> None:
    """A literal would turn all of a float32 formula into float64; integers and digits in names are left alone."""
    pytest.importorskip("numexpr")
    text, constants = Numexpr().with_constants("2.5*x + 1.0*x1 - 2.5*y**2", "float32")
    assert text == "k0*x + k1*x1 - k0*y**2"
    assert constants == {"k0": np.float32(2.5), "k1": np.float32(1.0)}
    assert {type(value) for value in constants.values()} == {np.float32}


# ---- a row


class Stub(Peer):
    """A contestant that does what a test wants."""

    def __init__(self, does: Callable[..., Any]) -> None:
        super().__init__()
        self.name = does.__name__  # type: ignore[misc]  # each stub has its own
        self.does = does

    def function(self, workload: Workload, dtype: str) -> Callable[..., Any]:
        if self.name == "unable":
            raise UnsupportedError("it cannot")
        return self.does


def test_only_right_results_are_timed() -> None:
    """Wrong values, wrong shapes, failures and inability are told apart."""

    def right(x: Any) -> Any:
        return x + x

    def wrong(x: Any) -> Any:
        return x * 2.001

    def short(x: Any) -> Any:
        return right(x)[1:]

    def failing(x: Any) -> Any:
        raise MemoryError("none left\nat all")

    def unable(x: Any) -> Any:
        raise AssertionError

    workload = Workload("double", lambda xp, x: 2.0 * x, "no text", uniform(1.0, 2.0))
    peers: list[Peer] = [Stub(does) for does in (right, wrong, short, failing, unable)]
    (row,) = engine.run([(workload, "float32")], [50], peers, engine.QUICK)
    assert list(row.times) == ["right"]
    assert set(row.first) == {"right", "wrong", "short"}
    assert row.absent.pop("wrong").startswith("wrong: relative error 5.0e-04")
    assert row.absent == {
        "short": "wrong: relative error inf",
        "failing": "failed: MemoryError: none left",
        "unable": "it cannot",
    }


def test_rounds_fit_the_time() -> None:
    """As many as asked for while they are short, five at least."""
    effort = engine.Effort(repeats=20, seconds=10.0, pause=0.0)
    assert [effort.rounds({"a": least, "b": least}) for least in (1e-6, 0.25, 60.0)] == [20, 10, 5]


# ---- the report


def row_of(size: int, moved: int = 0, **seconds: float) -> engine.Row:
    """Return a row of the same least and median times."""
    times = {name: Times(value, value) for name, value in seconds.items()}
    return engine.Row(f"w{len(seconds)}", "float32", size, moved > 0, moved, dict(seconds), times)


def result_of(*rows: engine.Row) -> report.Result:
    """Return a run with these rows, of NumPy, JAX and xtensor."""
    about = {"cpu": "C", "cores": 2, "last_level_cache": 1 << 20, "load": 1.5, "versions": {"python": "3"}}
    return report.Result(about, {"xtensor": 2, "numpy": 1, "jax": 2}, {"slow": 5.0, "fast": 10.0}, False, list(rows))


def test_summary_counts() -> None:
    """Ahead of every peer, level, behind one of them; slower than NumPy."""
    result = result_of(
        row_of(10, xtensor=1.0, numpy=4.0, jax=2.0),
        row_of(10, xtensor=1.0, numpy=4.0, jax=1.01),
        row_of(10, xtensor=1.0, numpy=4.0, jax=0.5),
        row_of(10, xtensor=1.0, numpy=0.8),
    )
    assert report.summary_line(result, 10) == ["10", "4", "1", "1", "2", "1, at most 1.25 times", ""]
    text = report.summary(result)
    assert "w3 float32 10: jax takes 0.50" in text
    assert "w2 float32 10: 1.25" in text


def test_fused_functions_have_a_summary_of_their_own() -> None:
    """They are no peers of plain ones, and stand in the tables beside them."""
    row = row_of(10, xtensor=1.0, numpy=4.0, jax=0.5)
    row.times["xtensor.fuse"] = Times(0.25, 0.25)
    result = result_of(row)
    result.threads["xtensor.fuse"] = 2
    assert (result.peers, result.columns) == (["numpy", "jax"], ["numpy", "jax", "xtensor.fuse"])
    assert report.size_line(result, row)[-1] == "0.25 (0.25)"
    assert report.summary_line(result, 10)[2:5] == ["0", "0", "1"]
    assert report.summary_line(result, 10, report.FUSED)[2:5] == ["1", "0", "0"]


def test_header_warns_of_a_busy_machine() -> None:
    """And of a quick run; it says who used how many threads."""
    text = report.header(replace(result_of(), quick=True))
    assert "busy (load average 1.5" in text
    assert "quick run" in text
    assert "threads: xtensor 2, numpy 1, jax 2" in text
    assert text.index("fast") < text.index("slow")


def test_fraction_of_the_bandwidth() -> None:
    """For memory-bound rows larger than the cache, of the fastest triad."""
    small, large = row_of(10, moved=1 << 10, xtensor=1.0), row_of(10, moved=8_000_000_000, xtensor=1.0)
    result = result_of(small, large, row_of(10, xtensor=1.0))
    assert [result.fraction(row) for row in result.rows] == [None, 0.8, None]
    assert result.fraction(replace(large, triad=16.0)) == 0.5
    assert report.summary_line(result, 10)[-1] == "1 of 1"


def test_size_table_says_why_a_cell_has_no_time() -> None:
    """Wrong and failed are written; where a library has no such expression the cell is empty."""
    row = row_of(10, xtensor=1e-3, numpy=2e-3)
    row.absent["jax"] = "wrong: relative error 1"
    assert report.size_line(result_of(row), row) == ["w2 float32", "1", "0.0", "", "2.00 (2.00)", "wrong"]
    row.absent["jax"] = "no such thing"
    assert report.size_line(result_of(row), row)[-1] == ""
    assert "jax, no such thing: w2 float32 10" in report.reasons(result_of(row))


# ---- measuring


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


def test_warming_up_and_repeating() -> None:
    """Some calls at least; a measurement is one call more than those it times, which fill 6 ms."""
    calls: list[int] = []
    assert warmed(lambda: calls.append(1), 0.01) < 0.01
    assert len(calls) >= 20
    calls.clear()
    assert repeated(lambda: calls.append(1), least=1e-4)() > 0
    assert len(calls) == 61


def test_tables_are_aligned(capsys: pytest.CaptureFixture[str]) -> None:
    """Words to the left, numbers to the right."""
    print_table("Title", ["name", "us"], [["x", "1.00"], ["longer", "12.00"]])
    assert capsys.readouterr().out == "\nTitle\nname       us\n------  -----\nx        1.00\nlonger  12.00\n"


def test_progress_without_tqdm(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    """Plain lines on stderr."""
    monkeypatch.setattr(progress, "find_spec", lambda name: None)
    assert list(progress.progress("ab", 2)) == ["a", "b"]
    assert capsys.readouterr() == ("", "1/2\n2/2\n")
