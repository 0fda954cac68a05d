"""Operands of `x += y` and `x[...] = y`: those that anybody holds keep their values, temporaries need no memory."""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterator
from contextlib import nullcontext
from typing import Any

import numpy as np
import pytest

import xtensor as xt
from xtensor.calls import temporaries, thin

N = 200_000


@pytest.fixture(params=["interpret", "llvm", "auto"], autouse=True)
def engine(request: pytest.FixtureRequest) -> Iterator[None]:
    with xt.options(engine=request.param, lazy="auto"):
        yield


@pytest.fixture(params=["counted", "in Python", "machine code"])
def methods(request: pytest.FixtureRequest) -> Iterator[None]:
    """Call the operators of tensors in each of the ways that they may be called."""
    if request.param == "machine code" and not thin.exchange():
        pytest.skip("there is no machine code")
    with thin.in_python() if request.param == "in Python" else nullcontext():
        yield


class Box:
    """An object that holds what was computed."""

    value: Any = None


def variable(x: Any) -> Any:
    value = x * 2.0
    x += value
    return value


def parameter(x: Any) -> Any:
    def add(target: Any, value: Any) -> None:
        target += value

    value = x * 2.0
    add(x, value)
    return value


def attribute(x: Any) -> Any:
    box = Box()
    box.value = x * 2.0
    x += box.value
    return box.value


def element(x: Any) -> Any:
    values = [x * 2.0]
    x[...] = values[0]
    return values[0]


def called(x: Any) -> Any:
    value = x * 2.0
    x[...] = (lambda: value)()
    return value


def chosen(x: Any) -> Any:
    value = x * 2.0
    x += value if value.shape else x + 1.0
    return value


def assigned_to_two(x: Any) -> Any:
    x[...] = value = x * 2.0
    return value


def bound_in_passing(x: Any) -> Any:
    x += (value := x * 2.0)
    return value


def several(x: Any) -> Any:
    value, other = x * 2.0, x + 1.0
    x[...], x[...] = other, value
    return value


def part(x: Any) -> Any:
    value = x * 2.0
    x[:] = value
    return value


def by_function(x: Any) -> Any:
    value = x * 2.0
    operator.iadd(x, value)
    return value


def by_method(x: Any) -> Any:
    value = x * 2.0
    x.__iadd__(value)
    return value


def by_method_of_class(x: Any) -> Any:
    value = x * 2.0
    xt.Tensor.__setitem__(x, ..., value)
    return value


def generated(x: Any) -> Any:
    def values() -> Iterator[Any]:
        value = x * 2.0
        x[...] = value
        yield value

    return next(values())


HELD: list[Callable[[Any], Any]] = [
    *(variable, parameter, attribute, element, called, chosen, assigned_to_two, bound_in_passing, several, part),
    *(by_function, by_method, by_method_of_class, generated),
]


@pytest.mark.parametrize("function", HELD, ids=[one.__name__ for one in HELD])
@pytest.mark.parametrize("fused", [False, True], ids=["plain", "captured"])
def test_values_that_are_held_stay(function: Callable[[Any], Any], fused: bool, methods: None) -> None:
    """The operand reads what the statement writes, and is read afterwards."""
    call = xt.fuse(function) if fused else function
    for size in (5, N):
        for _ in range(4):
            x = xt.asarray(np.arange(float(size)), copy=True)
            np.testing.assert_array_equal(call(x).numpy(), 2.0 * np.arange(size))


@pytest.mark.skipif(temporaries.references(1, 1, 1) == 0, reason="references are not known in this Python")
def test_temporaries_are_not_kept(methods: None) -> None:
    """They are computed on the way, and take no memory."""
    x, y = [xt.asarray(np.random.default_rng(0).uniform(size=N), copy=True) for _ in range(2)]
    for _ in range(3):
        with xt.options(lazy="always"), xt.profile() as found:
            x += xt.sin(y) * 0.5
            x[...] = xt.cos(x) + y
            x[:] = -x
        kernels = [one for one in found.entries if one.kind == "kernel"]
        assert [one.nbytes for one in kernels] == [3 * x.nbytes, 3 * x.nbytes, 2 * x.nbytes]


def test_statements_that_compute_their_operand() -> None:
    """The byte code tells them from those that write a variable."""

    def code_of(statement: str) -> Any:
        return compile(f"def function(x, y, z, f, d):\n    {statement}", "<test>", "exec").co_consts[0]

    def writes(code: Any) -> list[bool]:
        import dis

        offsets = [
            one.offset
            for one in dis.get_instructions(code)
            if one.opname in ("STORE_SUBSCR", "STORE_SLICE") or (one.opname == "BINARY_OP" and one.argrepr[-1:] == "=")
        ]
        return [temporaries._writes_what_it_computes(code, offset) for offset in offsets]

    for statement in (
        "x += y * z",
        "x[...] = f(y)",
        "x[1:] = -y",
        "x[d.k, z] = y + 1",
        "x += y[1:]",
        "d.x[...] = y @ z",
    ):
        assert writes(code_of(statement)) == [True], statement
    assert writes(code_of("x[y, z] -= f(y)")) == [True, True]
    for statement in ("x += y", "x[...] = y", "x[1:] = y", "x += d.y", "x += y if z else f(y)", "x[f(z)] = y"):
        assert writes(code_of(statement))[0] is False, statement  # a branch may have the instruction twice
    assert writes(code_of("x[...] = z[...] = f(y)")) == [False, False]
