"""`python -m xtensor`: `tour` runs existing code on tensors, `info` describes the machine, `doctor` finds what is slow.

scikit-learn and SciPy are imported by the functions that call them: SciPy reads SCIPY_ARRAY_API at import.
"""

from __future__ import annotations

import os
import platform
import sys
import textwrap
from argparse import ArgumentParser, RawDescriptionHelpFormatter
from collections.abc import Callable, Iterable, Sequence
from importlib import import_module
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path
from time import perf_counter
from typing import Any, NamedTuple

import numpy as np

import xtensor as xt

from .base.options import settings
from .base.threads import count
from .devices import devices
from .doctor import CUPY, facts, findings, installed

DEMO = {"sklearn": "scikit-learn", "scipy": "scipy"}  # module: what pip calls it
WIDE = 100  # letters of a line
AGREES = 1e-9  # relative to the largest element of NumPy's result


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command; return 0 if it went well, 1 if not (argparse itself exits with 2)."""
    parser = ArgumentParser("python -m xtensor", description=__doc__, formatter_class=RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(dest="command", required=True)
    commands.add_parser(
        "tour", help="run scikit-learn and SciPy on xtensor, show what the engine does and how fast, train a network"
    )
    commands.add_parser("info", help="print versions, devices, lazy mode, engines and threads")
    commands.add_parser("doctor", help="print what is installed, what makes xtensor slow here, and what to do about it")
    return {"tour": tour, "info": info, "doctor": doctor}[parser.parse_args(arguments).command]()


# ---- info


def info() -> int:
    """Print what is installed and how calls will run."""
    rows = [
        ("xtensor", xt.__version__),
        ("array API", xt.__array_api_version__),
        ("Python", platform.python_version()),
        *((name, installed(name)) for name in ("numpy", "array-api-compat", "llvmlite")),
        ("cupy", installed(*CUPY)),
        ("devices", ", ".join(str(device) for device in devices())),
        ("lazy", settings().lazy),
        ("engine", f"{settings().engine} (of {_engines()})"),
        ("threads", f"{count()} used"),
    ]
    print(_table(rows, indent=""))
    return 0


def _engines() -> str:
    """Return the engines that can run here."""
    compiler = installed("llvmlite") != "not installed"
    return "direct, interpret, llvm" if compiler else "direct, interpret (llvm needs llvmlite)"


# ---- doctor


def doctor() -> int:
    """Print what is installed, and each thing that is slow here with its cost and what to do."""
    print(_table(facts(), indent=""))
    found = findings()
    print(
        f"\n{len(found)} finding{'s' * (len(found) != 1)}"
        if found
        else "\nNothing was found that makes xtensor slow here."
    )
    for number, (what, why, do) in enumerate(found, 1):
        print(f"\n{number}. {what}")
        for word, text in (("why", why), ("do", do)):
            print(textwrap.fill(text, WIDE, initial_indent=f"   {word:5}", subsequent_indent=" " * 8))
    return 0


# ---- tour


class Result(NamedTuple):
    """One result of existing code, made from NumPy arrays and from tensors."""

    code: str
    numpy: Any
    ours: Any

    def difference(self) -> float:
        """Return the largest absolute difference of two elements."""
        return float(np.max(np.abs(np.asarray(self.ours) - np.asarray(self.numpy))))

    def agrees(self) -> bool:
        """Return whether the results differ by rounding only."""
        return self.difference() <= AGREES * float(np.max(np.abs(self.numpy)))

    def row(self) -> tuple[str, ...]:
        """Return the line of the table: shape, and as one number the value or the Euclidean norm."""
        shape = str(np.shape(self.numpy)) if np.shape(self.numpy) else "scalar"
        values = (f"{np.linalg.norm(np.asarray(value)):.10g}" for value in (self.numpy, self.ours))
        return (self.code, type(self.ours).__name__, shape, *values, f"{self.difference():.1e}")


def tour() -> int:
    """Run existing code on xtensor and on NumPy, then show what the engine did, then train a network."""
    missing = [package for module, package in DEMO.items() if find_spec(module) is None]
    if missing:
        print(f'tour: {" and ".join(missing)} not installed: pip install "xtensor[demo]"', file=sys.stderr)
        return 1
    os.environ["SCIPY_ARRAY_API"] = "1"
    from sklearn import __version__ as sklearn_version

    print(f"1. scikit-learn {sklearn_version} and SciPy {version('scipy')} on its digits data (1797 images, 8 x 8)")
    print("   The same calls with NumPy arrays and with xtensor tensors. For arrays the number is the norm.\n")
    results = existing_code()
    print(_table([("call", "returns", "shape", "NumPy", "xtensor", "largest difference"), *map(Result.row, results)]))
    wrong = [result.code for result in results if not result.agrees()]
    print(f"\n   {len(results) - len(wrong)} of {len(results)} agree within {AGREES:g} of the largest element.")
    print("   Library functions (svd, sort) are NumPy's own; fused loops may differ from it in the last bits.")
    print("\n2. What the engine does")
    with xt.options(lazy="auto"):
        show_recording()
        show_barrier()
    with xt.options(lazy="auto", engine="auto", show=""):
        show_plan()
        show_network()
    for code in wrong:
        print(f"tour: {code} differs from NumPy's result", file=sys.stderr)
    return 1 if wrong else 0


def existing_code() -> list[Result]:
    """Run every piece of existing code on NumPy arrays and on tensors of the same numbers."""
    from sklearn import config_context
    from sklearn.datasets import load_digits

    pixels, labels = load_digits(return_X_y=True)
    with config_context(array_api_dispatch=True):
        expected = run_existing(pixels, labels)
        ours = run_existing(xt.asarray(pixels), xt.asarray(labels))
    return [Result(code, expected[code], ours[code]) for code in expected]


def run_existing(pixels: Any, labels: Any) -> dict[str, Any]:
    """Return results of scikit-learn and SciPy for the arrays; they learn from the first half, predict the second."""
    from scipy.stats import zscore
    from sklearn.decomposition import PCA
    from sklearn.discriminant_analysis import LinearDiscriminantAnalysis
    from sklearn.linear_model import Ridge
    from sklearn.metrics import accuracy_score, r2_score

    half = pixels.shape[0] // 2
    seen, unseen, learnt, truth = pixels[:half, :], pixels[half:, :], labels[:half], labels[half:]
    predicted = LinearDiscriminantAnalysis(solver="svd").fit(seen, learnt).predict(unseen)
    lower = Ridge(solver="svd").fit(seen[:, :32], seen[:, 32:]).predict(unseen[:, :32])  # from the upper halves
    return {
        "PCA(16).fit_transform": PCA(n_components=16, svd_solver="full").fit_transform(pixels),
        "LinearDiscriminantAnalysis().predict": predicted,
        "accuracy_score": accuracy_score(truth, predicted),
        'Ridge(solver="svd").predict': lower,
        "r2_score": r2_score(unseen[:, 32:], lower),
        "scipy.stats.zscore": zscore(pixels, axis=1),
    }


def show_recording() -> None:
    """Show that a call records, and that asking for a value computes."""
    x, y = xt.linspace(0.0, 1.0, 1_000_000), xt.ones(1_000_000)
    print("\n   x, y = xt.linspace(0.0, 1.0, 1_000_000), xt.ones(1_000_000)\n")
    z, recording = _timed(lambda: xt.exp(x) * y)
    _say("z = xt.exp(x) * y", f"recorded in {recording}: {_state(z)}")
    total = xt.sum(z)
    _say("total = xt.sum(z)", f"one step more: {_state(total)}")
    number, computing = _timed(lambda: float(total))
    _say("float(total)", f"{number:.6f}, computed in {computing}: {_state(total)}")
    _say("z", f"kept, because it is still held: {_state(z)}")
    print("\n   Dtype and shape errors are raised at the call, whatever is pending.\n")


def show_barrier() -> None:
    """Show that before a write all pending readers of the old values are computed."""
    x = xt.zeros(1_000_000)
    z = xt.exp(x)
    _say("x = xt.zeros(1_000_000); z = xt.exp(x)", _state(z))
    x[...] = 5.0
    _say("x[...] = 5.0", f"a write is a barrier, z was computed before it: {_state(z)}")
    _say("float(z[0]), float(x[0])", f"{float(z[0])}, {float(x[0])}")


def gelu(x: Any) -> Any:
    """Return an activation function of neural networks, nine steps for each element."""
    xp = x.__array_namespace__()
    return 0.5 * x * (1.0 + xp.tanh(0.7978846 * (x + 0.044715 * x * x * x)))


def show_plan() -> None:
    """Show how a recorded expression will run, and how long it takes beside NumPy."""
    numbers = np.linspace(-3.0, 3.0, 4_000_000, dtype=np.float32)
    x = xt.named(xt.asarray(numbers, copy=True), "x")
    print("\n3. The plan of a real expression: gelu of 4 000 000 float32 numbers")
    print("   y = 0.5 * x * (1.0 + xt.tanh(0.7978846 * (x + 0.044715 * x * x * x)))\n\n   xt.explain(y)\n")
    y = xt.named(gelu(x), "y")
    print(textwrap.indent(xt.explain(y), "      "))
    first = _timed(y.evaluate)[1]
    theirs, expected = _best(lambda: gelu(numbers))
    ours, found = _best(lambda: gelu(x).evaluate())
    difference = float(np.max(np.abs(np.asarray(found) - expected)))
    print(f"\n   first evaluation {first}; then, best of {RUNS} runs, {count()} threads:\n")
    print(_table([("NumPy", f"{theirs * 1e3:.1f} ms"), ("xtensor", f"{ours * 1e3:.1f} ms")], indent="      "))
    print(f"\n   {theirs / ours:.1f} times as fast; largest difference {difference:.1e}. {xt.cache_info()}")


EPOCHS = 4


def show_network() -> None:
    """Let a convolutional network of the examples learn for a few epochs, which takes a few seconds."""
    folder = examples()
    print("\n4. A convolutional network learns to read 1347 of the digits, and is tested with the other 450")
    print(f"   examples/digits_cnn.py, {EPOCHS} epochs\n")
    sys.path.insert(0, str(folder))
    try:
        found, time = _timed(lambda: import_module("digits_cnn").train(epochs=EPOCHS))
    finally:
        sys.path.remove(str(folder))
    _say("cross entropy after each epoch", ", ".join(f"{loss:.3f}" for loss in found.losses))
    _say("test images classified correctly", f"{found.accuracy:.1%}, after {time}")


def examples() -> Path:
    """Return the folder of the examples: in the package where that was installed, beside it in a checkout."""
    package = Path(__file__).resolve().parent
    own = package / "examples"
    return own if own.is_dir() else package.parent / "examples"


RUNS = 7


def _best(run: Callable[[], Any]) -> tuple[float, Any]:
    """Return the shortest of several times in seconds, and the last result."""
    times = []
    result = None
    for _ in range(RUNS):
        start = perf_counter()
        result = run()
        times.append(perf_counter() - start)
    return min(times), result


def _state(x: xt.Tensor) -> str:
    """Return whether a tensor is pending, in words."""
    if not x.is_pending:
        return "nothing pending"
    steps = x.value.steps  # type: ignore[union-attr]  # a pending value is a Node
    return f"{steps} step{'s' * (steps > 1)} pending, no value computed"


def _timed(run: Callable[[], Any]) -> tuple[Any, str]:
    start = perf_counter()
    result = run()
    return result, f"{(perf_counter() - start) * 1e3:.2f} ms"


def _say(code: str, text: str) -> None:
    print(f"   {code:40}{text}")


def _table(rows: Iterable[tuple[str, ...]], indent: str = "   ") -> str:
    """Return rows as lines with columns of equal width."""
    lines = list(rows)
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    texts = ("  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)) for line in lines)
    return "\n".join(indent + text.rstrip() for text in texts)


if __name__ == "__main__":
    sys.exit(main())
