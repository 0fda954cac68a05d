"""Machine code stays within its operands: its text is run by an interpreter that knows what each pointer is for."""

from __future__ import annotations

import struct
import sys
from collections.abc import Callable
from functools import cache
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from ir import BoundsError, Checked, Found, Machine, Module, Region, check_launches, collected
from ir.calls import checked_calls
from ir.values import Pointer
from programs import CAPTURED, GRADIENT, KERNELS, PLAIN, Kind, all_large
from programs.kinds import check

import xtensor as xt
from xtensor.codegen.cpu.compile import host
from xtensor.codegen.cpu.stack import stack_kernel
from xtensor.nn import conv, product_sums
from xtensor.nn import scaled_dot_product_attention as attention
from xtensor.run import contractions
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


# ---- kernels that are written out


def numbers(*shape: int, dtype: str = "float32") -> xt.Tensor:
    return xt.asarray((np.random.default_rng(0).normal(size=shape) * 3).astype(dtype))


def slopes(function: Callable[..., Any], *given: xt.Tensor, **more: Any) -> Any:
    """Return the gradients of what a function gives."""
    return xt.grad(lambda *x: xt.sum(xt.square(function(*x, **more))), argnums=tuple(range(len(given))))(*given)


def many_weights(*shape: int, layout: str, window: int = 3, **more: Any) -> xt.Tensor:
    """Return a gradient of weights that are taken for many."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(product_sums, "WEIGHT_BYTES", dict.fromkeys((False, True), (0, 0)))
        y, back = xt.vjp(lambda w: conv(numbers(*shape), w, layout=layout, **more), numbers(8, 5, window, window))
        (found,) = back(numbers(*y.shape))
        xt.evaluate(found)
    return found


# What is computed, and how many calls it is made of at least.
CALLS: dict[str, tuple[int, Callable[[], Any]]] = {
    "product of integers": (1, lambda: numbers(13, 17, dtype="int32") @ numbers(17, 11, dtype="int32")),
    "long integers": (1, lambda: numbers(5, 40, dtype="int64") @ numbers(40, 33, dtype="int64")),
    "stack of products": (1, lambda: numbers(7, 5, 6) @ numbers(7, 6, 9)),
    "few columns": (1, lambda: numbers(70, 37) @ numbers(37, 3)),
    "convolution": (1, lambda: conv(numbers(2, 3, 9, 11), numbers(5, 3, 3, 3), padding=1, algorithm="im2col")),
    "channels last": (2, lambda: conv(numbers(2, 9, 7, 5), numbers(6, 5, 3, 3), padding=1, layout="NHWC")),
    "few channels": (1, lambda: conv(numbers(2, 3, 9, 7), numbers(6, 3, 3, 3), padding=1)),
    "few channels last": (1, lambda: slopes(conv, numbers(2, 9, 7, 3), numbers(6, 3, 3, 3), padding=1, layout="NHWC")),
    "groups of four": (1, lambda: slopes(conv, numbers(1, 8, 6, 7), numbers(8, 4, 3, 3), groups=2, padding=1)),
    "groups of four last": (
        1,
        lambda: slopes(conv, numbers(1, 6, 7, 8), numbers(8, 4, 3, 3), groups=2, padding=1, layout="NHWC"),
    ),
    "single elements": (1, lambda: conv(numbers(1, 7, 6, 6), numbers(9, 7, 1, 1))),
    "strided": (1, lambda: conv(numbers(1, 4, 10, 9), numbers(6, 4, 3, 2), stride=2, padding=1, dilation=2)),
    "groups": (1, lambda: conv(numbers(1, 6, 8, 8), numbers(6, 1, 3, 3), groups=6, padding=1)),
    "groups last": (1, lambda: conv(numbers(1, 8, 8, 6), numbers(6, 1, 3, 3), groups=6, padding=1, layout="NHWC")),
    "transposed": (4, lambda: xt.nn.conv_transpose(numbers(1, 4, 5, 5), numbers(4, 3, 3, 3), stride=2)),
    "gradient": (4, lambda: slopes(conv, numbers(1, 3, 6, 7), numbers(4, 3, 3, 3), padding=1)),
    "gradient of groups": (3, lambda: slopes(conv, numbers(1, 4, 6, 7), numbers(4, 1, 3, 3), padding=1, groups=4)),
    "gradient of many weights": (4, lambda: many_weights(1, 5, 6, 7, layout="NCHW", padding=1)),
    "gradient of many weights, last": (3, lambda: many_weights(1, 6, 7, 5, layout="NHWC", padding=1)),
    "gradient of many single weights": (2, lambda: many_weights(2, 5, 6, 7, window=1, layout="NCHW")),
    "maxima": (1, lambda: xt.nn.max_pool(numbers(1, 3, 9, 9), 3, stride=2, padding=1)),
    "means": (1, lambda: xt.nn.avg_pool(numbers(1, 3, 9, 9), 2)),
    "Winograd": (2, lambda: conv(numbers(2, 3, 9, 11), numbers(5, 3, 3, 3), padding=1, algorithm="winograd")),
    "Winograd's gradient": (
        5,
        lambda: slopes(conv, numbers(1, 3, 6, 7), numbers(4, 3, 3, 3), padding=1, algorithm="winograd"),
    ),
    "attention": (4, lambda: attention(numbers(1, 2, 9, 8), numbers(1, 2, 13, 8), numbers(1, 2, 13, 5))),
    "causal attention": (4, lambda: slopes(attention, *[numbers(1, 1, 11, 8)] * 3, is_causal=True)),
}
# Below which the library does the work.
LIMITS = {"CONTRACTION_COMPILED": 0, "INTEGERS_COMPILED": 1, "ATTENTION_TILED": 0, "FEWEST_QUERIES": 1}
LIMITS |= {"PRODUCT_LEAST": 0, "STACK_COMPILED": 0, "NATIVE_PRODUCTS": 0, "THIN_LEAST": 0}


@pytest.mark.parametrize("name", CALLS)
def test_kernels_that_are_written_out_touch_their_arrays_alone(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    least, compute = CALLS[name]
    for module in [module for name, module in sys.modules.items() if name.startswith("xtensor.")]:
        for limit in LIMITS.keys() & vars(module).keys():
            monkeypatch.setattr(module, limit, LIMITS[limit])
    with xt.options(engine="llvm", cache_dir="", threads=2), checked_calls() as found:
        results = compute()
        xt.evaluate(*results if isinstance(results, tuple) else (results,))
    assert len(found) >= least and all(one.run for one in found), found


def test_a_call_that_goes_beyond_an_array_is_found() -> None:
    """One matrix more than there are, in each of the arrays that a kernel is told of."""
    code = stack_kernel("f", 3, 4, 5, (4, 1, 5, 1))
    for place in range(4):
        lengths = [8 * 12, 8 * 20, 8 * 15]
        if place < 3:
            lengths[place] -= 1
        arrays = [np.zeros(length, np.float32) for length in lengths]
        with checked_calls() as found:
            told = struct.pack("=7q", *map(contractions.address, arrays), 8, 12, 20, 15)
            if place == 3:
                code.call(told)
                assert found == [Checked(run=1)]
            else:
                with pytest.raises(BoundsError, match=f"an array of .{lengths[place]},"):
                    code.call(told)


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
    way = SimpleNamespace(
        launches=lambda making: [change(launch) for launch in one.way.launches(making)], aligned=one.way.aligned
    )
    return one._replace(way=way)


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
