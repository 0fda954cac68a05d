"""Whole functions captured on a CUDA device that is emulated: values beside plain calls on the CPU, call by call."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import emulated
import numpy as np
import pytest

import xtensor as xt

if emulated.MISSING:
    pytest.skip(emulated.MISSING, allow_module_level=True)


@pytest.fixture(scope="module")
def cuda() -> Iterator[emulated.Launches]:
    with emulated.device() as launches:
        yield launches


def heat(u: Any, v: Any) -> Any:
    v[1:-1, 1:-1] = u[1:-1, 1:-1] + 0.1 * (
        u[2:, 1:-1] + u[:-2, 1:-1] + u[1:-1, 2:] + u[1:-1, :-2] - 4.0 * u[1:-1, 1:-1]
    )
    u[...] = v


def updates(x: Any, y: Any) -> Any:
    x += y * 2.0
    x[0] = 1.0
    z = x * x
    z[1:] -= y[:-1]
    return z, xt.sum(z, axis=0)


def indices(x: Any, y: Any) -> Any:
    at = xt.asarray([3, 0, 2], device=x.device)
    x[at] = y[at] + 1.0
    x[x > 3.0] = 0.0
    return xt.take(x, at, axis=1), x[0]


def library(x: Any, y: Any) -> Any:
    made = xt.zeros((6, 6), dtype=x.dtype, device=x.device)
    made[:, :] = xt.sort(x, axis=0) @ xt.permute_dims(y, (1, 0)) + 1.0
    return xt.cumulative_sum(made, axis=1), made[2]


def softmax(x: Any, y: Any) -> Any:
    e = xt.exp(x - xt.max(x, axis=1, keepdims=True))
    return e / xt.sum(e, axis=1, keepdims=True) + y


def gradient(x: Any, y: Any) -> Any:
    return xt.autograd.value_and_grad(lambda a: xt.sum(xt.tanh(a * y)))(x)


def blank(x: Any, y: Any) -> Any:
    made = xt.empty((6, 6), dtype=x.dtype, device=x.device)
    made[:3] = x[3:]
    made[3:] = y[:3] * 2.0
    return made


PROGRAMS = [heat, updates, indices, library, softmax, gradient, blank]


def operands(call: int, device: Any) -> list[Any]:
    rng = np.random.default_rng(call)
    return [xt.asarray(rng.standard_normal((6, 6)).round(2), device=device) for _ in range(2)]


def on_host(value: Any) -> list[np.ndarray[Any, Any]]:
    """Return the tensors among nested results, on the host."""
    if value is None:
        return []
    if isinstance(value, tuple):
        return [leaf for part in value for leaf in on_host(part)]
    return [np.asarray(value.to_device("cpu"))]


@pytest.mark.parametrize("program", PROGRAMS, ids=lambda program: program.__name__)
def test_captured_on_a_device(program: Callable[..., Any], cuda: emulated.Launches) -> None:
    fused = xt.fuse(program, strict=True)
    with xt.options(lazy="auto"):
        for call in range(4):
            x, y = operands(call, "cuda:0")
            found = fused(x, y)
            a, b = operands(call, "cpu")
            expected = program(a, b)
            for one, other in zip(on_host((found, x, y)), on_host((expected, a, b)), strict=True):
                np.testing.assert_allclose(one, other, rtol=1e-13, atol=1e-13)
        assert fused.why(x, y) == ""


def test_numbers_are_drawn_in_order(cuda: emulated.Launches) -> None:
    """Each call draws anew, as a plain one does, and what is drawn comes to the device."""
    own, other = (xt.random.default_rng(5, device=device) for device in ("cuda:0", "cpu"))
    fused = xt.fuse(lambda x, rng: x + rng.normal(size=(6, 6)), strict=True)
    for call in range(3):
        x, a = operands(call, "cuda:0")[0], operands(call, "cpu")[0]
        expected = a + other.normal(size=(6, 6))
        np.testing.assert_array_equal(*on_host((fused(x, own), expected)))


def test_kernels_are_launched_from_the_second_call_on(cuda: emulated.Launches) -> None:
    """A step in two kernels, with a write between them, is two launches in each further call."""
    fused, counts = xt.fuse(heat, strict=True), []
    with xt.options(lazy="auto"):
        for call in range(4):
            before = len(cuda.grids)
            fused(*operands(call, "cuda:0"))
            counts.append(len(cuda.grids) - before)
    assert counts[1:] == [2, 2, 2]


def test_devices_are_kinds_of_their_own(cuda: emulated.Launches) -> None:
    """Arguments on different devices are for the function itself to refuse, and a device is part of the signature."""
    fused = xt.fuse(lambda x, y: xt.tanh(x) * y)
    (x, y), (a, b) = operands(0, "cuda:0"), operands(0, "cpu")
    for given in ((x, y), (a, b), (x, y), (a, b)):
        assert fused(*given).device == given[0].device
    with pytest.raises(ValueError, match="device"):
        fused(x, b)
    assert fused.why(x, b).startswith("[device]")


def test_memory_made_elsewhere_is_refused(cuda: emulated.Launches) -> None:
    fused = xt.fuse(lambda x: (xt.exp(x), xt.ones((3,), device="cpu") * 2.0))
    for call in range(3):
        x = operands(call, "cuda:0")[0]
        found = fused(x)
        np.testing.assert_array_equal(np.asarray(found[1]), [2.0, 2.0, 2.0])
    assert fused.why(x).startswith("[device]")


def test_what_is_evaluated_together_may_be_on_several_devices(cuda: emulated.Launches) -> None:
    x, a = operands(0, "cuda:0")[0], operands(0, "cpu")[0]
    y, b = xt.exp(x) * 2.0, xt.exp(a) * 2.0
    before = len(cuda.grids)
    xt.evaluate(y, b)
    assert len(cuda.grids) == before + 1  # the other one is the CPU's
    np.testing.assert_allclose(*on_host((y, b)), rtol=1e-14)


def test_one_expression_on_two_devices(cuda: emulated.Launches) -> None:
    """What is prepared for one device is not run on another one, in whatever order they come."""
    elements = np.random.default_rng(0).standard_normal((120, 120))  # so many that the CPU runs kernels as well
    for _ in range(6):
        before = len(cuda.grids)
        x, a = (xt.asarray(elements, device=device, copy=True) for device in ("cuda:0", "cpu"))
        here, there = (xt.exp(a) * 0.5 - a).evaluate(), (xt.exp(x) * 0.5 - x).evaluate()
        assert len(cuda.grids) == before + 1
        np.testing.assert_allclose(*on_host((there, here)), rtol=1e-14)
