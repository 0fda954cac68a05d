"""Random programs of views, writes, indexing and arithmetic give what NumPy gives (see programs.py)."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from programs import GRADIENT, KERNELS, KINDS, MODES, PLAIN, STRICT, THREADS, Kind, Maker, difference, failures_of
from programs.corpus import CORPUS
from programs.coverage import Coverage
from programs.sides import differs_by_rounding

import xtensor as xt
from xtensor.plan import program as plan
from xtensor.run import engines
from xtensor.storage.pool import Pool


@pytest.fixture(autouse=True)
def nothing_is_compiled() -> None:
    """Programs that other tests had compiled would run as generated code, whose functions are within 2 ulp."""
    for program in plan._programs.values():
        program.notes.pop(engines.COMPILED, None)


@pytest.mark.parametrize("seed", range(8))
def test_a_few_hundred(seed: int) -> None:
    for failure in failures_of(PLAIN, seed, 50):
        raise failure


@pytest.mark.parametrize("kind", [KERNELS, GRADIENT, STRICT, THREADS], ids=lambda kind: kind.name)
def test_other_kinds(kind: Kind) -> None:
    """What is captured, and what runs on the emulated device, has tests beside those of its rooms."""
    for failure in failures_of(kind, 0, 40):
        raise failure


def test_complex_numbers_may_differ_by_their_last_bits_alone() -> None:
    right = np.array([1 + 1j, 2.0, complex(np.inf, 1.0)])
    assert differs_by_rounding(right + 1e-15, right)
    for wrong in (
        right + 1e-13,
        np.array([1 - 1j, 2.0, np.inf]),
        np.array([1 + 1j, 2.0, 5.0]),
        np.array([np.inf, 2.0, np.inf]),
    ):
        assert not differs_by_rounding(wrong, right)
    assert not differs_by_rounding(right.real + 1e-15, right.real)


def test_the_summary_says_what_was_covered() -> None:
    covered = Coverage()
    assert list(failures_of(PLAIN, 0, 30, ["never"], covered)) == []
    assert covered.modes == {"plain never": 30}
    assert {"setitem", "getitem", "sum", "+", "+="} <= covered.times.keys()
    assert len(covered.dtypes["*"]) > 5 and {"packed", "reversed"} <= covered.layouts["getitem"]
    assert "plain never 30" in covered.summary()


@pytest.mark.long
def test_many() -> None:
    """The longer run; `python -m tests.programs --count 20000 --seed 1` is the same with a report."""
    for failure in failures_of(PLAIN, 1, 20_000):
        raise failure


def test_programs_are_reproducible() -> None:
    # a recorded seed must stand for the same program in every process
    assert Maker(7).lines == Maker(7).lines
    assert Maker(7).lines != Maker(8).lines


def test_programs_hold_every_kind_of_line() -> None:
    # a generator that no longer makes overlapping writes or errors would pass everything
    lines = [line for seed in range(300) for line in Maker(seed).lines]
    kinds = [
        "[",
        "None",
        "...",
        "permute_dims",
        "flip",
        "expand_dims",
        "squeeze",
        "reshape",
        "broadcast_to",
        "moveaxis",
    ]
    kinds += ["unstack", "diagonal", "where", "sum", "astype", "+=", "-=", "*=", "] = v", "'bool'))]", ":-1]", "host"]
    for kind in kinds:
        assert any(kind in line for line in lines), kind
    raised = sum(error is not None for seed in range(300) for error in Maker(seed).side.errors)
    assert 0.01 < raised / len(lines) < 0.2


@pytest.mark.parametrize("mode", MODES)
def test_a_difference_is_seen(mode: str) -> None:
    # the comparison itself: two lines that mean different things on the two sides
    lines = ["v0 = xp.zeros((3,))", "v1 = v0[1:]", "v1 += type(xp).__name__ == 'Ours'"]
    assert "values" in str(difference(lines, mode))
    lines = ["v0 = xp.zeros((3,))", "v1 = v0[1:] if type(xp).__name__ == 'Ours' else xp.zeros((2,))"]
    assert "share" in str(difference(lines, mode))


@pytest.mark.parametrize("mode", MODES)
def test_a_difference_of_threads_is_seen(mode: str) -> None:
    """What each of two threads writes counts, and what the first one returns or raises."""
    ours = "(type(xp).__name__ == 'AtOnce')"
    lines = ["v0 = xp.zeros((3,))", f"v1 = xp.at_once(lambda: v0 + {ours}, lambda: xp.sum(v0))"]
    assert "values" in str(THREADS.difference(lines, mode))
    lines = ["v0 = xp.zeros((3,))", f"xp.at_once(lambda: None, lambda: v0.__setitem__(xp.key[1], {ours}))"]
    assert "values" in str(THREADS.difference(lines, mode))
    lines = ["v0 = xp.zeros((3,))", f"xp.at_once(lambda: v0[5 if {ours} else 0], lambda: None)"]
    assert "IndexError" in str(THREADS.difference(lines, mode))
    assert THREADS.difference([lines[0], "v1 = xp.at_once(lambda: v0[5], lambda: v0[7])"], mode) is None


CASES = [(kind, lines) for kind, programs in CORPUS.items() for lines in programs]


@pytest.mark.parametrize(("kind", "lines"), CASES, ids=[f"{kind}-{place}" for place, (kind, _) in enumerate(CASES)])
def test_corpus(kind: str, lines: list[str]) -> None:
    """What ever failed is replayed, in every mode of its kind."""
    for mode in KINDS[kind].modes:
        assert KINDS[kind].difference(lines, mode) is None


# ---- memory


MARGIN, MARK = 128, 0xA5


class Guarded:
    """Memory with marks on both sides of every allocation, for whoever writes beyond what is his."""

    def __init__(self) -> None:
        self.taken: list[tuple[Any, int, int]] = []

    def lend(self, nbytes: int) -> tuple[Any, int]:
        memory = np.full(nbytes + 3 * MARGIN, MARK, np.uint8)
        begin = memory.__array_interface__["data"][0]
        start = MARGIN + -begin % 64
        self.taken.append((memory, start, nbytes))
        return memory, begin + start

    def check(self) -> None:
        for memory, start, nbytes in self.taken:
            outside = np.concatenate((memory[:start], memory[start + nbytes :]))
            assert (outside == MARK).all(), f"{nbytes} bytes were left on either side"
        self.taken.clear()


@pytest.fixture
def guarded(monkeypatch: pytest.MonkeyPatch) -> Iterator[Guarded]:
    memory = Guarded()
    monkeypatch.setattr(Pool, "lend", lambda pool, nbytes: memory.lend(nbytes))
    yield memory
    memory.check()


def test_a_write_beyond_memory_is_seen() -> None:
    memory = Guarded()
    memory.lend(8)
    memory.check()
    memory.lend(8)
    whole, start, _ = memory.taken[0]
    whole[start + 8] = 0
    with pytest.raises(AssertionError, match="8 bytes were left"):
        memory.check()


@pytest.mark.parametrize(("mode", "seed"), [("auto", 40), ("llvm", 41), ("always", 42)])
def test_programs_write_into_their_own_memory(mode: str, seed: int, guarded: Guarded) -> None:
    for failure in failures_of(PLAIN, seed, 300, [mode]):
        raise failure
    assert guarded.taken


@pytest.mark.parametrize("empty", [(0,), (0, 5), (5, 0), (3, 0, 4)])
def test_launches_of_what_is_empty_write_nothing(empty: tuple[int, ...], guarded: Guarded) -> None:
    """Beside something that is not, in the evaluations after those that prepare the launches; under fuse, too."""

    def both(x: xt.Tensor, y: xt.Tensor) -> tuple[xt.Tensor, xt.Tensor, xt.Tensor]:
        return x[..., ::-1] * 2.0 + x, xt.exp(y) - 1.0, xt.sum(x * x) + y[:2]

    fused = xt.fuse(both)
    y = xt.asarray(np.arange(5000.0), copy=True) * 0.001
    with xt.options(engine="llvm", lazy="always"):
        for function in (both, fused):
            xt.evaluate(*function(xt.ones([7 for _ in empty]), y))  # compiles the loops
            for _ in range(4):
                results = function(xt.ones(empty), y)
                xt.evaluate(*results)
                assert results[0].shape == empty
                np.testing.assert_array_equal(results[2].numpy(), y.numpy()[:2])
    assert guarded.taken
