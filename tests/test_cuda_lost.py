"""A device that is lost in the middle: CuPy's own error, raised where a stand-in for its driver launches, copies or
waits. What is said, and that nothing stays locked or half done.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import emulated
import host_cupy
import numpy as np
import pytest

import xtensor as xt
from xtensor.run import executor
from xtensor.storage import storage

if emulated.MISSING:
    pytest.skip(emulated.MISSING, allow_module_level=True)

CUDA = "cuda:0"
SAID = r"^cuda:0: cudaErrorLaunchFailure: unspecified launch failure$"
VALUES = np.arange(24.0, dtype=np.float32).reshape(4, 6)


@pytest.fixture(scope="module")
def cuda() -> Iterator[emulated.Launches]:
    with emulated.device() as launches:
        yield launches


def lost(*given: Any, **params: Any) -> Any:
    """The next call after a kernel failed, and every one from then on."""
    raise host_cupy.real.cuda.runtime.CUDARuntimeError(719)


def all_is_free() -> bool:
    """Return whether another thread evaluates, and gets memory, at once."""
    assert not executor._evaluating._is_owned() and not storage.first_use._is_owned()

    def others() -> bool:
        with xt.options(lazy="always"):
            x = xt.exp(xt.asarray(VALUES)) * 2.0 + xt.empty((4, 6), dtype=xt.float32) * 0.0
            return x.numpy().shape == (4, 6)

    with ThreadPoolExecutor(1) as pool:
        return pool.submit(others).result(timeout=30)


CALLS: dict[str, Callable[[Any], Any]] = {
    "a small call": lambda x: (x + x).evaluate(),
    "an expression": lambda x: (xt.exp(x / 24.0) * 2.0 + x).evaluate(),
    "rows": lambda x: xt.nn.softmax(x / 2.0).evaluate(),
    "in place": lambda x: x.__iadd__(1.0),
    "a library's function": lambda x: xt.linalg.cholesky(x[:4, :4] @ x[:4, :4].T + 9.0 * xt.eye(4, device=CUDA)),
    "a product": lambda x: (x @ x.T).evaluate(),
    "to the host": lambda x: x.to_device("cpu"),
}


@pytest.mark.parametrize("lazy", ["auto", "always"])
@pytest.mark.parametrize("name", CALLS)
def test_a_lost_device(name: str, lazy: Any, cuda: emulated.Launches, monkeypatch: pytest.MonkeyPatch) -> None:
    """A RuntimeError that names the device and has CuPy's as its cause; what was pending is computed again when asked
    for, where the device is there again, as it is here.
    """
    x = xt.asarray(VALUES, device=CUDA)
    with xt.options(lazy=lazy):
        for _ in range(2):  # before kernels are there, and after
            with monkeypatch.context() as patch:
                patch.setattr(cuda.parts["driver"], "launchKernel", lost)
                patch.setattr(host_cupy.ndarray, "get", lost)
                for function in ("matmul", "exp", "add"):
                    patch.setattr(host_cupy.module(), function, lost)
                patch.setattr(host_cupy.module().linalg, "cholesky", lost)
                patch.setattr(cuda.cublas, "status", 14)  # CUBLAS_STATUS_INTERNAL_ERROR
                patch.setattr(cuda.cublas, "wait", lost)
                with pytest.raises(RuntimeError, match=SAID) as said:
                    CALLS[name](x)
                assert type(said.value.__cause__) is host_cupy.real.cuda.runtime.CUDARuntimeError
                assert all_is_free()
            np.testing.assert_array_equal(x.to_device("cpu").numpy(), VALUES)
            CALLS[name](xt.asarray(VALUES, device=CUDA))


def test_what_was_pending_is_pending_still(cuda: emulated.Launches, monkeypatch: pytest.MonkeyPatch) -> None:
    with xt.options(lazy="always"):
        x = xt.asarray(VALUES, device=CUDA)
        y = xt.sqrt(x) * 2.0
        total = xt.sum(y)
        with monkeypatch.context() as patch:
            patch.setattr(cuda.parts["driver"], "launchKernel", lost)
            for one in (total, y, total):
                with pytest.raises(RuntimeError, match=SAID):
                    one.evaluate()
        np.testing.assert_allclose(float(total), np.sum(np.sqrt(VALUES) * 2), rtol=1e-6)
        np.testing.assert_allclose(y.to_device("cpu").numpy(), np.sqrt(VALUES) * 2, rtol=1e-6)


def test_a_graph_is_launched_on_a_lost_device(cuda: emulated.Launches, monkeypatch: pytest.MonkeyPatch) -> None:
    """Recorded before, and told nothing new afterwards."""
    x = xt.asarray(np.linspace(0, 9, 120, dtype=np.float32).reshape(6, 20), device=CUDA)

    @xt.fuse
    def fused(x: Any) -> Any:
        y = xt.exp(x / 24.0)
        return xt.sum(y, axis=0) * xt.max(x) + xt.sum(xt.cos(xt.sum(y, axis=1)))

    def run() -> Any:
        return fused(x).to_device("cpu").numpy()

    wanted = [run() for _ in range(6)][-1]
    launched = len(cuda.graphs)
    run()
    assert len(cuda.graphs) > launched
    with monkeypatch.context() as patch:
        patch.setattr(host_cupy.Graph, "launch", lost)
        patch.setattr(cuda.parts["driver"], "launchKernel", lost)  # of the plain call that takes its place
        with pytest.raises(RuntimeError, match=SAID):
            run()
        assert all_is_free()
    np.testing.assert_array_equal(run(), wanted)
