"""Gradients beside PyTorch's, JAX's and HIPS autograd's, on the same data in one run, and the memory they take.

Each contestant's value and gradients are compared with those by hand, in float64, before it is timed.
"""

from __future__ import annotations

import ctypes
import json
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from functools import partial
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any, ClassVar

import numpy as np

from . import machine
from .engine import QUICK, TOLERANCE, Effort, relative_error
from .losses import CASES, Case
from .measure import Times, repeated, table, take_turns, warmed
from .memory import FORGET, MEGABYTE, status
from .overhead import ROOT
from .peers import Jax, Peer, Torch, Xtensor, cold_caches
from .progress import progress
from .report import BUSY, FUSED, OURS
from .workloads import Array

LAYERS, QUICK_LAYERS, ROWS, WIDTH, EVERY = 50, 14, 8192, 256, 7
MEMORY_LIBRARIES = ("xtensor", "torch")
CHILD = "import sys; from benchmarks.gradients import growth; print(growth(sys.argv[1], *map(int, sys.argv[2:])))"

Function = Callable[..., Any]


# ---- the contestants


class Differentiator:
    """What turns a loss into a function that returns its value and its gradients, finished."""

    name: ClassVar[str]
    needs: ClassVar[str]
    library: ClassVar[type[Peer]]

    def __init__(self) -> None:
        self.peer = self.library()

    def operands(self, case: Case, given: Sequence[Array]) -> list[Any]:
        """Return NumPy arrays as this library's own."""
        return [self.peer.operand(one) for one in given]

    def function(self, case: Case) -> Function:
        """Return a function of the operands that returns the value and a sequence of gradients."""
        raise NotImplementedError


class ByXtensor(Differentiator):
    """xt.value_and_grad of a plain function, evaluated at its end."""

    name, needs, library = OURS, OURS, Xtensor

    def function(self, case: Case) -> Function:
        xt = self.peer.xp
        both = xt.value_and_grad(partial(case.loss, xt), tuple(range(case.wrt)))

        def call(*operands: Any) -> Any:
            value, grads = both(*operands)
            xt.evaluate(value, *grads)
            return value, grads

        return call


class ByFused(ByXtensor):
    """The same under xt.fuse, the counterpart of jax.jit: later calls only launch kernels."""

    name = FUSED

    def function(self, case: Case) -> Function:
        xt = self.peer.xp
        fused: Function = xt.fuse(xt.value_and_grad(partial(case.loss, xt), tuple(range(case.wrt))))
        return fused


class ByHand(Differentiator):
    """NumPy, with the gradient written out."""

    name, needs, library = "by hand", "numpy", Peer

    def function(self, case: Case) -> Function:
        return case.by_hand


class ByTorch(Differentiator):
    """PyTorch, each call at once, and torch.autograd.grad."""

    name, needs, library = "torch", "torch", Torch

    def __init__(self) -> None:
        super().__init__()
        self.torch = import_module("torch")
        self.torch.set_grad_enabled(True)

    def operands(self, case: Case, given: Sequence[Array]) -> list[Any]:
        operands = super().operands(case, given)
        return [one.requires_grad_() if number < case.wrt else one for number, one in enumerate(operands)]

    def function(self, case: Case) -> Function:
        grad, loss = self.torch.autograd.grad, partial(case.loss, self.peer.xp)

        def call(*operands: Any) -> Any:
            value = loss(*operands)
            return value.detach(), grad(value, operands[: case.wrt])

        return call


class ByJax(Differentiator):
    """jax.jit of jax.value_and_grad, waiting for the result; float64 enabled."""

    name, needs, library = "jax", "jax", Jax

    def function(self, case: Case) -> Function:
        jax = import_module("jax")
        both = jax.jit(jax.value_and_grad(partial(case.loss, self.peer.xp), tuple(range(case.wrt))))
        return lambda *operands: jax.block_until_ready(both(*operands))


class ByAutograd(Differentiator):
    """HIPS autograd, over NumPy."""

    name, needs, library = "autograd", "autograd", Peer

    def function(self, case: Case) -> Function:
        loss = partial(case.loss, import_module("autograd.numpy"))
        both: Function = import_module("autograd").value_and_grad(
            lambda *operands: loss(*operands), tuple(range(case.wrt))
        )
        return both


CONTESTANTS: tuple[type[Differentiator], ...] = (ByXtensor, ByFused, ByHand, ByAutograd, ByTorch, ByJax)


# ---- measuring


@dataclass(frozen=True)
class Row:
    """What was measured of one loss in one dtype. absent: why a contestant has no times."""

    case: str
    size: str
    dtype: str
    times: dict[str, Times] = field(default_factory=dict)
    absent: dict[str, str] = field(default_factory=dict)


def main(quick: bool = False, repeats: int | None = None, out: Path = Path("build/benchmarks")) -> None:
    """Run the comparison; print its tables and write them and the numbers into a folder."""
    about = machine.description()  # first: the run itself is a load
    effort = QUICK if quick else Effort(repeats=repeats or Effort().repeats)
    cases = [(case, dtype) for case in CASES for dtype in case.dtypes]
    with cold_caches():
        contestants = [one() for one in CONTESTANTS if find_spec(one.needs)]
        rows = list(progress(each(cases, contestants, effort), len(cases)))
    names = [one.name for one in contestants]
    layers = QUICK_LAYERS if quick else LAYERS
    peaks = memory(layers) if FORGET.exists() else {}
    text = "\n".join([header(about, quick), times_table(rows, names), *reasons(rows), *memory_table(peaks, layers)])
    out.mkdir(parents=True, exist_ok=True)
    (out / "gradients.txt").write_text(text + "\n", encoding="utf-8")
    numbers = {"machine": about, "quick": quick, "rows": [as_json(row) for row in rows], "memory": peaks}
    (out / "gradients.json").write_text(json.dumps(numbers, indent=1) + "\n", encoding="utf-8")
    print(f"{text}\n\nThe numbers and these tables are in {out}.")


def each(cases: Sequence[tuple[Case, str]], contestants: Sequence[Differentiator], effort: Effort) -> Iterator[Row]:
    """Yield the rows."""
    for case, dtype in cases:
        yield measured(case, dtype, contestants, effort)


def measured(case: Case, dtype: str, contestants: Sequence[Differentiator], effort: Effort) -> Row:
    """Return the row of one loss and dtype."""
    given = [one.astype(dtype) for one in case.inputs(np.random.default_rng(0))]
    wanted = case.by_hand(*[one.astype(np.float64) for one in given])
    row = Row(case.name, case.size, dtype)
    calls: dict[str, Callable[[], Any]] = {}
    for contestant in contestants:
        call = checked(contestant, case, given, wanted, TOLERANCE[dtype])
        if isinstance(call, str):
            row.absent[contestant.name] = call
        else:
            calls[contestant.name] = call
    least = {name: warmed(call, effort.warm) for name, call in calls.items()}
    timers = {name: repeated(call, least[name], effort.pause) for name, call in calls.items()}
    row.times.update(take_turns(timers, effort.rounds(least)))
    return row


def checked(
    contestant: Differentiator, case: Case, given: list[Array], wanted: Any, allowed: float
) -> Callable[[], Any] | str:
    """Return the call to be timed after one that is compared, or what is wrong with it."""
    try:
        call = partial(contestant.function(case), *contestant.operands(case, given))
        value, grads = call()
        found = [contestant.peer.numpy(one) for one in (value, *grads)]
    except Exception as error:  # a library that fails here is reported, and the others go on
        return f"failed: {type(error).__name__}: {error}".partition("\n")[0]
    right = [wanted[0], *wanted[1]]
    off = max(relative_error(one, np.asarray(other)) for one, other in zip(found, right, strict=True))
    return call if off <= allowed else f"wrong: relative error {off:.1e}"


# ---- memory


def memory(layers: int) -> dict[str, dict[str, int]]:
    """Return by how many bytes a deep network's gradient lets the peak grow, without and with checkpoints."""
    runs = [(library, every) for library in MEMORY_LIBRARIES if find_spec(library) for every in (0, EVERY)]
    found: dict[str, dict[str, int]] = {}
    for library, every in progress(runs, len(runs)):
        command = [sys.executable, "-c", CHILD, library, str(layers), str(every)]
        done = subprocess.run(command, cwd=ROOT, check=True, capture_output=True, text=True)
        found.setdefault(library, {})["checkpoint" if every else "whole"] = int(done.stdout)
    return found


def growth(library: str, layers: int, every: int) -> int:
    """Return by how many bytes the peak grows over what is resident once the inputs are there.

    every: layers between two checkpoints; 0 for none. A shallow network runs first, often: everything is loaded and
    compiled. The memory it used goes back to the system, or the deep one would use it again unseen.
    """
    run = {"xtensor": deep_xtensor, "torch": deep_torch}[library]
    warmed(run(3, every), 1.0)
    call = run(layers, every)
    give_back(library)
    FORGET.write_text("5", encoding="ascii")  # the peak begins again at what is resident
    before = status("VmRSS")
    result = call()
    after = status("VmHWM")
    del result  # not earlier: it belongs to the peak
    return after - before


def give_back(library: str) -> None:
    """Return idle memory to the system."""
    if library == OURS:
        import_module("xtensor").memory.trim()
    if hasattr(libc := ctypes.CDLL(None), "malloc_trim"):
        libc.malloc_trim(0)


def deep() -> list[Array]:
    """Make an input, many times as large as the weights, and weights that keep its magnitude."""
    rng = np.random.default_rng(0)
    arrays = rng.normal(size=(ROWS, WIDTH)), rng.normal(size=(WIDTH, WIDTH)) / WIDTH**0.5
    return [one.astype("float32") for one in arrays]


def parts_of(layers: int, every: int) -> list[int]:
    """Return how many layers lie in each part between checkpoints; all of them in one for 0."""
    return [min(every, layers - first) for first in range(0, layers, every)] if every else [layers]


def deep_xtensor(layers: int, every: int) -> Callable[[], Any]:
    """Return the gradient of a deep network by xtensor, to be called."""
    xt: Any = import_module("xtensor")
    x, w = (xt.asarray(one, copy=True) for one in deep())

    def part(x: Any, w: Any, count: int) -> Any:
        for _ in range(count):
            x = xt.tanh(x @ w)
        return x

    one = xt.checkpoint(part) if every else part

    def loss(w: Any) -> Any:
        y = x
        for count in parts_of(layers, every):
            y = one(y, w, count)
        return xt.sum(y * y)

    return lambda: xt.grad(loss)(w).evaluate()


def deep_torch(layers: int, every: int) -> Callable[[], Any]:
    """Return the gradient of a deep network by PyTorch, to be called."""
    torch = import_module("torch")
    again = import_module("torch.utils.checkpoint").checkpoint
    x, w = (torch.from_numpy(one) for one in deep())
    w.requires_grad_()

    def part(x: Any, w: Any, count: int) -> Any:
        for _ in range(count):
            x = torch.tanh(x @ w)
        return x

    def call() -> Any:
        y = x
        for count in parts_of(layers, every):
            y = again(part, y, w, count, use_reentrant=False) if every else part(y, w, count)
        return torch.autograd.grad(torch.sum(y * y), w)

    return call


# ---- what came out


def header(about: Mapping[str, Any], quick: bool) -> str:
    """Return machine and versions."""
    versions = ", ".join(f"{name} {number}" for name, number in about["versions"].items())
    lines = [f"{about['cpu']}, {about['cores']} cores", versions]
    if about["load"] > BUSY:
        lines.append(f"The machine was busy (load average {about['load']:.1f} before the run): expect noise.")
    if quick:
        lines.append("A quick run: it shows that everything works, not how fast it is.")
    return "\n".join(lines)


def times_table(rows: Sequence[Row], names: Sequence[str]) -> str:
    """Return the times, the peers' over xtensor's."""
    peers = [name for name in names if name != OURS]
    title = "Value and gradients: times as long as xtensor by least times (by medians), so above 1 xtensor is faster"
    return table(title, ["loss", "dtype", "xtensor ms", *peers], [line(row, peers) for row in rows])


def line(row: Row, peers: Sequence[str]) -> list[str]:
    """Return one line of that table; an empty cell's reason stands under it."""
    ours = row.times.get(OURS)
    named = [f"{row.case}, {row.size}", row.dtype]
    if ours is None:
        return [*named, "", *[""] * len(peers)]
    return [*named, f"{ours.least * 1e3:.4g}", *(row.times[p].over(ours) if p in row.times else "" for p in peers)]


def reasons(rows: Sequence[Row]) -> list[str]:
    """Return why contestants are missing."""
    found = [f"  {row.case}, {row.size}, {row.dtype}: {peer} {why}" for row in rows for peer, why in row.absent.items()]
    return ["\nNot timed", *found] if found else []


def memory_table(peaks: Mapping[str, Mapping[str, int]], layers: int) -> list[str]:
    """Return the peaks beyond the inputs; nothing where they could not be read."""
    if not peaks:
        return []
    rows = []
    for library, peak in peaks.items():
        whole, parts = peak["whole"], peak["checkpoint"]
        rows.append([library, f"{whole / MEGABYTE:.0f}", f"{parts / MEGABYTE:.0f}", f"{parts / whole:.2f}"])
    title = f"Peak beyond the inputs of the gradient of {layers} layers tanh(x @ w), x {ROWS} x {WIDTH} float32, in MB"
    return [table(title, ["library", "everything kept", f"checkpoint every {EVERY}", "ratio"], rows)]


def as_json(row: Row) -> dict[str, Any]:
    """Return a row as the JSON file has it."""
    return {**asdict(row), "times": {name: times._asdict() for name, times in row.times.items()}}
