"""Dask's arrays over tensors: what compute() returns, whatever the operation and the scheduler, is a tensor.

Its values are NumPy's. Steps of one task are fused, and computed in it.
"""

from __future__ import annotations

import re
import subprocess
import sys
import tomllib
from collections.abc import Callable, Iterator
from importlib.metadata import EntryPoint
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import xtensor as xt

pytest.importorskip("dask.array", reason="Dask is not installed (the extra `dask`)")

import dask.array as da
import dask.callbacks
import dask.sizeof
import host_cupy

import xtensor.dask

ROOT = Path(__file__).resolve().parent.parent
VALUES = np.random.default_rng(0).normal(size=(12, 8))


def blocks(values: Any, chunks: Any = (5, 3)) -> Any:
    """Return a Dask array whose chunks are tensors."""
    return da.from_array(xt.asarray(values, copy=True), chunks=chunks)


def holed(x: Any) -> Any:
    """Return an array with NaN where its elements are large."""
    return da.where(x > 1, np.nan, x) if isinstance(x, da.Array) else np.where(x > 1, np.nan, x)


# Written once for both: m is dask.array or numpy.
SAME: dict[str, Callable[[Any, Any], Any]] = {
    "elementwise": lambda m, x: m.exp(-x) * m.sin(x) + 2.0 * x**2,
    "with an array of NumPy's": lambda m, x: x * VALUES[0] + VALUES,
    "comparison": lambda m, x: (x > 0) & ~(x < -1),
    "two results": lambda m, x: m.modf(x)[0] + m.frexp(x)[0],
    "sum": lambda m, x: m.sum(x),
    "sum of rows": lambda m, x: x.sum(axis=1, keepdims=True),
    "mean": lambda m, x: m.mean(x, axis=0),
    "std": lambda m, x: m.std(x, ddof=1),
    "var": lambda m, x: m.var(x, axis=0),
    "min and max": lambda m, x: m.min(x, axis=0) + m.max(x, axis=0),
    "argmin": lambda m, x: m.argmin(x, axis=1),
    "argmax": lambda m, x: m.argmax(x),
    "any": lambda m, x: m.any(x > 1, axis=0),
    "all": lambda m, x: m.all(x > -9),
    "prod": lambda m, x: m.prod(x, axis=1),
    "count_nonzero": lambda m, x: m.count_nonzero(x > 0, axis=0),
    "cumsum": lambda m, x: m.cumsum(x, axis=0),
    "cumprod": lambda m, x: m.cumprod(x, axis=1),
    "concatenate": lambda m, x: m.concatenate([x, x + 1], axis=1),
    "stack": lambda m, x: m.stack([x, -x], axis=1),
    "hstack of vectors": lambda m, x: m.hstack([x[0], x[:, 0]]),
    "tensordot": lambda m, x: m.tensordot(x, x, axes=([0], [0])),
    "matmul": lambda m, x: x @ x.T,
    "dot": lambda m, x: m.dot(x, x[0]),
    "vdot": lambda m, x: m.vdot(x, x),
    "outer": lambda m, x: m.outer(x[0], x[1]),
    "einsum": lambda m, x: m.einsum("ij,kj->ik", x, x),
    "transpose": lambda m, x: m.transpose(x)[::-1],
    "reshape": lambda m, x: x.reshape(3, 4, 8),
    "ravel": lambda m, x: m.ravel(x),
    "slices": lambda m, x: x[1:11:3, ::-2],
    "one element": lambda m, x: x[3, 4],
    "list of indices": lambda m, x: x[[0, 7, 3, 3]],
    "take": lambda m, x: m.take(x, [5, 0], axis=1),
    "mask": lambda m, x: x[x[:, 0] > 0],
    "new axis": lambda m, x: x[:, None, 2:],
    "where": lambda m, x: m.where(x > 0, x, 0.0),
    "clip": lambda m, x: m.clip(x, -0.5, 0.5),
    "astype": lambda m, x: x.astype(np.float32),
    "round": lambda m, x: m.round(x, 1),
    "norm": lambda m, x: m.linalg.norm(x, axis=1),
    "fft": lambda m, x: m.fft.fft(x.rechunk((12, 3)) if m is da else x, axis=0),
    "histogram": lambda m, x: m.histogram(x, bins=7, range=(-3, 3))[0],
    "unique": lambda m, x: m.unique(m.round(x)),
    "bincount": lambda m, x: m.bincount(m.ravel(m.clip(m.round(x), 0, 3).astype(int)), minlength=4),
    "digitize": lambda m, x: m.digitize(x, np.asarray([-1.0, 0.0, 1.0])),
    "broadcast_to": lambda m, x: m.broadcast_to(x, (2, 12, 8)),
    "pad": lambda m, x: m.pad(x, 2, mode="reflect"),
    "pad with a number": lambda m, x: m.pad(x, ((1, 0), (0, 2)), mode="constant", constant_values=7.0),
    "roll": lambda m, x: m.roll(x, 3, axis=0),
    "flip": lambda m, x: m.flip(x, 1),
    "diff": lambda m, x: m.diff(x, axis=0),
    "gradient": lambda m, x: m.gradient(x.rechunk((6, 8)) if m is da else x, axis=0),
    "tril": lambda m, x: m.tril(x),
    "isnan": lambda m, x: m.isnan(holed(x)),
    "nansum": lambda m, x: m.nansum(holed(x), axis=0),
    "nanmean": lambda m, x: m.nanmean(holed(x), axis=0),
    "nanmax": lambda m, x: m.nanmax(holed(x)),
    "nanstd": lambda m, x: m.nanstd(holed(x), axis=1),
    "median": lambda m, x: m.median(x, axis=0),
    "cov": lambda m, x: m.cov(x),
    "average": lambda m, x: m.average(x, axis=0, weights=np.arange(12.0)),
    "searchsorted": lambda m, x: m.searchsorted(m.cumsum(m.exp(x[:, 0]), axis=0), x[0]),
    "zeros_like": lambda m, x: m.zeros_like(x) + m.ones_like(x),
    "ptp": lambda m, x: m.ptp(x, axis=0),
    "isin": lambda m, x: m.isin(m.round(x), [0.0, 1.0]),
}

TALL = (4, 8)  # chunks that are whole rows

# What only Dask has, or does in its own way, beside what NumPy makes of it.
ITS_OWN: dict[str, tuple[Callable[[Any], Any], Callable[[Any], Any]]] = {
    "map_blocks": (lambda x: x.map_blocks(lambda b: b * 2 + 1), lambda n: n * 2 + 1),
    "map_overlap": (
        lambda x: x.map_overlap(lambda b: b[:-2] + b[2:], depth=(1, 0), boundary="reflect", trim=False),
        lambda n: (lambda wide: wide[:-2] + wide[2:])(np.pad(n, ((1, 1), (0, 0)), mode="symmetric")),
    ),
    "blockwise": (lambda x: da.blockwise(lambda a, b: a + b.T, "ij", x, "ij", x.T, "ji", dtype=float), lambda n: 2 * n),
    "apply_along_axis": (lambda x: da.apply_along_axis(lambda v: v.sum(), 1, x), lambda n: n.sum(axis=1)),
    "apply_gufunc": (
        lambda x: da.apply_gufunc(lambda v: v.mean(axis=-1), "(i)->()", x.rechunk(TALL)),
        lambda n: n.mean(axis=-1),
    ),
    "rechunk": (lambda x: x.rechunk((7, 2)), lambda n: n),
    "persist": (lambda x: (x + 1).persist(), lambda n: n + 1),
    "percentile": (lambda x: da.percentile(x[:, 0].rechunk(12), [10, 50]), lambda n: np.percentile(n[:, 0], [10, 50])),
    "topk": (lambda x: da.topk(x, 3, axis=0), lambda n: -np.sort(-n, axis=0)[:3]),
    "argtopk": (lambda x: da.argtopk(x, 2, axis=0), lambda n: np.argsort(-n, axis=0)[:2]),
    "qr": (lambda x: abs(da.linalg.qr(x.rechunk(TALL))[1]), lambda n: abs(np.linalg.qr(n)[1])),
    "svd": (lambda x: da.linalg.svd(x.rechunk(TALL))[1], lambda n: np.linalg.svd(n)[1]),
    "cholesky": (lambda x: da.linalg.cholesky((x.T @ x).rechunk(4), lower=True), lambda n: np.linalg.cholesky(n.T @ n)),
    "coarsen": (lambda x: da.coarsen(np.sum, x.rechunk(4), {0: 2}), lambda n: n.reshape(6, 2, 8).sum(axis=1)),
    "from_delayed": (
        lambda x: da.concatenate([da.from_delayed(b, (5, 3), float, meta=x._meta) for b in x.to_delayed()[:2, 0]]),
        lambda n: n[:10, :3],
    ),
    "reduction": (
        lambda x: da.reduction(x, lambda b, axis, keepdims: (b**2).sum(axis, keepdims=keepdims), np.sum, dtype=float),
        lambda n: (n**2).sum(),
    ),
}

OPERATIONS: dict[str, tuple[Callable[[Any], Any], Callable[[Any], Any]]] = {
    **{name: (lambda x, f=call: f(da, x), lambda n, f=call: f(np, n)) for name, call in SAME.items()},
    **ITS_OWN,
}

# For these Dask works out a meta of NumPy's, by a dtype or a trial on NumPy's arrays; the chunks are tensors.
META_OF_NUMPY = {"fft", "histogram", "gradient", "apply_along_axis", "coarsen"}


def assert_equal(found: Any, expected: Any) -> None:
    """Check that a tensor has NumPy's values."""
    assert type(found) is xt.Tensor
    np.testing.assert_allclose(found.numpy(), expected, rtol=1e-11, atol=1e-12)


@pytest.mark.parametrize("scheduler", ["synchronous", "threads"])
@pytest.mark.parametrize("name", OPERATIONS)
def test_results_are_tensors(name: str, scheduler: str) -> None:
    """Each operation gives a tensor with NumPy's values, and Dask knows it beforehand, but for a few."""
    ours, numpys = OPERATIONS[name]
    lazy = ours(blocks(VALUES))
    assert type(lazy._meta) is (np.ndarray if name in META_OF_NUMPY else xt.Tensor)
    assert_equal(lazy.compute(scheduler=scheduler), numpys(VALUES))


# What goes through SciPy's compiled functions leaves the library, as it does from any tensor that SciPy is given.
SCIPYS: dict[str, Callable[[Any], Any]] = {
    "solve": lambda s: da.linalg.solve(s, s[0]),
    "inv": lambda s: da.linalg.inv(s),
    "lu": lambda s: da.linalg.lu(s)[1],
}


@pytest.mark.parametrize("name", SCIPYS)
def test_scipys_functions_answer_with_arrays(name: str) -> None:
    """They are named in the docs: the page says that these come back as NumPy's."""
    found = SCIPYS[name](blocks(VALUES.T @ VALUES, 4)).compute()
    assert type(found) is np.ndarray
    assert f"`{name}`" in (ROOT / "docs" / "machines.md").read_text(encoding="utf-8")


# ---- tasks


class Watch(dask.callbacks.Callback):
    """Counts the tensors that tasks return, and those that wait still, as a local scheduler gets them."""

    def __init__(self) -> None:
        self.tensors = self.pending = 0

    def _posttask(self, key: Any, value: Any, *rest: Any) -> None:
        for result in value.values() if isinstance(value, dict) else [value]:
            self.tensors += isinstance(result, xt.Tensor)
            self.pending += isinstance(result, xt.Tensor) and result.is_pending


@pytest.mark.parametrize("name", ["elementwise", "sum", "mean", "cumsum", "where"])
def test_a_task_computes_what_it_returns(name: str) -> None:
    """No task leaves work for a later one; under Dask's own optimization they do."""
    large = np.resize(VALUES, (400, 400))
    ours, numpys = OPERATIONS[name]
    watches = []
    for optimize in (xtensor.dask.optimize, da.optimization.optimize):
        with Watch() as watch, dask.config.set(array_optimize=optimize, scheduler="synchronous"):
            assert_equal(ours(blocks(large, (200, 400))).compute(), numpys(large))
        watches.append(watch)
    assert watches[0].tensors == watches[1].tensors > 0
    assert watches[0].pending == 0 < watches[1].pending


@pytest.mark.parametrize("packed", [lambda x: x, lambda x: [x], lambda x: (x, 1), lambda x: {"total": x}])
def test_what_is_packed_is_computed(packed: Callable[[Any], Any]) -> None:
    """Reductions hand several tensors on in one value."""
    x = xt.ones(100_000)
    kept: list[Any] = []
    result = xtensor.dask.Computed(lambda: packed(kept.append(x + 1) or kept[0]))()
    assert type(result) is type(packed(x)) and not kept[0].is_pending
    assert (x + 1).is_pending


def test_the_setting_is_left_to_others() -> None:
    """A value that somebody has set is theirs; and what is computed already is not wrapped again."""
    assert dask.config.get("array_optimize") is xtensor.dask.optimize
    with dask.config.set(array_optimize=False):
        assert_equal((blocks(VALUES) + 1).compute(), VALUES + 1)
    once = xtensor.dask.optimize((blocks(VALUES) + 1).dask, (blocks(VALUES) + 1).__dask_keys__())
    twice = xtensor.dask.optimize(once, list(once))
    functions = [task.func for task in twice.values() if hasattr(task, "func")]
    assert functions and not any(isinstance(f.function, xtensor.dask.Computed) for f in functions)


def test_one_kernel_for_a_block() -> None:
    """An expression and the reduction on top of it are one task a block, and that is one kernel."""
    explained: list[str] = []

    class Total(dask.callbacks.Callback):
        """Explains what the first task over a block leaves pending."""

        def _posttask(self, key: Any, value: Any, *rest: Any) -> None:
            if isinstance(value, xt.Tensor) and value.is_pending and not explained:
                explained.append(str(xt.explain(value)))

    x = blocks(np.ones((4, 50_000)), (2, 50_000))
    with Total(), dask.config.set(array_optimize=da.optimization.optimize):
        total = da.sum(da.exp(-x) * da.sin(x) + x).compute(scheduler="synchronous")
    assert_equal(total, np.sum(np.exp(-np.ones(200_000)) * np.sin(1.0) + 1.0))
    assert "graph: 6 steps" in explained[0] and "plan: 1 kernel," in explained[0]


# ---- the backend


@pytest.fixture
def backend() -> Iterator[None]:
    """Dask's creation functions make tensors."""
    with dask.config.set({"array.backend": "xtensor", "scheduler": "synchronous"}):
        yield


def test_entry_point() -> None:
    """Dask finds the backend by its name."""
    points = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]["entry-points"]
    [(name, value)] = points["dask.array.backends"].items()
    assert name == "xtensor" and EntryPoint(name, value, "dask.array.backends").load() is xtensor.dask.Backend


CREATED: dict[str, Callable[[Any, dict[str, Any]], Any]] = {
    "ones": lambda m, c: m.ones((5, 4), **c),
    "zeros of a dtype": lambda m, c: m.zeros((5, 4), dtype=np.int16, **c),
    "full": lambda m, c: m.full((5,), 7.5, **c),
    "arange": lambda m, c: m.arange(1, 10, 2, **c),
    "empty": lambda m, c: m.empty((5, 4), **c) * 0,
}


@pytest.mark.parametrize("name", CREATED)
def test_arrays_are_made_as_tensors(name: str, backend: None) -> None:
    """With NumPy's values and dtypes."""
    lazy, expected = CREATED[name](da, {"chunks": 3}), CREATED[name](np, {})
    assert type(lazy._meta) is xt.Tensor and lazy.dtype == expected.dtype
    np.testing.assert_array_equal(lazy.compute().numpy(), np.zeros((5, 4)) if name == "empty" else expected)


def test_random_numbers_are_tensors(backend: None) -> None:
    """They are those that Dask draws with NumPy; its old way to draw is refused by name."""
    found = da.random.default_rng(3).normal(size=(5, 5), chunks=3)
    with dask.config.set({"array.backend": "numpy"}):
        expected = da.random.default_rng(3).normal(size=(5, 5), chunks=3)
    assert_equal(found.compute(), expected.compute())
    with pytest.raises(NotImplementedError, match=re.escape("default_rng")):
        da.random.RandomState(0)


def test_chunks_move_between_libraries(backend: None) -> None:
    """`to_backend` makes tensors of arrays and arrays of tensors, and leaves what is there already."""
    ours = da.from_array(VALUES, chunks=5).to_backend("xtensor")
    assert ours.to_backend("xtensor") is ours
    assert_equal(ours.compute(), VALUES)
    assert type(ours.to_backend("numpy").compute()) is np.ndarray


def test_a_chunk_weighs_what_it_holds() -> None:
    """Workers count its bytes, not those of the face."""
    assert dask.sizeof.sizeof(xt.ones((10, 100))) == 8000


# ---- devices

BOTH: dict[str, Callable[[Any, Any], Any]] = {
    "add": lambda a, b: a + b,
    "matmul": lambda a, b: a @ b,
    "where": lambda a, b: da.where(a > 0, b, a),
    "concat": lambda a, b: da.concatenate([a, b]).sum(),
}

ALONE: dict[str, Callable[[Any], Any]] = {
    "sum": lambda x: x.sum(axis=0),
    "concatenate": lambda x: np.concatenate([x, x + 1]),
    "list of indices": lambda x: x[[0, 7, 3, 3]],
    "mask of NumPy's": lambda x: x[VALUES[:, 0] > 0],
    "take": lambda x: np.take(x, [5, 0], axis=1),
}


@pytest.fixture
def cuda() -> Iterator[str]:
    """A device whose arrays are CuPy's, over host memory."""
    if host_cupy.MISSING:
        pytest.skip(host_cupy.MISSING)
    with host_cupy.installed(), dask.config.set(scheduler="synchronous"):
        yield "cuda:0"


@pytest.mark.parametrize("name", BOTH)
def test_chunks_on_different_devices(name: str, cuda: str) -> None:
    """Nothing moves unasked: the error names the function and both devices."""
    here, there = (da.from_array(xt.ones((4, 4), device=device), chunks=2) for device in ("cpu", cuda))
    with pytest.raises(ValueError, match=rf"{name}: .*(cpu.*{cuda}|{cuda}.*cpu).*devices differ"):
        BOTH[name](here, there).compute()


@pytest.mark.parametrize("name", ALONE)
def test_chunks_on_a_device(name: str, cuda: str) -> None:
    """Results stay there; the indices, which Dask keeps as NumPy's arrays, come to them."""
    x = da.from_array(xt.asarray(VALUES, device=cuda, copy=True), chunks=(5, 3))
    found = ALONE[name](x).compute()
    assert type(found) is xt.Tensor and found.device == cuda
    np.testing.assert_allclose(found.host(), ALONE[name](VALUES), rtol=1e-12)


# ---- distributed

SHARED_WORK = """
import dask.array as da
import numpy as np
import xtensor as xt
import xtensor.dask
from distributed import Client, LocalCluster, futures_of, wait

if __name__ == "__main__":
    n = np.linspace(0.0, 1.0, 40_000).reshape(200, 200)
    pending = xt.exp(xt.asarray(np.resize(n, (400, 400)), copy=True))  # goes to a worker before it is computed
    with LocalCluster(n_workers=2, threads_per_worker=1, processes={processes}, dashboard_address=None) as cluster:
        with Client(cluster) as client:
            assert pending.is_pending
            sent = client.submit(lambda x: (x + 1, xt.__name__), pending).result()[0]
            assert type(sent) is xt.Tensor and np.allclose(sent.numpy(), np.exp(np.resize(n, (400, 400))) + 1)
            x = da.from_array(xt.asarray(n), chunks=(50, 200))
            z = da.exp(-x) * x
            for found, expected in [
                (z.mean(axis=0), (np.exp(-n) * n).mean(axis=0)),
                (x @ x.T, n @ n.T),
                (x.map_overlap(lambda b: b * 2, depth=1), n * 2),
                (da.percentile(x.ravel().rechunk(-1), [5, 50]), np.percentile(n, [5, 50])),
                (da.linalg.svd(x)[1][:3], np.linalg.svd(n)[1][:3]),
            ]:
                found = found.compute()
                assert type(found) is xt.Tensor, type(found)
                np.testing.assert_allclose(found.numpy(), expected, rtol=1e-9, atol=1e-12)
            kept = z.persist()
            wait(kept)
            chunks = {{future.key for future in futures_of(kept)}}  # workers may still hold chunks of the work before
            held = client.run(lambda dask_worker: {{key: (type(x), dask_worker.state.tasks[key].nbytes)
                                                   for key, x in dask_worker.data.items() if key in chunks}})
            found = {{key: one for of_worker in held.values() for key, one in of_worker.items()}}
            assert found == dict.fromkeys(chunks, (xt.Tensor, 80_000)) and len(chunks) == 4, found
"""


@pytest.mark.parametrize("processes", [False, True])
def test_distributed(processes: bool, tmp_path: Path) -> None:
    """Workers hold tensors and count their bytes, and results come back as tensors, in threads and in processes."""
    pytest.importorskip("distributed", reason="Dask's distributed scheduler is not installed (the extra `dask`)")
    script = tmp_path / "work.py"
    script.write_text(SHARED_WORK.format(processes=processes), encoding="utf-8")
    done = subprocess.run([sys.executable, str(script)], cwd=tmp_path, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr[-3000:]


# ---- the page, and the example


def test_the_code_of_the_page(tmp_path: Path) -> None:
    """What "More than one machine" does with a cluster runs, after the code before it."""
    page = (ROOT / "docs" / "machines.md").read_text(encoding="utf-8").partition("## Cubed")[0]
    blocks = re.findall(r"^```(?:python|{run})\n(.*?)^```", page, re.MULTILINE | re.DOTALL)
    assert len(blocks) == 3
    script = tmp_path / "page.py"
    script.write_text("\n".join(blocks), encoding="utf-8")
    done = subprocess.run([sys.executable, str(script)], cwd=tmp_path, capture_output=True, text=True, timeout=300)
    assert done.stdout == "Tensor (400,)\n", done.stderr[-3000:]


def test_the_example() -> None:
    """It walks over twice what memory it may have, and its values are NumPy's."""
    code = "import dask_statistics; dask_statistics.main(rows=400_000, block=5_000, cap=100 * 2**20)"
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT / "examples", capture_output=True, text=True, timeout=300
    )
    assert done.returncode == 0, done.stderr[-3000:]
    assert not sys.platform.startswith("linux") or "numpy: Unable to allocate" in done.stdout
    assert "100% Completed" in done.stdout
    errors = [float(line.rsplit(maxsplit=1)[-1]) for line in done.stdout.splitlines() if "off NumPy's" in line]
    assert len(errors) == 4 and max(errors) < 1e-12
