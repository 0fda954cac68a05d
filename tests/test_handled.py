"""Functions that go on after errors, under `xt.fuse`: what they have written by then is there only once."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from typing import Any

import numpy as np
import pytest

import xtensor as xt

LAST = [1, 999]


def by_except(x: Any, at: Any, out: Any) -> Any:
    out += 1
    try:
        return x[at] * 2
    except IndexError:
        return x[:2] * 0


def by_any_except(x: Any, at: Any, out: Any) -> Any:
    out += 1
    found = x[:2] * 0
    try:
        found = x[at] * 2
    except:  # noqa: E722 - which is what is tested
        out += 1
    return found


def by_finally(x: Any, at: Any, out: Any) -> Any:
    out += 1
    try:
        return x[at] * 2
    finally:
        out += 1


def by_suppress(x: Any, at: Any, out: Any) -> Any:
    out += 1
    with suppress(IndexError):
        out[:2] = x[at]
    return out * 2


class Counting:
    """A manager of a `with` block that writes when it ends, and lets errors through."""

    def __init__(self, out: Any) -> None:
        self.out = out

    def __enter__(self) -> Counting:
        return self

    def __exit__(self, *failure: object) -> bool:
        self.out += 1
        return False


class Suppressing(Counting):
    """One that suppresses errors, and writes nothing."""

    def __exit__(self, *failure: object) -> bool:
        return True


def by_a_manager_that_writes(x: Any, at: Any, out: Any) -> Any:
    with Counting(out):
        return x[at] * 2


def by_a_manager_that_suppresses(x: Any, at: Any, out: Any) -> Any:
    out += 1
    with Suppressing(out):
        return x[at] * 2
    return x[:2] * 0


def in_a_helper(x: Any, at: Any, out: Any) -> Any:
    out += 1
    return by_except(x, at, out) + 1


FUNCTIONS = (
    *(by_except, by_any_except, by_finally, by_suppress, by_a_manager_that_writes, by_a_manager_that_suppresses),
    in_a_helper,
)


@pytest.mark.parametrize("engine", ["llvm", "interpret"])
@pytest.mark.parametrize("function", FUNCTIONS)
def test_errors_are_handled_as_in_plain_calls(function: Callable[..., Any], engine: str) -> None:
    fused = xt.fuse(function)
    outs = xt.zeros(3), xt.zeros(3)
    x = xt.arange(1000.0)
    with xt.options(engine=engine):
        for at in (LAST, LAST, LAST, [1, 5000], LAST):
            found = []
            for call, out in zip((function, fused), outs, strict=True):
                try:
                    found.append(np.asarray(call(x, xt.asarray(at), out)))
                except IndexError as error:
                    found.append(np.asarray(str(error).rpartition(":")[2]))
            assert (found[0] == found[1]).all()
            assert (np.asarray(outs[0]) == np.asarray(outs[1])).all()
        assert "handles errors" in fused.why(x, xt.asarray(LAST), outs[1])


def test_without_writes_the_function_is_captured() -> None:
    def function(x: Any, at: Any) -> Any:
        try:
            return x[at] * 2
        except IndexError:
            return x[:2] * 0

    fused, x = xt.fuse(function), xt.arange(1000.0)
    with xt.options(engine="llvm"):
        for at in (LAST, LAST, LAST, [1, 5000], LAST):
            assert (np.asarray(fused(x, xt.asarray(at))) == np.asarray(function(x, xt.asarray(at)))).all()
        assert not fused.why(x, xt.asarray(LAST))


def test_blocks_that_suppress_nothing_are_no_handlers() -> None:
    def function(x: Any, at: Any, out: Any) -> Any:
        with xt.no_grad():
            out += x[at]
        return out * 2

    fused, x, out = xt.fuse(function), xt.arange(1000.0), xt.zeros(2)
    with xt.options(engine="llvm"):
        for _ in range(3):
            fused(x, xt.asarray(LAST), out)
        assert not fused.why(x, xt.asarray(LAST), out)
