"""Machine code stays within its operands: its text is run by an interpreter that knows what each pointer is for."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from types import SimpleNamespace

import numpy as np
import pytest
from ir import BoundsError, Checked, Found, Machine, Module, Region, check_launches, collected
from ir.values import Pointer
from programs import CAPTURED, GRADIENT, KERNELS, PLAIN, Kind, all_large
from programs.kinds import check

import xtensor as xt
from xtensor.codegen.cpu.compile import host
from xtensor.run.native import Launch

pytestmark = pytest.mark.skipif(host() is None, reason="there is no compiler here")

# Programs, and how many launches they are made into at least.
PROGRAMS = [
    (KERNELS, 10, "large, llvm", 50),
    (PLAIN, 50, "large, llvm", 100),
    (CAPTURED, 100, "llvm", 80),
    (GRADIENT, 10, "llvm", 120),
]


@pytest.mark.parametrize(("kind", "count", "mode", "least"), PROGRAMS, ids=[kind.name for kind, *_ in PROGRAMS])
def test_programs_touch_their_operands_alone(kind: Kind, count: int, mode: str, least: int) -> None:
    modules: dict[str, Module] = {}
    with collected() as found:
        for seed in range(count):
            check(kind, seed, [mode])
    total = sum([check_launches(one, 1 + at % 3, modules) for at, one in enumerate(found)], Checked())
    assert total.run >= least and total.foreign + total.long <= total.run // 20, total


# ---- what is wrong is found


@cache
def found_of(length: int, step: int) -> Found:
    """Return what makes the launches of a kernel over so many elements, which lie so many apart; it is made once."""
    x = xt.asarray(np.arange(float(length * step)), copy=True)[::step]
    with xt.options(lazy="always", engine="llvm", cache_dir=""), all_large(), collected() as found:
        (x * 2.0 + 1.0).evaluate()
    (one,) = found
    return one


def changed(one: Found, change: Callable[[Launch], Launch]) -> Found:
    make = one.makes.make
    return one._replace(makes=one.makes._replace(make=lambda making: [change(launch) for launch in make(making)]))


def with_text(old: str, new: str) -> Callable[[Launch], Launch]:
    """Return what exchanges a part of a launch's machine code."""

    def change(launch: Launch) -> Launch:
        assert old in launch.code.text
        return launch._replace(code=SimpleNamespace(text=launch.code.text.replace(old, new)))

    return change


def with_word(at: int, more: int) -> Callable[[Launch], Launch]:
    """Return what adds to a word that a launch is told."""
    return lambda launch: launch._replace(words=[word + more * (n == at) for n, word in enumerate(launch.words)])


def turned(launch: Launch) -> Launch:
    """Exchange a launch's operands."""
    numbers = [number for _, number, _ in launch.fillings[:2]]
    swapped = dict(zip(numbers, reversed(numbers), strict=True))
    return launch._replace(fillings=[(word, swapped.get(n, n), after) for word, n, after in launch.fillings])


@pytest.mark.parametrize("length", [13, 63, 137])
@pytest.mark.parametrize(
    ("step", "change", "told"),
    [
        (1, with_word(0, 1), "reads|writes"),
        (1, with_word(0, -1), "8 bytes are not written"),
        (1, with_text("icmp ult <", "icmp ule <"), "reads|writes"),
        (1, turned, "read only"),
        (1, lambda launch: launch._replace(fillings=[(w, n, a + 8) for w, n, a in launch.fillings]), "reads"),
        (3, with_word(2, 4), "reads"),
        (3, with_word(2, -1), "reads"),
    ],
    ids=["longer", "shorter", "mask", "turned", "after", "stride", "between"],
)
def test_what_is_out_of_bounds_is_found(length: int, step: int, change: Callable[[Launch], Launch], told: str) -> None:
    one = found_of(length, step)
    assert check_launches(one, 1, {}).run == 1
    with pytest.raises(BoundsError, match=told):
        check_launches(changed(one, change), 1, {})


TABLE = """
@table = private constant [4 x double] [double 0.0, double 1.0, double 2.0, double 3.0]
define void @kernel(ptr %slots) {{
  %x.at = load ptr, ptr %slots
  %x = load i64, ptr %x.at
  %place = {index}
  %at = getelementptr double, ptr @table, i64 %place
  %found = load double, ptr %at
  ret void
}}
"""


@pytest.mark.parametrize(
    ("index", "good"),
    [
        ("and i64 %x, 3", True),
        ("and i64 %x, 7", False),
        ("lshr i64 %x, 62", True),
        ("ashr i64 %x, 62", False),
        ("urem i64 %x, 4", False),  # of what may be negative nothing is known
        ("call i64 @llvm.smin.i64(i64 %x, i64 3)", False),
    ],
)
def test_places_that_depend_on_elements_are_bounded(index: str, good: bool) -> None:
    module = Module("declare i64 @llvm.smin.i64(i64, i64)" + TABLE.format(index=index))
    slots, elements = Region.of_bytes("words", 8), Region.of_bytes("elements", 8)
    slots.words[0] = Pointer(elements, 0)
    machine = Machine(module, way=True)
    if good:
        machine.call("kernel", [Pointer(slots, 0)])
    else:
        with pytest.raises(BoundsError, match="@table"):
            machine.call("kernel", [Pointer(slots, 0)])
