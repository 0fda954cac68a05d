"""Small calls, and windows of a large array, beside NumPy's time and PyTorch's: what one call costs in each library."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from statistics import geometric_mean
from timeit import Timer
from typing import Any, NamedTuple

import numpy as np

from .measure import Times, print_table, take_turns, warmed
from .peers import Peer, Torch, Xtensor, installed
from .progress import progress
from .workloads import Array

SMALL, SIDE, LARGE, INDICES = 64, 8, 1000, 16

# Operands are vectors s, t (float64), a mask b and indices k into them, small matrices m, n, a large one L, and z, an
# array without dimensions. Every library takes these texts as they stand.
EXPRESSIONS = (
    *("s + s", "s * 2.0", "s - t", "xp.exp(s)", "xp.sqrt(s)", "s < t"),
    *("s[1:]", "s[3]", "s[::2]", "s[1:] - s[:-1]"),
    *("L[5]", "L[5, 1:65]", "L[5, 7]", "L[1:-1, 1:-1]", "L.T", "L[5, 1:65] + L[6, 1:65]"),
    *("z * z + z", "z + 1.0", "float(z)"),
    *("xp.reshape(s, (8, 8))", "xp.concat([s, t])", "xp.stack([s, t])", "xp.take(s, k)", "s[b]"),
    *("xp.sum(s)", "xp.max(m, axis=0)", "m @ n", "xp.where(b, s, t)"),
)
STATEMENTS = ("L[5, 1:-1] = 2.0", "L[5, 7] = 2.0", "L[5, 1:65] = s", "s += t", "s[1:5] *= 1.0")
CALLS = (*EXPRESSIONS, *STATEMENTS)

# Calls that end in one of the library's functions, behind checks of the arguments, by the standard's names: PyTorch
# does not have them all.
WRITES = ("s[b] = 2.0", "s[k] = 2.0", "s[k] += 1.0")
FUNCTIONS = (
    *(*WRITES, "L[k, :8]", "L[k, k]", "xp.nonzero(b)", "xp.searchsorted(s, t)"),
    *("xp.sort(s)", "xp.argsort(s)", "xp.unique_counts(k)", "xp.cumulative_sum(s)", "xp.clip(s, 0, 1)", "s**2"),
    *("xp.roll(s, 1)", "xp.flip(s)", "xp.permute_dims(m, (1, 0))", "xp.expand_dims(s, axis=0)", "xp.unstack(m)"),
    *("xp.broadcast_to(s, (4, 64))", "xp.tile(s, (2,))", "xp.repeat(s, 2)", "xp.tril(m)", "list(m)"),
    *("xp.asarray([1.0, 2.0])", "xp.zeros((8, 8))", "xp.full((8, 8), 1.0)", "xp.eye(8)", "xp.arange(64)"),
    *("xp.linspace(0.0, 1.0, 64)", "xp.zeros_like(s)", "xp.astype(s, xp.float32)", "xp.meshgrid(s, t)"),
    *("xp.mean(m, axis=0)", "xp.std(m, axis=0)", "xp.argmax(s)", "xp.any(b)", "bool(s[0] > 0.5)", "s.tolist()"),
    *("xp.linalg.solve(m, n)", "xp.linalg.trace(m)", "xp.linalg.vector_norm(s)", "xp.vecdot(s, t)", "m @ m[0]"),
    *("xp.tensordot(m, n, axes=1)", "xp.fft.rfft(s)"),
)


class Effort(NamedTuple):
    """How long to measure: the seconds of a warm-up, the rounds, and the calls of one measurement."""

    warm: float
    repeats: int
    calls: int


USUAL, QUICK = Effort(0.06, 15, 2000), Effort(0.0, 1, 20)


def main(quick: bool = False) -> None:
    """Print the tables, the slowest beside NumPy first, each with a line of means."""
    peers = [Peer(), Xtensor()]
    torch = [Torch()] if Torch.name in installed() else []
    effort = QUICK if quick else USUAL
    table(f"calls: vectors of {SMALL} float64, windows of {LARGE} x {LARGE}", CALLS, [*peers, *torch], effort)
    table("calls of the library's functions", FUNCTIONS, peers, effort)


def table(title: str, texts: Sequence[str], peers: list[Peer], effort: Effort) -> None:
    """Print the times of calls, and a line of means."""
    others = [peer.name for peer in peers[1:]]
    heading = ["", *(f"{peer.name} us" for peer in peers), *(f"{name} / numpy" for name in others)]
    found = {text: compared(text, peers, effort) for text in progress(texts, len(texts))}
    slowest = sorted(found, key=lambda text: over_numpy(found[text], Xtensor.name), reverse=True)
    lines = [line_of(text, found[text], others) for text in slowest]
    print_table(f"{len(texts)} {title}; the slowest first", heading, lines)
    print("\n" + "; ".join(summary(name, found) for name in others) + "\n")


def compared(text: str, peers: list[Peer], effort: Effort) -> dict[str, Times]:
    """Return the times of a call in each library."""
    return take_turns({peer.name: measurement(peer, text, effort) for peer in peers}, effort.repeats)


def measurement(peer: Peer, text: str, effort: Effort) -> Callable[[], float]:
    """Return a function that times a call over operands of its own and returns the seconds of one.

    The text is compiled as it stands, its names local: no function call is measured along with it.
    """
    given = operands(peer)
    timed = Timer(text, f"xp, {', '.join(given)} = given", globals={"given": (peer.xp, *given.values())})
    warmed(lambda: timed.timeit(20), effort.warm)
    return lambda: timed.timeit(effort.calls) / effort.calls


def operands(peer: Peer) -> dict[str, Any]:
    """Return a library's operands by their names in the texts, anew: some calls write into them."""
    return {name: peer.operand(array) for name, array in arrays().items()}


def arrays() -> dict[str, Array]:
    """Return the operands as NumPy's arrays."""
    rng = np.random.default_rng(0)
    s, t, k = rng.random(SMALL), rng.random(SMALL), rng.integers(0, SMALL, INDICES)
    m, n, large = rng.random((SIDE, SIDE)), rng.random((SIDE, SIDE)), rng.random((LARGE, LARGE))
    return {"s": s, "t": t, "b": s > 0.5, "k": k, "m": m, "n": n, "L": large, "z": np.asarray(1.5)}


def over_numpy(times: Mapping[str, Times], name: str) -> float:
    """Return how many times as long as NumPy's a library's call takes, by the least times."""
    return times[name].least / times["numpy"].least


def line_of(text: str, times: Mapping[str, Times], others: list[str]) -> list[str]:
    """Return a line of the table."""
    seconds = [f"{one.least * 1e6:.3f}" for one in times.values()]
    return [text, *seconds, *(times[name].over(times["numpy"]) for name in others)]


def summary(name: str, found: Mapping[str, Mapping[str, Times]]) -> str:
    """Return the geometric mean of a library's ratios, and the largest with its call."""
    ratios = {text: over_numpy(times, name) for text, times in found.items()}
    worst = max(ratios, key=lambda text: ratios[text])
    return f"{name}: geometric mean {geometric_mean(ratios.values()):.2f}, worst {ratios[worst]:.2f} ({worst})"
