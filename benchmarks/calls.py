"""Small calls, and windows of a large array, beside NumPy's time and PyTorch's: what one call costs in each library."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from importlib import import_module
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

# Of every chapter, methods, keys of all forms, and NumPy's own names, which stand under `np`: the option --wide. More
# operands: f float32, q int64, u uint8, c complex128, o of three axes, i and j values, g indices sorted, r rows of a
# board; h a vector and d a matrix that are NumPy's in every library.
WIDE = (
    *(
        "s + 1",
        "s - s[3]",
        "q // 3",
        "q % 7",
        "q & 1",
        "q << 2",
        "-s",
        "~b",
        "abs(s)",
        "b & (s < t)",
        "s @ t",
        "2.0 / s",
    ),
    *("s**2", "s**0.5", "s**-1", "q**2", "divmod(q, 5)", "s == t", "(s > 0.5).any()", "s > i", "i + 1", "i * 2.0"),
    *("xp.add(s, t)", "xp.exp(s)", "xp.sin(s)", "xp.log(s)", "xp.abs(s)", "xp.maximum(s, t)", "xp.pow(s, 2)"),
    *("xp.floor_divide(q, 3)", "xp.hypot(s, t)", "xp.isnan(s)", "xp.sign(s)", "xp.round(s)", "xp.logical_and(b, b)"),
    *("xp.bitwise_xor(q, q)", "xp.real(c)", "xp.conj(c)", "xp.sqrt(i)", "xp.clip(s, 0.0, 1.0)", "xp.square(f)"),
    *("xp.sum(s)", "xp.sum(m, axis=1)", "xp.mean(s)", "xp.std(s)", "xp.max(s)", "xp.min(m, axis=0)", "xp.prod(s)"),
    *(
        "xp.var(m, axis=0)",
        "xp.all(b)",
        "xp.any(s > 2.0)",
        "xp.argmax(s)",
        "xp.argmin(m, axis=1)",
        "xp.count_nonzero(b)",
    ),
    *("xp.cumulative_sum(s)", "xp.cumulative_prod(s)", "xp.diff(s)", "s.sum()", "s.max()", "s.mean()", "m.sum(axis=0)"),
    *("s.argmax()", "b.any()", "b.all()", "m.min(axis=1)", "s.std()", "s.cumsum()", "s.round(2)", "s.dot(t)"),
    *("xp.sort(s)", "xp.argsort(s)", "xp.sort(m, axis=0)", "xp.unique_values(k)", "xp.unique_inverse(k)"),
    *("xp.searchsorted(s, t)", "xp.searchsorted(g, i)", "xp.nonzero(b)", "xp.isin(k, g)"),
    *("xp.take(s, k)", "xp.take_along_axis(s, k)", "xp.where(b, s, 0.0)", "xp.where(b, s, t)"),
    *("xp.reshape(s, (8, 8))", "s.reshape(8, 8)", "s.reshape(-1)", "m.ravel()", "m.flatten()", "m.T", "m.mT"),
    *("xp.permute_dims(o, (2, 0, 1))", "m.transpose()", "xp.moveaxis(o, 0, -1)", "xp.matrix_transpose(m)"),
    *("xp.expand_dims(s, axis=0)", "xp.squeeze(e, axis=0)", "s[None, :]", "xp.flip(s)", "s[::-1]", "xp.roll(s, 1)"),
    *("xp.concat([s, t])", "xp.concat([m, n], axis=1)", "xp.stack([s, t])", "xp.tile(s, (2,))", "xp.repeat(s, 2)"),
    *("xp.broadcast_to(s, (4, 64))", "xp.broadcast_arrays(s, e)", "xp.unstack(m)", "xp.meshgrid(s, t)"),
    *("xp.zeros(64)", "xp.zeros((8, 8))", "xp.zeros(64, dtype=xp.int64)", "xp.ones(64)", "xp.full(64, 2.0)"),
    *("xp.empty(64)", "xp.eye(8)", "xp.arange(64)", "xp.arange(0.0, 1.0, 0.05)", "xp.linspace(0.0, 1.0, 64)"),
    *("xp.zeros_like(s)", "xp.ones_like(s)", "xp.empty_like(s)", "xp.full_like(s, 1.0)", "xp.tril(m)", "xp.triu(m)"),
    *("xp.asarray([1.0, 2.0])", "xp.asarray(1.0)", "xp.asarray([[1, 2], [3, 4]])", "xp.asarray(s)"),
    *("xp.asarray([i, j])", "xp.asarray(s, copy=True)", "s.copy()", "xp.asarray(range(8))"),
    *(
        "xp.astype(s, xp.float32)",
        "s.astype(xp.int64)",
        "s.astype(float)",
        "b.astype(xp.float64)",
        "s.astype(xp.float64)",
    ),
    *("s[3]", "s[i]", "s[1:]", "s[j:]", "m[2]", "m[:, 2]", "m[2, 3]", "m[i, j]", "m[i, 3]", "m[i]", "m[i, :]", "s[k]"),
    *("s[b]", "m[:, b8]", "m[b8]", "m[k8, k8]", "m[k8, :]", "m[k8, 2]", "s[[1, 2, 3]]", "m[[1, 2]]", "o[1, ..., 2]"),
    *("s[3] = 1.0", "s[i] = 1.0", "s[i] = s[j]", "m[i, j] = 2.0", "m[i, j] += 1.0", "m[2, :] = t[:8]", "m[i] = 1.0"),
    *(
        "s[b] = 0.0",
        "s[k] = 1.0",
        "m[k8, k8] = 0.0",
        "m[:, 2] = 1.0",
        "m[i, j] = s[j]",
        "s[b] += 1.0",
        "s += t",
        "q += 1",
    ),
    *("float(s[3])", "int(i)", "bool(b[3])", "s[3] > 0.5", "s.tolist()", "list(s)", "len(s)", "s.shape", "s[3].item()"),
    *("max(s[3], 0.5)", "range(i)", "sum(s)", "s.item(3)", "i == j", "i < 5", "[x for x in r]"),
    *("m @ n", "xp.matmul(m, n)", "xp.vecdot(s, t)", "xp.tensordot(m, n, axes=1)", "xp.linalg.vector_norm(s)"),
    *("xp.linalg.solve(m, n)", "xp.linalg.inv(m)", "xp.linalg.det(m)", "xp.linalg.trace(m)", "xp.linalg.qr(m)"),
    *(
        "xp.linalg.svd(m)",
        "xp.linalg.eigvalsh(m)",
        "xp.linalg.cholesky(p)",
        "xp.linalg.outer(s, t)",
        "xp.linalg.cross(v, w)",
    ),
    *(
        "xp.linalg.diagonal(m)",
        "xp.linalg.matrix_power(m, 3)",
        "xp.linalg.matrix_norm(m)",
        "xp.fft.fft(s)",
        "xp.fft.rfft(s)",
    ),
    *("xp.result_type(s, f)", "xp.can_cast(xp.int64, xp.float64)", "xp.isdtype(s.dtype, 'real floating')"),
    *("np.exp(s)", "np.add(s, t)", "np.add(s, t, out=w64)", "np.array([1.0, 2.0])", "np.array(s)", "np.arange(64)"),
    *("np.zeros(64)", "np.ones((8, 8))", "np.full(64, 1.0)", "np.linspace(0, 1, 64)", "np.eye(8)", "np.sum(s)"),
    *("np.sum(m, axis=0)", "np.mean(s)", "np.max(s)", "np.any(b)", "np.argmax(s)", "np.cumsum(s)", "np.diff(s)"),
    *("np.add.reduce(s)", "np.maximum.reduce(m)", "np.add.outer(s, t)", "np.add.accumulate(s)", "np.add.at(s, k, 1.0)"),
    *(
        "np.hstack((s, t))",
        "np.vstack((s, t))",
        "np.concatenate((s, t))",
        "np.column_stack((s, t))",
        "np.append(s, 1.0)",
    ),
    *("np.where(b)", "np.where(b, s, t)", "np.nonzero(b)[0]", "np.flatnonzero(b)", "np.clip(s, 0, 1)", "np.dot(m, n)"),
    *(
        "np.dot(s, t)",
        "np.outer(s, t)",
        "np.cross(v, w)",
        "np.einsum('ij,jk', m, n)",
        "np.histogram(s, 8)",
        "np.bincount(k)",
    ),
    *("np.median(s)", "np.percentile(s, 50)", "np.interp(s, g, t[:16])", "np.unique(k)", "np.sort(s)", "np.argsort(s)"),
    *("np.roll(m, 1, axis=0)", "np.pad(s, 1)", "np.transpose(m)", "np.reshape(s, (8, 8))", "np.ravel(m)", "np.copy(s)"),
    *("np.convolve(s, t[:8])", "np.allclose(s, t)", "np.isclose(s, t)", "np.array_equal(s, t)", "np.bitwise_count(u)"),
    *("np.minimum(s, t)", "np.mod(q, 7)", "np.zeros_like(s)", "np.linalg.norm(v)", "np.linalg.inv(m)", "np.trace(m)"),
    *(
        "np.diag(s[:8])",
        "np.tril(m)",
        "np.repeat(s, 2)",
        "np.take(s, k)",
        "np.digitize(s, g)",
        "np.ptp(s)",
        "np.nansum(s)",
    ),
    *(
        "np.packbits(u)",
        "np.split(s, 4)",
        "np.count_nonzero(b)",
        "np.searchsorted(g, 3)",
        "np.meshgrid(s, t)",
        "np.gradient(s)",
    ),
    *("s + h", "h * s", "np.maximum(h, s)", "xp.where(b, h, s)", "m @ d"),
)


class Effort(NamedTuple):
    """How long to measure: the seconds of a warm-up, the rounds, and the calls of one measurement."""

    warm: float
    repeats: int
    calls: int


SHOWN = 20

USUAL, SHORT, QUICK = Effort(0.06, 15, 2000), Effort(0.01, 15, 200), Effort(0.0, 1, 20)

# As many calls make the engine compile operators and indexing.
MANY = 20_000


def main(quick: bool = False, wide: bool = False) -> None:
    """Print the tables, the slowest beside NumPy first, each with a line of means.

    wide: one table of many more calls instead, of which the slowest are shown.
    """
    peers = [Peer(), Xtensor()]
    if wide:
        small = peers[1].operand(np.ones(SMALL))
        for _ in range(0 if quick else MANY):
            small + small
        table(f"calls of all chapters: vectors of {SMALL}", WIDE, peers, QUICK if quick else SHORT, SHOWN)
        return
    torch = [Torch()] if Torch.name in installed() else []
    effort = QUICK if quick else USUAL
    table(f"calls: vectors of {SMALL} float64, windows of {LARGE} x {LARGE}", CALLS, [*peers, *torch], effort)
    table("calls of the library's functions", FUNCTIONS, peers, effort)


def table(title: str, texts: Sequence[str], peers: list[Peer], effort: Effort, most: int | None = None) -> None:
    """Print the times of calls, at most so many of the slowest, and a line of means."""
    others = [peer.name for peer in peers[1:]]
    heading = ["", *(f"{peer.name} us" for peer in peers), *(f"{name} / numpy" for name in others)]
    found = {text: compared(text, peers, effort) for text in progress(texts, len(texts))}
    slowest = sorted(found, key=lambda text: over_numpy(found[text], Xtensor.name), reverse=True)
    lines = [line_of(text, found[text], others) for text in slowest[:most]]
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
    names = import_module("xtensor.numpy") if isinstance(peer, Xtensor) else peer.xp
    timed = Timer(text, f"xp, np, {', '.join(given)} = given", globals={"given": (peer.xp, names, *given.values())})
    warmed(lambda: timed.timeit(20), effort.warm)
    return lambda: timed.timeit(effort.calls) / effort.calls


def operands(peer: Peer) -> dict[str, Any]:
    """Return a library's operands by their names in the texts, anew: some calls write into them."""
    given, numbers = arrays(), peer.operand(np.arange(SIDE))
    theirs = {
        name: numbers[int(one)] if isinstance(one, np.generic) else peer.operand(one) for name, one in given.items()
    }
    return theirs | {"h": given["t"], "d": given["n"]}


def arrays() -> dict[str, Array]:
    """Return the operands as NumPy's arrays."""
    rng = np.random.default_rng(0)
    s, t, k = rng.random(SMALL), rng.random(SMALL), rng.integers(0, SMALL, INDICES)
    m, n, large = rng.random((SIDE, SIDE)), rng.random((SIDE, SIDE)), rng.random((LARGE, LARGE))
    usual = {"s": s, "t": t, "b": s > 0.5, "k": k, "m": m, "n": n, "L": large, "z": np.asarray(1.5)}
    integers = {"q": rng.integers(0, 99, SMALL), "u": rng.integers(0, 255, SMALL, np.uint8), "g": np.sort(k)}
    others = {
        "f": s.astype(np.float32),
        "c": s + 1j * t,
        "o": rng.random((4, 4, 4)),
        "e": s[None],
        "w64": np.zeros(SMALL),
    }
    small = {"b8": m[0] > 0.5, "k8": rng.integers(0, SIDE, SIDE), "p": m @ m.T + np.eye(SIDE), "v": s[:3], "w": t[:3]}
    return usual | integers | others | small | {"i": np.int64(3), "j": np.int64(5), "r": m > 0.5}


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
