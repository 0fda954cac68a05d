"""xt.nn with arrays that are not NumPy's: CuPy's own, over host memory that NumPy cannot reach through them.

What is done for the CPU alone (code of its own over addresses) would be done here however little there is to do, so
that reaching it is seen. What a GPU computes is not shown.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

import xtensor as xt
from tests import host_cupy
from tests.samples import Sample, samples
from tests.test_cuda_backend import CUDA, evaluated, flat
from xtensor.run import contractions

SAMPLES = [sample for sample in samples() if sample.function.startswith("nn.")]
WAYS: list[dict[str, Any]] = [{"lazy": "never"}, {"lazy": "always", "engine": "direct"}]


@pytest.fixture
def cp(monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """The stand-in in the place of CuPy, where the CPU's code pays for the least work."""
    if host_cupy.MISSING:
        pytest.skip(host_cupy.MISSING)
    monkeypatch.setattr(contractions, "CONTRACTION_COMPILED", 0)
    with host_cupy.installed() as library:
        yield library


def numbers(*shape: int) -> Any:
    return np.random.default_rng(0).normal(size=shape)


def agrees(function: Callable[..., Any], *arrays: Any) -> None:
    """Compare a function's results, and the gradients of their squares' sums, with the CPU's."""
    sample = Sample("nn", lambda xp, *given: function(*given), arrays)
    for a, b in zip(evaluated(sample, CUDA), evaluated(sample, "cpu"), strict=True):
        assert a.dtype == b.dtype
        np.testing.assert_allclose(a, b, rtol=1e-4 if a.dtype == np.float32 else 1e-9, atol=1e-6)


def test_numpy_gets_nothing_of_these_arrays(cp: Any) -> None:
    """Without which the other tests would show nothing."""
    native = xt.ones((2, 3), device=CUDA).native()
    for take in (np.asarray, np.ascontiguousarray, memoryview, lambda a: a.ctypes, lambda a: a.__array_interface__):
        with pytest.raises((TypeError, AttributeError)):
            take(native)
    assert contractions.worth_compiling(np.ones(1), np.dtype(np.float64), 1) == contractions.worth_compiling(
        np.ones(1), np.dtype(np.float64), 1 << 60
    )


def test_every_function_has_a_sample() -> None:
    """All but the one that has no gradient, and the one that returns text."""
    named = {f"nn.{name}" for name in dir(xt.nn) if is_function(name)}
    assert named - {sample.function for sample in SAMPLES} == {"nn.one_hot", "nn.conv_algorithm"}


def test_one_hot(cp: Any) -> None:
    found = xt.nn.one_hot(xt.asarray([[2, 0], [1, 2]], device=CUDA), 4, axis=1)
    assert found.device == CUDA
    assert np.array_equal(found.host(), np.moveaxis(np.eye(4, dtype=np.int64)[[[2, 0], [1, 2]]], -1, 1))


def is_function(name: str) -> bool:
    return not name.startswith("_") and getattr(getattr(xt.nn, name), "__module__", "").startswith("xtensor.nn.")


@pytest.mark.parametrize("way", WAYS, ids=lambda way: way["lazy"])
@pytest.mark.parametrize("sample", SAMPLES, ids=str)
def test_every_function_and_its_gradient(sample: Sample, way: dict[str, Any], cp: Any) -> None:
    with xt.options(**way):
        agrees(lambda *given: sample.call(xt, *given), *sample.args)


LAYOUTS = ["NCHW", "NHWC", ("NCHW", "NHWC"), ("NHWC", "NCHW")]
VIEWS: dict[str, Callable[[Any], Any]] = {
    "packed": lambda x: x,
    "every other": lambda x: x[:, :, ::-2, 1:],
    "turned": lambda x: xt.permute_dims(x, (0, 1, 3, 2)),
}


@pytest.mark.parametrize("view", VIEWS)
@pytest.mark.parametrize("layout", LAYOUTS, ids=str)
@pytest.mark.parametrize("groups", [1, 2, 4])
@pytest.mark.parametrize("algorithm", ["auto", "direct", "im2col", "tune"])
def test_convolutions(algorithm: Any, groups: int, layout: Any, view: str, cp: Any) -> None:
    """Every layout, algorithm and kind of groups; gradients are convolutions of the same family."""
    taken = layout if isinstance(layout, str) else layout[0]
    ways: dict[str, Any] = {"layout": layout, "groups": groups, "algorithm": algorithm}

    def laid(x: Any) -> Any:
        x = VIEWS[view](x)
        return xt.permute_dims(x, (0, 2, 3, 1)) if taken == "NHWC" else x

    x, w, bias = numbers(2, 4, 11, 10), numbers(8, 4 // groups, 3, 2), numbers(8)
    agrees(lambda a, k, b: xt.nn.conv(laid(a), k, b, stride=(2, 1), padding=1, **ways), x, w, bias)
    w, bias = numbers(4, 8 // groups, 3, 2), numbers(8)
    agrees(lambda a, k, b: xt.nn.conv_transpose(laid(a), k, b, stride=(2, 1), dilation=2, **ways), x, w, bias)


def test_algorithms_are_timed_to_their_end(cp: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """The device is waited for before and after what is timed."""
    waits = []
    monkeypatch.setattr(host_cupy.Stream, "synchronize", lambda self: waits.append(self))
    x, w = (xt.asarray(numbers(*shape), device=CUDA) for shape in ((1, 3, 6, 5), (2, 3, 3, 2)))
    for _ in range(2):
        xt.nn.conv(x, w, algorithm="tune")
    assert len(waits) == 4


@pytest.mark.parametrize("algorithm", ["winograd", "winograd4"])
def test_tiles_are_the_cpus_alone(algorithm: Any, cp: Any) -> None:
    """What they would compute is products here."""
    x, w = numbers(2, 4, 9, 8), numbers(6, 4, 3, 3)
    agrees(lambda a, k: xt.nn.conv(a, k, padding=1, algorithm=algorithm), x, w)
    found = xt.nn.conv_algorithm(xt.asarray(x, device=CUDA), xt.asarray(w, device=CUDA), algorithm=algorithm)
    assert found.startswith("im2col: ")


@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.int32, np.complex128], ids=lambda dtype: dtype.__name__)
@pytest.mark.parametrize("workspace", [0.05, 64])
def test_convolutions_of_other_dtypes(workspace: float, dtype: Any, cp: Any) -> None:
    x, w = (np.round(4 * one).astype(dtype) for one in (numbers(2, 4, 9, 9), numbers(4, 2, 3, 3)))
    found = [
        xt.nn.conv(xt.asarray(x, device=one), xt.asarray(w, device=one), groups=2, workspace_mb=workspace)
        for one in (CUDA, "cpu")
    ]
    np.testing.assert_array_equal(found[0].host(), found[1].host())  # whole numbers: each sum is exact


@pytest.mark.parametrize("view", VIEWS)
@pytest.mark.parametrize("layout", ["NCHW", "NHWC"])
@pytest.mark.parametrize("name", ["max_pool", "max_pool_with_indices", "avg_pool", "lp_pool", "unfold"])
def test_windows(name: str, layout: str, view: str, cp: Any) -> None:
    """Pooling and columns, whose windows overlap and reach into the padding."""

    def call(x: Any) -> Any:
        x = VIEWS[view](x)
        x = xt.permute_dims(x, (0, 2, 3, 1)) if layout == "NHWC" else x
        return getattr(xt.nn, name)(x, (3, 2), stride=(2, 1), padding=(1, 0), layout=layout)

    agrees(lambda x: [one for one in flat(call(x)) if one.dtype.kind == "f"], numbers(2, 3, 11, 10))


@pytest.mark.parametrize("rank", [1, 3])
def test_other_ranks(rank: int, cp: Any) -> None:
    x, w = numbers(2, 4, *[7, 6, 5][:rank]), numbers(4, 1, *[3, 2, 2][:rank])
    agrees(lambda a, k: xt.nn.conv(a, k, groups=4, padding=1), x, w)
    agrees(lambda a, k: xt.nn.conv_transpose(a, k, groups=4, stride=2), x, w)
    agrees(lambda a: xt.nn.max_pool(a, 2, padding=1), x)
    agrees(lambda a: xt.nn.fold(xt.nn.unfold(a, 2), a.shape[2:], 2), x)
