"""Programs of threads: plain lines, some of them run by two threads at once, and pickles and copies of variables.

Two threads read the same tensors, pending ones among them, or one writes to memory that the other one does not use.
"""

from __future__ import annotations

import copy
import pickle
from collections.abc import Callable
from contextlib import suppress
from contextvars import copy_context
from functools import lru_cache
from threading import Barrier, Thread
from typing import Any

import numpy as np

import xtensor as xt

from .coverage import VARIABLE
from .kinds import Kind
from .maker import Maker
from .plain import EXACT, MODES, difference_of, run_ours
from .sides import NAME, Oracle, Ours, Side, root, run_oracle, settled


class Copies:
    """What both sides do alike."""

    key = np.s_

    @staticmethod
    def pickled(x: Any, protocol: int) -> Any:
        return pickle.loads(pickle.dumps(x, protocol))

    @staticmethod
    def copied(x: Any, deep: bool) -> Any:
        return copy.deepcopy(x) if deep else copy.copy(x)


class InTurn(Copies, Oracle):
    """NumPy, which does one thing after the other."""

    @staticmethod
    def at_once(first: Callable[[], Any], second: Callable[[], Any]) -> Any:
        """Return what the first function returns, or raise what it raises."""
        try:
            result, error = first(), None
        except Exception as raised:
            result, error = None, raised
        with suppress(Exception):  # what the second one returns or raises is asked where it is the first
            second()
        if error is not None:
            raise error
        return result


class AtOnce(Copies, Ours):
    """xtensor, in two threads."""

    @staticmethod
    def at_once(first: Callable[[], Any], second: Callable[[], Any]) -> Any:
        """Return what the first function returns, evaluated, or raise what it raises, while the second one runs."""
        found: list[Any] = [None, None]
        errors: list[Exception | None] = [None, None]
        begin = Barrier(2)

        def work(number: int, function: Callable[[], Any]) -> None:
            begin.wait()
            try:
                found[number] = function()
                if isinstance(found[number], xt.Tensor):
                    found[number].evaluate()
            except Exception as raised:
                errors[number] = raised

        threads = [
            Thread(target=copy_context().run, args=(work, *each)) for each in enumerate((first, second))
        ]  # each with the options that are in force here
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        if errors[0] is not None:
            raise errors[0]
        return found[0]


def in_turn() -> Side:
    return Side(InTurn(), settled)


class ThreadsMaker(Maker):
    """Makes plain programs with such lines."""

    def start(self) -> Side:
        return in_turn()

    def steps(self) -> list[tuple[int, Callable[[], str | None]]]:
        return [*super().steps(), (6, self.copies), (12, self.beside), (8, self.write_beside)]

    def copies(self) -> str | None:
        name = self.any_of()
        if name is None:
            return None
        if self.chance(0.5):
            return f"{self.target()} = xp.copied({name}, {self.chance(0.5)})"
        return f"{self.target()} = xp.pickled({name}, {self.rng.randint(0, 5)})"

    def value(self) -> str | None:
        """Return an expression of one line."""
        line = self.rng.choice([self.compute, self.compute, self.reduce, self.view, self.library, self.advanced])()
        return line.partition(" = ")[2] if line and NAME.match(line) else None

    def beside(self) -> str | None:
        """Two expressions, each of which is once the one that is compared."""
        first, second = self.value(), self.value()
        if first is None or second is None:
            return None
        self.add(f"{self.target()} = xp.at_once(lambda: {first}, lambda: {second})")
        return f"{self.target()} = xp.at_once(lambda: {second}, lambda: {first})"

    def write_beside(self) -> str | None:
        """An assignment to a variable while another thread computes with memory that is not the variable's."""
        line, other = self.assign(), self.value()
        name, found, rest = (line or "").partition("[")
        key, equals, value = rest.partition("] = ")
        if other is None or not found or not equals:
            return None
        memory = root(self.get(name))
        if any(root(self.get(one)) is memory for one in VARIABLE.findall(other)):
            return None
        written = f"lambda: {name}.__setitem__(xp.key[{key}], {value})"
        self.add(f"xp.at_once({written}, lambda: {other})")
        return f"{self.target()} = xp.at_once(lambda: {other}, {written})"


@lru_cache(8)
def _oracle(lines: tuple[str, ...]) -> Side:
    """Run a program on NumPy, once for all modes."""
    return run_oracle(list(lines), in_turn())


@lru_cache(8)
def made(seed: int, exact: bool) -> ThreadsMaker:
    """Return the program of a seed, which several modes run."""
    return ThreadsMaker(seed, exact)


def difference(lines: list[str], mode: str) -> str | None:
    """Run a program on xtensor, in threads; return what differs from the oracle's run, or None."""
    return difference_of(lines, run_ours(lines, mode, AtOnce), _oracle(tuple(lines)))


THREADS = Kind("threads", tuple(MODES), lambda seed, mode: made(seed, mode in EXACT), difference)
