"""Kinds of programs, and running many of one: each kind knows how its programs are made, run and compared."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass

from .coverage import Coverage
from .maker import Maker


@dataclass(frozen=True)
class Kind:
    """A kind of programs.

    make: returns the program of a seed for a mode. difference: runs a program in a mode, and returns what is wrong or
    None. modes: those there are.
    """

    name: str
    modes: tuple[str, ...]
    make: Callable[[int, str], Maker]
    difference: Callable[[list[str], str], str | None]


class ProgramError(AssertionError):
    """A program on which xtensor and its oracle differ, cut down."""

    def __init__(self, seed: int, kind: str, mode: str, lines: list[str], what: str) -> None:
        program = "\n".join(f"    {line}" for line in lines)
        super().__init__(f"program {seed}, {kind}, mode {mode}: {what}\n{program}")


def check(kind: Kind, seed: int, modes: Iterable[str], covered: Coverage | None = None) -> None:
    """Run the programs of one seed in every mode; raises ProgramError."""
    for mode in modes:
        maker = kind.make(seed, mode)
        if covered is not None:
            covered.add(maker.coverage, [f"{kind.name} {mode}"])
        what = kind.difference(maker.lines, mode)
        if what is not None:
            lines, what = shrink(kind, maker.lines, mode, what)
            raise ProgramError(seed, kind.name, mode, lines, what)


def shrink(kind: Kind, lines: list[str], mode: str, what: str) -> tuple[list[str], str]:
    """Return a program from which no line can be left out without losing the difference, and the difference."""
    progress = True
    while progress:
        progress = False
        for i in reversed(range(len(lines))):
            shorter = lines[:i] + lines[i + 1 :]
            found = kind.difference(shorter, mode)
            if found is not None:
                lines, what, progress = shorter, found, True
    return lines, what


def failures_of(
    kind: Kind, seed: int, count: int, modes: Iterable[str] = (), covered: Coverage | None = None
) -> Iterator[ProgramError]:
    """Yield what fails among the programs of seeds `seed * 1_000_000` and the next `count - 1`."""
    modes = tuple(modes) or kind.modes
    for one in range(seed * 1_000_000, seed * 1_000_000 + count):
        try:
            check(kind, one, modes, covered)
        except ProgramError as failure:
            yield failure
