"""On a CUDA device: the tests of the backend with CuPy itself, of generated kernels, and what only a device can show.

Skipped where there is none; `pytest -m gpu` runs nothing else.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from importlib import import_module
from typing import Any

import emulated
import numpy as np
import pytest
from test_cuda_call import (  # noqa: F401 - run here once more, with this file's `calls`
    test_a_small_call_is_one_launch,
    test_few_ways_to_lie_are_remembered,
    test_small_calls_are_the_cpus_and_recorded_ones,
    test_small_updates_in_place,
)
from test_cuda_emulated import (  # noqa: F401 - likewise, with this file's `cuda`
    test_a_thread_without_the_devices_context,
    test_chains_and_several_outputs,
    test_contraction_only_where_asked,
    test_conversions,
    test_elementwise,
    test_gradients,
    test_layouts,
    test_long_rows,
    test_numbers_between_multiples_of_their_size,
    test_random_programs,
    test_reductions,
    test_reductions_are_fused_and_repeat,
    test_reductions_of_special_values,
    test_row_programs,
    test_rows_of_one_cell,
    test_rows_of_views,
    test_scalars_of_all_kinds,
    test_sums_are_near,
    test_what_is_not_generated,
    test_writes_in_place,
)
from test_cuda_fuse import around_a_library, assert_call, damped, rows, waves
from test_cuda_library import (  # noqa: F401 - likewise
    test_a_kernel_that_cannot_be_built,
    test_adding_at_indices,
    test_direct_is_cupys,
    test_elements_at_indices,
    test_few_long_rows_are_cupys,
    test_few_writes_into_much,
    test_indices_of_much_are_looked_at_ahead,
    test_masks,
    test_other_dtypes,
    test_places_of_special_values,
    test_pools,
    test_rows_move_by_sixteen_bytes,
    test_rows_too_long_for_a_block,
    test_running_results,
    test_running_results_of_special_values,
    test_sort,
    test_take,
    test_transposed_copies,
    test_what_is_outside_raises,
    test_wide_indices,
    test_windows_of_one_element_are_not_laid_out,
    test_workspace,
    test_writes_at_indices,
    test_writes_at_masks,
)

import xtensor as xt
from tests.test_cuda_backend import (  # noqa: F401 - run here once more, with this file's `cp`
    CUDA,
    host,
    test_advanced_keys,
    test_elementwise_special_values,
    test_every_differentiable_function_and_its_gradient,
    test_filling_keeps_the_sign_of_zero,
    test_floats_become_integers_as_on_x86,
    test_library_functions,
    test_mixing_devices_names_both,
    test_numpy_must_not_see_it,
    test_pending_readers_finish_before_a_write,
    test_reductions_special_values,
    test_scalars_and_sequences_go_where_the_tensor_is,
    test_sums_at_repeated_places_keep_their_digits,
    test_the_default_device,
    test_transfers,
    test_what_copies_by_itself,
    test_wrong_keys_raise_as_on_the_cpu,
)
from tests.test_nn_device import (  # noqa: F401 - likewise
    test_convolutions,
    test_convolutions_of_other_dtypes,
    test_one_hot,
    test_other_ranks,
    test_windows,
)
from xtensor.codegen.cuda import nvrtc as cuda_build
from xtensor.run.cuda_segment import REPEATS


def why_not() -> str:
    """Return why there is no CUDA device, "" where there is one."""
    try:
        xt.zeros(1, device=CUDA)
    except ValueError as error:
        return str(error)
    return ""


NONE = why_not()
pytestmark = [pytest.mark.gpu, pytest.mark.skipif(bool(NONE), reason=NONE or "never")]


@pytest.fixture
def cp() -> Iterator[Any]:
    """CuPy itself; its memory is given back afterwards."""
    library = import_module("cupy")
    yield library
    library.get_default_memory_pool().free_all_blocks()


@pytest.fixture
def calls(monkeypatch: pytest.MonkeyPatch) -> emulated.Launches:
    """The device itself, whose launches are counted."""
    launches, launch = emulated.Launches(), cuda_build.launch

    def seen(function: cuda_build.Function, *others: Any) -> None:
        launches.texts.append(function.text)
        launch(function, *others)

    monkeypatch.setattr(cuda_build, "launch", seen)
    return launches


@pytest.fixture
def cuda(calls: emulated.Launches) -> Iterator[emulated.Launches]:
    """The same, where all calls are recorded."""
    with xt.options(lazy="always"):
        yield calls


def numbers(*shape: int) -> Any:
    return np.random.default_rng(0).normal(size=shape)


def test_the_device_is_listed(cp: Any) -> None:
    known = xt.__array_namespace_info__().devices()
    assert len(known) == 1 + cp.cuda.runtime.getDeviceCount()
    with pytest.raises(ValueError, match="^zeros: device must be one of 'cuda:0'"):
        xt.zeros(1, device="cuda:999")


@pytest.mark.parametrize("dtype", [xt.float32, xt.float64])
def test_large_expressions_and_reductions(dtype: Any, cp: Any) -> None:
    """What is large enough to be recorded, in several layouts."""
    values = numbers(1000, 1003).astype(dtype)
    x = xt.asarray(values, device=CUDA)
    rtol = 1e-4 if dtype == xt.float32 else 1e-12
    for ours, theirs in ((x, values), (x.T, values.T), (x[::-2, 1::3], values[::-2, 1::3])):
        e = np.exp(theirs - theirs.max(axis=1, keepdims=True))
        grown = xt.exp(ours - xt.max(ours, axis=1, keepdims=True))
        soft = grown / xt.sum(grown, axis=1, keepdims=True)
        np.testing.assert_allclose(host(soft), e / e.sum(axis=1, keepdims=True), rtol=rtol)
        np.testing.assert_allclose(host(xt.sum(ours * ours)), np.sum(theirs * theirs, dtype=np.float64), rtol=rtol)
        np.testing.assert_allclose(host(xt.var(ours, axis=0)), theirs.var(axis=0), rtol=rtol)
        np.testing.assert_array_equal(host(2.5 * ours + ours), 2.5 * theirs + theirs)


def test_the_same_bits_in_every_run(cp: Any) -> None:
    x = xt.asarray(numbers(1 << 20).astype(np.float32), device=CUDA)
    places = xt.asarray(np.random.default_rng(1).integers(0, 1000, 1 << 20), device=CUDA)

    def found() -> Any:
        g = xt.grad(lambda t: xt.sum(xt.take(t, places) * x))(xt.zeros(1000, dtype=xt.float32, device=CUDA))
        return [host(xt.sum(x)), host(xt.mean(xt.reshape(x, (1024, 1024)), axis=0)), host(g)]

    for a, b in zip(found(), found(), strict=True):
        assert np.array_equal(a, b)


@pytest.mark.parametrize("library", ["cupy", "torch", "jax"])
def test_dlpack_both_ways(library: str, cp: Any) -> None:
    """The same memory on both sides, for packed arrays and for transposed ones where the library takes them."""
    pytest.importorskip(library)
    other: Any = import_module({"jax": "jax.numpy"}.get(library, library))
    values = numbers(3, 4).astype(np.float32)  # JAX has float64 only where it is asked for
    x = xt.asarray(values, device=CUDA)
    theirs = other.from_dlpack(x)
    back = xt.from_dlpack(theirs)
    assert back.device == CUDA and back.tolist() == x.tolist()
    assert back.blob.address == x.blob.address
    if library != "jax":
        assert xt.from_dlpack(other.from_dlpack(x.T)).strides == x.T.strides
        theirs *= 2.0
        assert x.tolist() == back.tolist() == (2 * values).tolist()
        assert xt.asarray(theirs).blob.address == x.blob.address
    assert np.from_dlpack(x, device="cpu").tolist() == x.tolist()


def test_streams(cp: Any) -> None:
    """Work runs on CuPy's current stream, and an export makes the consumer's stream wait for it."""
    one, other = cp.cuda.Stream(non_blocking=True), cp.cuda.Stream(non_blocking=True)
    backend: Any = xt.zeros(1, device=CUDA).device.backend
    values = numbers(1 << 20)
    with one:
        assert backend.current_stream().ptr == one.ptr
        x = xt.asarray(values, device=CUDA)
        for _ in range(50):
            x = xt.sin(x) + x
        x.evaluate()
        capsule = x.__dlpack__(stream=other.ptr, max_version=(1, 0))
    assert capsule is not None
    with other:
        found = cp.asnumpy(cp.from_dlpack(x))
    wanted = values
    for _ in range(50):
        wanted = np.sin(wanted) + wanted
    np.testing.assert_allclose(found, wanted, rtol=1e-9)
    moved = x.to_device("cpu", stream=one)
    np.testing.assert_allclose(np.asarray(moved), wanted, rtol=1e-9)


def test_out_of_memory(cp: Any) -> None:
    """MemoryError, and tensors are what they were."""
    x = xt.asarray(numbers(1000), device=CUDA)
    before = x.tolist()
    free = cp.cuda.runtime.memGetInfo()[1]
    with pytest.raises(MemoryError, match="cuda:0"):
        xt.empty(2 * free, dtype=xt.uint8, device=CUDA).native()
    with pytest.raises(MemoryError):
        xt.zeros(2 * free // 8, device=CUDA)
    with xt.options(lazy="never"), pytest.raises(MemoryError):
        x[:, None, None] + xt.broadcast_to(x, (free // 8 // 1000, 1000))[None, ...]
    assert x.tolist() == before and float(xt.sum(x)) == pytest.approx(sum(before))


@pytest.mark.parametrize("layout", ["NCHW", "NHWC"])
@pytest.mark.parametrize("groups", [1, 2, 8])
def test_convolution_and_its_gradients(layout: str, groups: int, cp: Any) -> None:
    """As on the CPU, with a workspace that cuts it into tiles too."""
    shape = (4, 8, 19, 17) if layout == "NCHW" else (4, 19, 17, 8)
    x, w, bias = numbers(*shape), numbers(16, 8 // groups, 3, 3), numbers(16)
    for workspace in (0.1, 64):
        ways: dict[str, Any] = {"stride": (2, 1), "padding": 1, "layout": layout, "workspace_mb": workspace}

        def loss(*args: Any, ways: dict[str, Any] = ways) -> Any:
            return xt.sum(xt.nn.conv(*args, groups=groups, **ways) ** 2)

        found = [xt.grad(loss, (0, 1, 2))(*[xt.asarray(a, device=d) for a in (x, w, bias)]) for d in ("cpu", CUDA)]
        for a, b in zip(*found, strict=True):
            np.testing.assert_allclose(b.host(), a.host(), rtol=1e-9, atol=1e-9)


def test_pooling(cp: Any) -> None:
    x = numbers(2, 3, 16, 18)
    for pool in (xt.nn.max_pool, xt.nn.avg_pool):
        found = [
            xt.grad(lambda a, pool=pool: xt.sum(pool(a, 3, stride=2) ** 2))(xt.asarray(x, device=d))
            for d in ("cpu", CUDA)
        ]
        np.testing.assert_allclose(found[1].host(), found[0].host(), rtol=1e-12)


@pytest.mark.parametrize("dtype", [np.float32, np.int64], ids=lambda dtype: dtype.__name__)
def test_large_arrays_by_kernels(dtype: Any, cp: Any) -> None:
    """Whole numbers, whose sums are exact; rows that take more shared memory than a block has without asking."""
    x = np.random.default_rng(2).integers(-50, 50, (1000, 4097)).astype(dtype)
    i, j = (np.random.default_rng(seed).integers(-1000, 1000, 3000) for seed in (3, 4))
    ours, k, n = xt.asarray(x, device=CUDA), xt.asarray(i, device=CUDA), xt.asarray(j, device=CUDA)
    for axis in (0, 1):
        places = np.argsort(x, axis=axis, stable=True)
        np.testing.assert_array_equal(host(xt.argsort(ours, axis=axis)), places)
        np.testing.assert_array_equal(host(xt.sort(ours, axis=axis)), np.take_along_axis(x, places, axis))
        np.testing.assert_array_equal(host(xt.cumulative_sum(ours, axis=axis)), np.cumsum(x, axis=axis))
        np.testing.assert_array_equal(host(xt.take(ours, k, axis=axis)), np.take(x, i, axis=axis))
    np.testing.assert_array_equal(host(ours[k, n]), x[i, j])
    np.testing.assert_array_equal(host(ours[ours > 3]), x[x > 3])
    np.testing.assert_array_equal(host(ours.T.copy()), x.T)
    value = np.arange(3000 * 4097).reshape(3000, 4097).astype(dtype)
    ours[k], x[i] = xt.asarray(value, device=CUDA), value
    np.testing.assert_array_equal(host(ours), x)
    total = x.copy()
    np.add.at(total, i, value // 4097)
    ours.device.backend.add_at(ours.native(), (k.native(),), xt.asarray(value // 4097, device=CUDA).native())
    np.testing.assert_array_equal(host(ours), total)


def test_several_devices(cp: Any) -> None:
    if cp.cuda.runtime.getDeviceCount() < 2:
        pytest.skip("there is one CUDA device")
    x, y = (xt.asarray(numbers(1000), device=d) for d in (CUDA, "cuda:1"))
    with pytest.raises(ValueError, match="cuda:0 .*cuda:1"):
        x + y
    both = x.to_device("cuda:1") + y
    assert both.device == "cuda:1" and both.native().data.device_id == 1
    np.testing.assert_array_equal(both.host(), 2 * numbers(1000))
    for made in (y.copy(), y[::2].copy(), y[xt.asarray([0, 1], device="cuda:1")], xt.sort(y), y * 2.0 + 1.0):
        assert made.native().data.device_id == 1


def test_graphs_are_told_numbers(cp: Any) -> None:
    fused = xt.fuse(damped, strict=True)
    for call in range(REPEATS + 6):
        told = 0.01 * (call % 4 + 1), call + 1
        assert_call(partial(fused, rate=told[0], many=told[1]), partial(damped, rate=told[0], many=told[1]), call)
    assert "launched as a CUDA graph" in str(xt.explain(fused))


@pytest.mark.parametrize("program", [waves, around_a_library, rows])
@pytest.mark.parametrize("keeps", [False, True], ids=["memory comes again", "memory is always another"])
def test_repeated_functions_become_graphs(program: Any, keeps: bool, cp: Any) -> None:
    """CUDA records them, on streams of all kinds, and the values are a plain call's, whatever memory they are in."""
    fused, kept = xt.fuse(program, strict=True), list[Any]() if keeps else None
    for stream in (cp.cuda.Stream.null, cp.cuda.Stream(), cp.cuda.Stream(non_blocking=True)):
        with stream:
            for call in range(REPEATS + 5):
                assert_call(fused, program, call, kept=kept)
    assert "launched as a CUDA graph" in str(xt.explain(fused))
