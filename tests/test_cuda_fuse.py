"""Whole functions captured on a CUDA device that is emulated: values beside plain calls on the CPU, call by call."""

from __future__ import annotations

import gc
import warnings
from collections.abc import Callable, Iterator
from typing import Any

import emulated
import host_cupy
import numpy as np
import pytest

import xtensor as xt
from xtensor.run import cuda_segment
from xtensor.run.cuda_segment import LEAST, REPEATS

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


def masked(x: Any, y: Any) -> Any:
    x[x > 0] = x[x > 0] * 2.0 + y[x > 0]
    y[y < 0] -= 1.0


def going_on(x: Any, y: Any) -> Any:
    x[...] = 0.5 * x + 0.25 * y
    y -= x / (x * x + 1.0)
    x[...] = x * y


PROGRAMS = [heat, updates, indices, library, softmax, gradient, blank, masked, going_on]


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


# ---- CUDA graphs


def waves(x: Any, y: Any) -> Any:
    """Writes that later steps read: launches that cannot be one, a reduction in two of them, results of its own."""
    for _ in range(2):
        x[1:-1] += 0.25 * (y[2:] - y[:-2])
        y[1:-1] += 0.25 * (x[2:] - x[:-2])
    z = x * y
    z[0] = 1.0
    return z, xt.sum(z[1:] * 0.5), z[::2]


def around_a_library(x: Any, y: Any) -> Any:
    for _ in range(2):
        x[1:-1] += 0.25 * (y[2:] - y[:-2])
        y[1:-1] += 0.25 * (x[2:] - x[:-2])
    x[...] = xt.sort(x)
    for _ in range(2):
        x[1:-1] += 0.25 * (y[2:] - y[:-2])
        y[1:-1] += 0.25 * (x[2:] - x[:-2])
    return xt.cumulative_sum(x)


def rows(x: Any, y: Any) -> Any:
    for _ in range(2):
        shaped = xt.reshape(x, (6, -1))
        e = xt.exp(shaped - xt.max(shaped, axis=1, keepdims=True))
        shaped[...] = e / xt.sum(e, axis=1, keepdims=True)
        y += x * 0.5
    return xt.var(y)


def lines(call: int, device: Any, size: int = 6000) -> list[Any]:
    rng = np.random.default_rng(call)
    return [xt.asarray(rng.standard_normal(size).round(2), device=device) for _ in range(2)]


def assert_call(fused: Any, program: Any, call: int, views: Any = lambda a: a, kept: list[Any] | None = None) -> None:
    """Compare a call on the device with one on the CPU, arguments that are written included."""
    given, plain = lines(call, "cuda:0"), lines(call, "cpu")
    found, expected = fused(*map(views, given)), program(*map(views, plain))
    for one, other in zip(on_host((found, *given)), on_host((expected, *plain)), strict=True):
        # running sums are as far off as the largest of them is rounded
        np.testing.assert_allclose(one, other, rtol=1e-12, atol=1e-14 * max(1.0, np.max(np.abs(other))))
    if kept is not None:
        kept += [given, found]


@pytest.mark.parametrize(("program", "segments"), [(waves, 1), (around_a_library, 2), (rows, 1)])
@pytest.mark.parametrize("keeps", [False, True], ids=["memory comes again", "memory is always another"])
def test_repeated_segments_become_graphs(program: Any, segments: int, keeps: bool, cuda: emulated.Launches) -> None:
    """From the fifth run on a segment is one launch, and one of its table where memory is another than before."""
    fused, kept = xt.fuse(program, strict=True), list[Any]() if keeps else None
    with xt.options(lazy="auto"):
        for call in range(REPEATS + 1):
            assert_call(fused, program, call, kept=kept)
        for call in range(3):
            before = len(cuda.grids), len(cuda.graphs)
            assert_call(fused, program, call, kept=kept)
            assert len(cuda.graphs) - before[1] == segments
            assert all(count >= LEAST for count in cuda.graphs[before[1] :])
            assert len(cuda.grids) - before[0] <= segments
            assert keeps <= (len(cuda.grids) - before[0])
    assert "launched as a CUDA graph" in str(xt.explain(fused))


# What fills a table is launched so: one thread.
FILLS = (1, 1), 1, 0


def damped(x: Any, y: Any, rate: Any, many: Any) -> Any:
    """Numbers that kernels are told, beside others that stay the same."""
    for _ in range(2):
        x[1:-1] += rate * (y[2:] - 3 * y[:-2])
        y[1:-1] += 2 * (x[2:] - rate * x[:-2]) * many
    return x * (rate + 1) + y, y[1:] * many


NUMBERS = {"float64": 0.01, "float32": 0.01, "float16": 0.01, "int8": 3, "int64": 1 << 40, "complex128": 0.01}


@pytest.mark.parametrize("dtype", NUMBERS)
def test_graphs_are_told_numbers(dtype: str, cuda: emulated.Launches) -> None:
    """Numbers that change from call to call come with the table of addresses."""
    fused, number = xt.fuse(damped, strict=True), NUMBERS[dtype]
    with xt.options(lazy="auto"):
        for call in range(REPEATS + 6):
            before = len(cuda.grids), len(cuda.graphs)
            told = number * (call % 4 + 1), call + 1
            given, plain = [[xt.astype(one, getattr(xt, dtype)) for one in lines(call, d)] for d in ("cuda:0", "cpu")]
            found, expected = fused(*given, *told), damped(*plain, *told)
            for one, other in zip(on_host((found, *given)), on_host((expected, *plain)), strict=True):
                bound = 0.0 if one.dtype.kind == "i" else 8.0 * np.finfo(one.dtype).eps
                np.testing.assert_allclose(one, other, rtol=bound, atol=bound * max(1, np.max(np.abs(other))))
        assert len(cuda.graphs) - before[1] == 1
        assert cuda.grids[before[0] :] == [FILLS]
        before = len(cuda.grids), len(cuda.graphs)
        fused(*given, *told)
        fused(*given, number * 7, told[1])
        assert (len(cuda.grids) - before[0], len(cuda.graphs) - before[1]) == (2, 2)
    assert "launched as a CUDA graph" in str(xt.explain(fused))


def test_numbers_of_rows_in_graphs(cuda: emulated.Launches) -> None:
    def program(x: Any, y: Any, scale: float, shift: float) -> Any:
        for _ in range(3):
            shaped = xt.reshape(x, (6, -1)) * scale
            e = xt.exp(shaped - xt.max(shaped, axis=1, keepdims=True))
            x[...] = xt.reshape(e / (xt.sum(e, axis=1, keepdims=True) + shift), (-1,))
            y += x * shift
        return y

    fused = xt.fuse(program, strict=True)
    with xt.options(lazy="auto"):
        for call in range(REPEATS + 4):
            before = len(cuda.graphs)
            told = 0.5 + call, 1.0 / (call + 1)
            assert_call(lambda x, y, told=told: fused(x, y, *told), lambda x, y, told=told: program(x, y, *told), call)
    assert len(cuda.graphs) == before + 1


def test_plain_evaluations_become_graphs_whatever_their_numbers(cuda: emulated.Launches) -> None:
    """Several kernels of one evaluation that comes again, each time with other numbers."""
    x = xt.asarray(np.random.default_rng(0).standard_normal((60, 1000)), device="cuda:0")
    host = np.asarray(x.to_device("cpu"))
    with xt.options(lazy="always"):
        for call in range(REPEATS + 4):
            before, number = len(cuda.graphs), 0.5 + call
            made = [xt.sum(x * number, axis=1), xt.sum(x + number, axis=0), xt.max(x - number), xt.min(x * number)]
            sum(made[1:], made[0][:, None]).evaluate()
            expected = [(host * number).sum(1), (host + number).sum(0), (host - number).max(), (host * number).min()]
            for one, other in zip(on_host(tuple(made)), expected, strict=True):
                np.testing.assert_allclose(one, other, rtol=1e-10, atol=1e-10)
    assert len(cuda.graphs) > before


def test_a_table_that_is_right_is_not_filled_again(cuda: emulated.Launches) -> None:
    def steps(x: Any, y: Any) -> None:
        for _ in range(4):
            x[1:] += y[:-1]
            y[1:] -= x[:-1]

    fused, (x, y), (a, b) = xt.fuse(steps, strict=True), lines(0, "cuda:0"), lines(0, "cpu")
    with xt.options(lazy="auto"):
        for call in range(REPEATS + 6):
            before = len(cuda.grids)
            fused(x, y)
            steps(a, b)
            if call > REPEATS + 1:
                assert len(cuda.grids) == before
    for one, other in zip(on_host((x, y)), on_host((a, b)), strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-13)


def test_results_of_graphs_are_memory_of_their_own(cuda: emulated.Launches) -> None:
    """A later call changes nothing that an earlier one returned."""
    fused = xt.fuse(waves, strict=True)
    with xt.options(lazy="auto"):
        (x, y), (a, b) = lines(0, "cuda:0"), lines(0, "cpu")
        found, expected = [], []
        for _ in range(REPEATS + 4):
            found.append(fused(x, y))
            expected.append(waves(a, b))
            x, y = xt.tanh(found[-1][0]), xt.tanh(y)
            a, b = xt.tanh(expected[-1][0]), xt.tanh(b)
    for one, other in zip(on_host(tuple(found)), on_host(tuple(expected)), strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-10)


def test_views_that_begin_between_vectors(cuda: emulated.Launches) -> None:
    """A graph stands for memory that is aligned as when it was recorded, and for no other."""
    fused = xt.fuse(waves, strict=True)
    with xt.options(lazy="auto"):
        for begin in (*[0] * (REPEATS + 2), 1, 2, 3, 0, 1):
            assert_call(fused, waves, begin, lambda a, begin=begin: a[begin : begin + 5000])


def test_each_stream_has_a_graph_of_its_own(cuda: emulated.Launches) -> None:
    """On a stream that somebody captures kernels are launched one by one: his graph would lack the table."""
    fused, stream = xt.fuse(waves, strict=True), host_cupy.Stream()
    with xt.options(lazy="auto"):
        for _ in range(2):
            for call in range(REPEATS + 2):
                assert_call(fused, waves, call)
                with stream:
                    assert_call(fused, waves, call)
        with stream:
            before = len(cuda.graphs)
            arguments = lines(0, "cuda:0")
            stream.begin_capture()
            fused(*arguments)
            assert len(stream.captured or ()) >= LEAST
            stream.end_capture()
            assert len(cuda.graphs) == before


def test_graphs_are_bounded_and_go_with_their_function(
    cuda: emulated.Launches, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cuda_segment, "MOST", 2)
    programs = [lambda x, y, n=n: (waves(x, y), x * float(n)) for n in range(4)]
    fused = [xt.fuse(program, strict=True) for program in programs]
    with xt.options(lazy="auto"):
        for call in range(2 * REPEATS + 2):
            for one, program in zip(fused, programs, strict=True):
                assert_call(one, program, call)
            assert len(cuda_segment._graphs) <= 2
    del fused, one
    gc.collect()
    assert not cuda_segment._graphs


def test_what_cuda_does_not_record_is_launched(cuda: emulated.Launches, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuses(self: Any, mode: Any = None) -> None:
        raise RuntimeError("cudaErrorNotSupported")

    monkeypatch.setattr(host_cupy.Stream, "begin_capture", refuses)
    fused, before = xt.fuse(waves, strict=True), len(cuda.graphs)
    with xt.options(lazy="auto"), warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        for call in range(REPEATS + 4):
            assert_call(fused, waves, call)
    assert len(cuda.graphs) == before
    assert [str(one.message) for one in caught] == [
        "xtensor: no CUDA graph: cudaErrorNotSupported; kernels are launched one after the other"
    ]


def test_too_many_addresses_for_a_table(cuda: emulated.Launches, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cuda_segment, "TABLES", (2,))
    fused, before = xt.fuse(waves, strict=True), len(cuda.graphs)
    with xt.options(lazy="auto"):
        for call in range(REPEATS + 3):
            assert_call(fused, waves, call)
    assert len(cuda.graphs) == before


@pytest.mark.parametrize("seed", range(4))
def test_random_programs_as_graphs(seed: int, cuda: emulated.Launches) -> None:
    """Writes, views that overlap, reductions: call by call as on the CPU, memory always another."""
    rng = np.random.default_rng(seed)
    steps = [(*rng.integers(0, 5, 3), *rng.integers(1, 4, 2)) for _ in range(6)]

    def program(x: Any, y: Any) -> Any:
        made = x + y
        for what, first, second, a, b in steps:
            arrays = (x, y, made)
            one, other = arrays[first % 3], arrays[second % 3]
            if what == 0:
                one[a:-b] = other[b:-a] * 0.5
            elif what == 1:
                one[::2] += xt.mean(other) + xt.tanh(other[1::2])
            elif what == 2:
                made = one[::-1] - other * 0.25
            elif what == 3:
                one -= xt.max(other) * 0.125
            else:
                one[a] = 0.5 * other[b]
        return made, made[::3]

    fused, kept = xt.fuse(program, strict=True), list[Any]()
    with xt.options(lazy="auto"):
        for call in range(REPEATS + 3):
            assert_call(fused, program, call, kept=kept)


# ---- matrix products in graphs


def trained(x: Any, w: Any, v: Any) -> Any:
    """A step of two layers, whose products are of arguments, temporaries, and transposed ones of both."""
    h = xt.tanh(x @ w)
    slope = (h @ v - 1.0) * 0.1
    w -= x.T @ ((slope @ v.T) * (1.0 - h * h))
    v -= h.T @ slope
    return xt.sum(slope * slope)


def layers(call: int, device: Any, dtype: Any = np.float32) -> list[Any]:
    rng = np.random.default_rng(call)
    return [
        xt.asarray((0.2 * rng.standard_normal(shape)).astype(dtype), device=device)
        for shape in ((9, 6), (6, 5), (5, 3))
    ]


def compared(fused: Any, program: Any, given: list[Any], plain: list[Any], eps: float) -> None:
    found, expected = fused(*given), program(*plain)
    for one, other in zip(on_host((found, *given)), on_host((expected, *plain)), strict=True):
        np.testing.assert_allclose(one, other, rtol=64 * eps, atol=64 * eps)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_products_are_part_of_graphs(dtype: Any, cuda: emulated.Launches) -> None:
    """The whole step is one graph, told once where operands lie."""
    fused, eps = xt.fuse(trained, strict=True), np.finfo(dtype).eps
    given, plain = layers(0, "cuda:0", dtype), layers(0, "cpu", dtype)
    with xt.options(lazy="auto"):
        for _ in range(REPEATS + 3):
            before = len(cuda.graphs), cuda.cublas.calls
            compared(fused, trained, given, plain, eps)
        assert len(cuda.graphs) - before[0] == 1
        assert cuda.cublas.calls == before[1]
        assert cuda.cublas.recorded[-5:] == [cuda.cublas.recorded[-1]] * 5
        assert cuda.cublas.recorded[-1]  # their scratch memory
    assert "library" not in str(xt.explain(fused))


def test_operands_that_move_are_copied_for_graphs(cuda: emulated.Launches) -> None:
    """Other rows at each call, as those of minibatches; weights that are made anew at each."""

    def step(x: Any, w: Any, v: Any) -> Any:
        h = xt.tanh(x @ w)
        slope = (h @ v - 1.0) * 0.1
        return w - x.T @ ((slope @ v.T) * (1.0 - h * h)), v - h.T @ slope, h @ v

    fused, kept = xt.fuse(step, strict=True), []
    (_, w, v), (_, a, b) = layers(0, "cuda:0"), layers(0, "cpu")
    with xt.options(lazy="auto"):
        for call in range(3 * REPEATS + 3):
            before = len(cuda.graphs), cuda.cublas.calls
            rows, plain = layers(call, "cuda:0")[0], layers(call, "cpu")[0]
            (w, v, y), (a, b, z) = fused(rows, w, v), step(plain, a, b)
            kept.append((rows, w, v, y))  # so that nothing comes to lie where it lay before
            for one, other in zip(on_host((w, v, y)), on_host((a, b, z)), strict=True):
                np.testing.assert_allclose(one, other, rtol=1e-4, atol=1e-6)
        assert len(cuda.graphs) - before[0] == 1
        assert cuda.cublas.calls == before[1]
    for number, (rows, w, v, _) in enumerate(kept[:-1]):  # none was written later
        again = step(rows, w, v)
        for one, other in zip(on_host(again[:2]), on_host(kept[number][1:3]), strict=True):
            assert one.shape == other.shape
            assert np.all(np.isfinite(one))
    graphs = [graph for graph in cuda_segment._graphs if graph.beside is not None]
    assert graphs


def test_products_that_cannot_be_copied_end_graphs(cuda: emulated.Launches, monkeypatch: pytest.MonkeyPatch) -> None:
    """What is too large to be copied and lies elsewhere each time: kernels are launched one by one, for good."""
    from xtensor.run import cuda_products

    monkeypatch.setattr(cuda_products, "COPIED", 0)
    fused = xt.fuse(trained, strict=True)
    held: list[Any] = []
    with xt.options(lazy="auto"):
        for call in range(cuda_segment.ATTEMPTS * (REPEATS + 2) + 8):
            before = len(cuda.graphs)
            given, plain = layers(call, "cuda:0"), layers(call, "cpu")
            compared(fused, trained, given, plain, np.finfo(np.float32).eps)
            held.append(given)
    assert len(cuda.graphs) == before


def test_a_graphs_memory_goes_when_there_is_none(cuda: emulated.Launches) -> None:
    """Graphs, and the temporaries that schedules keep for them, are let go of; the next call begins again."""
    from xtensor.devices.cuda_memory import let_go

    fused = xt.fuse(trained, strict=True)
    given, plain = layers(0, "cuda:0"), layers(0, "cpu")
    with xt.options(lazy="auto"):
        for call in range(3 * REPEATS):
            if call == REPEATS + 2:
                let_go(given[0].device.backend)
                assert not [graph for graph in cuda_segment._graphs if graph.workspace is not None]
                assert not cuda_segment._workspaces
            compared(fused, trained, given, plain, np.finfo(np.float32).eps)


VIEWS: dict[str, Callable[[Any, Any], Any]] = {
    "plain": lambda x, y: x @ y,
    "turned": lambda x, y: xt.matrix_transpose(x) @ xt.matrix_transpose(y),
    "one turned": lambda x, y: x @ xt.matrix_transpose(x),
    "with gaps": lambda x, y: x[:, :4] @ y[:4, 1:5],
    "rows apart": lambda x, y: x[::2] @ y[:, ::2],
    "backwards": lambda x, y: x[:, ::-1] @ y[::-1],
    "a vector": lambda x, y: x @ y[:, 1],
    "by a vector": lambda x, y: x[1] @ y,
    "a scalar": lambda x, y: x[1] @ y[:, 2],
    "a row": lambda x, y: x[1:2] @ y,
    "a column": lambda x, y: x @ y[:, 1:2],
    "stacks": lambda x, y: xt.reshape(x, (2, 3, 6)) @ xt.reshape(y, (2, 6, 3)),
    "a stack by one": lambda x, y: xt.reshape(x, (2, 3, 6)) @ y,
    "one by a stack": lambda x, y: x @ xt.broadcast_to(y, (3, 6, 6)),
    "a stack turned": lambda x, y: xt.matrix_transpose(xt.reshape(x, (2, 3, 6))) @ xt.reshape(y, (2, 3, 6)),
    "stacks in another order": lambda x, y: xt.permute_dims(xt.reshape(x, (3, 2, 6)), (1, 0, 2)) @ y,
    "adjoint": lambda x, y: xt.conj(xt.matrix_transpose(x * 1j)) @ (y + 1j),
}


@pytest.mark.parametrize("view", VIEWS)
def test_products_of_views(view: str, cuda: emulated.Launches) -> None:
    def program(x: Any, y: Any) -> Any:
        return VIEWS[view](x * 2.0, y) + 1.0, VIEWS[view](x, y)

    fused = xt.fuse(program, strict=True)
    with xt.options(lazy="auto"):
        for call in range(REPEATS + 3):
            found, expected = fused(*operands(call, "cuda:0")), program(*operands(call, "cpu"))
            for one, other in zip(on_host(found), on_host(expected), strict=True):
                np.testing.assert_allclose(one, other, rtol=1e-13, atol=1e-13)


@pytest.mark.parametrize("dtype", [np.float32, np.float64, np.complex64, np.complex128])
def test_stacks_of_products(dtype: Any, cuda: emulated.Launches) -> None:
    rng, before = np.random.default_rng(0), cuda.cublas.calls
    a, b = (rng.standard_normal(shape).astype(dtype) for shape in ((4, 5, 3), (4, 3, 6)))
    x, y = (xt.asarray(one, device="cuda:0") for one in (a, b))
    with xt.options(lazy="always"):
        found = np.asarray((x @ y + 1).to_device("cpu"))
    np.testing.assert_allclose(found, a @ b + 1, rtol=1e-5)
    assert cuda.cublas.calls == before + 1


def test_classes_are_checked_by_one_kernel(cuda: emulated.Launches) -> None:
    """A captured cross entropy waits once, for the classes, and takes no elements at indices."""
    x, t = np.random.default_rng(0).standard_normal((6, 5)).astype(np.float32), np.array([0, 4, 2, -100, 1, 3])
    fused = xt.fuse(lambda x, t: xt.nn.cross_entropy(x * 2.0, t), strict=True)
    given = [xt.asarray(one, device="cuda:0") for one in (x, t)]
    with xt.options(lazy="auto"):
        for _ in range(REPEATS + 2):
            found = np.asarray(fused(*given).to_device("cpu"))
        np.testing.assert_allclose(
            found, np.asarray(xt.nn.cross_entropy(xt.asarray(x) * 2.0, xt.asarray(t))), rtol=1e-6
        )
        words = str(xt.explain(fused))
        assert words.count("library") == 1, words
        for wrong in (5, -1, 1 << 40):
            given[1] = xt.asarray(np.array([0, 4, wrong, -100, 1, 3]), device="cuda:0")
            with pytest.raises(IndexError, match=f"hold integers from 0 to 4, got {wrong}"):
                fused(*given)
        for dtype in (np.int8, np.uint8, np.uint64):
            classes = np.array([0, 4, 2, 1, 1, 3], dtype)
            assert np.isfinite(float(fused(given[0], xt.asarray(classes, device="cuda:0"))))


# ---- Fourier transforms in graphs


def spectral(u: Any, d: Any) -> Any:
    u[...] = xt.fft.irfft(xt.fft.rfft(u, axis=1) * d, n=u.shape[1], axis=1)
    return xt.sum(u)


TRANSFORMS: dict[str, Callable[[Any], Any]] = {
    "forward": lambda z: xt.fft.fft(z),
    "back": lambda z: xt.fft.ifft(z),
    "ortho": lambda z: xt.fft.fft(z, norm="ortho"),
    "back, ortho": lambda z: xt.fft.ifftn(z, norm="ortho"),
    "scaled forward": lambda z: xt.fft.fftn(z, norm="forward"),
    "back, scaled forward": lambda z: xt.fft.ifft(z, norm="forward"),
    "of all axes": lambda z: xt.fft.fftn(z),
    "of real numbers": lambda z: xt.fft.rfft(xt.real(z)),
    "of real numbers, all axes": lambda z: xt.fft.rfftn(xt.real(z), norm="ortho"),
    "to real numbers": lambda z: xt.fft.irfft(z),
    "to an odd number": lambda z: xt.fft.irfft(z, n=2 * z.shape[-1] - 1),
    "to real numbers, all axes": lambda z: xt.fft.irfftn(z),
    "cut": lambda z: xt.fft.fft(z, n=3),
    "padded": lambda z: xt.fft.rfft(xt.real(z), n=11),
    "the first axis": lambda z: xt.fft.fft(z, axis=0),
    "turned": lambda z: xt.fft.fft(xt.matrix_transpose(z)),
    "real numbers as complex": lambda z: xt.fft.fft(xt.real(z)),
    "hermitian": lambda z: xt.fft.hfft(z),
}
BY_CUFFT = {
    *("forward", "back", "ortho", "back, ortho", "scaled forward", "back, scaled forward", "of all axes"),
    *(
        "of real numbers",
        "of real numbers, all axes",
        "to real numbers",
        "to an odd number",
        "to real numbers, all axes",
    ),
}


@pytest.mark.parametrize("dtype", [np.complex64, np.complex128])
@pytest.mark.parametrize("name", TRANSFORMS)
def test_transforms(name: str, dtype: Any, cuda: emulated.Launches) -> None:
    """Results as NumPy's, and what is transformed as it was."""

    def program(z: Any) -> Any:
        return TRANSFORMS[name](z * 2.0) + 1.0, TRANSFORMS[name](z)

    fused, rng = xt.fuse(program, strict=True), np.random.default_rng(0)
    with xt.options(lazy="auto"):
        for _ in range(REPEATS + 4):
            before = cuda.cufft.calls, len(cuda.graphs)
            z = (rng.standard_normal((4, 5)) + 1j * rng.standard_normal((4, 5))).astype(dtype)
            given = xt.asarray(z, device="cuda:0")
            found, expected = fused(given), program(xt.asarray(z))
            for one, other in zip(on_host(found), on_host(expected), strict=True):
                assert one.dtype == other.dtype
                np.testing.assert_allclose(one, other, rtol=1e-4 if dtype == np.complex64 else 1e-12, atol=1e-5)
            np.testing.assert_array_equal(given.to_device("cpu").numpy(), z)
    assert (name in BY_CUFFT) == ("library" not in str(xt.explain(fused)))
    assert (name in BY_CUFFT) == (len(cuda.graphs) == before[1] + 1 and cuda.cufft.calls == before[0])


def test_transforms_are_part_of_graphs(cuda: emulated.Launches) -> None:
    rng = np.random.default_rng(0)
    u, d = rng.standard_normal((6, 8)), rng.random((6, 5))
    given, plain = ([xt.asarray(one, device=where, copy=True) for one in (u, d)] for where in ("cuda:0", "cpu"))
    fused = xt.fuse(spectral, strict=True)
    with xt.options(lazy="auto"):
        for _ in range(REPEATS + 4):
            before = len(cuda.graphs), len(cuda.grids)
            compared(fused, spectral, given, plain, np.finfo(np.float64).eps)
    assert (len(cuda.graphs) - before[0], cuda.grids[before[1] :]) == (1, [FILLS])


def test_temporaries_are_those_of_a_stream(cuda: emulated.Launches) -> None:
    """What is kept of one stream's runs is no other one's, nor that of another thread's own default stream."""
    from contextvars import copy_context
    from threading import Thread

    from xtensor.devices.cuda_memory import PER_THREAD

    library: Any = host_cupy.module()
    fused, schedules = xt.fuse(trained, strict=True), list[int]()
    given = layers(0, "cuda:0")
    with xt.options(lazy="auto"):
        for _ in range(3):
            fused(*given)
    (schedule,) = [known.captured._schedule for known in fused._known.values() if known.captured]
    assert schedule is not None

    def run(stream: Any) -> None:
        with stream, xt.options(lazy="auto"):
            fused(*given)
            assert schedule._arena is not None
            schedules.append(schedule._arena[2].memory.address)

    def place() -> int:
        assert schedule._arena is not None
        return schedule._arena[2].memory.address

    first = place()
    with xt.options(lazy="auto"):
        fused(*given)
    assert place() == first
    held = schedule._arena  # so that nothing comes to lie there
    run(library.cuda.Stream())
    assert schedules[-1] != first
    own = library.cuda.Stream(PER_THREAD)
    run(own)
    again = schedule._arena
    run(own)
    assert schedules[-1] == schedules[-2]
    worker = Thread(target=copy_context().run, args=(run, own))  # under the same options
    worker.start()
    worker.join()
    assert schedules[-1] != schedules[-2]
    assert held is not None and again is not None


def test_transforms_that_the_library_refuses(cuda: emulated.Launches, monkeypatch: pytest.MonkeyPatch) -> None:
    """CuPy's function makes them, at each call, and no graph is recorded."""
    rng = np.random.default_rng(0)
    u, d = rng.standard_normal((6, 8)), rng.random((6, 5))
    given, plain = ([xt.asarray(one, device=where, copy=True) for one in (u, d)] for where in ("cuda:0", "cpu"))
    fused, before = xt.fuse(spectral, strict=True), cuda.cufft.calls
    monkeypatch.setattr(cuda.cufft, "refuses", True)
    with xt.options(lazy="auto"):
        for _ in range(REPEATS + 4):
            graphs = len(cuda.graphs)
            compared(fused, spectral, given, plain, np.finfo(np.float64).eps)
    assert (len(cuda.graphs), cuda.cufft.calls) == (graphs, before)
