"""Cubed on tensors: `CUBED_BACKEND_ARRAY_API_MODULE=xtensor` before it is imported, and nothing else.

conformance/consumers.py runs Cubed's own tests; here is a quick part.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import xtensor as xt

with pytest.MonkeyPatch.context() as patch:
    patch.setenv("CUBED_BACKEND_ARRAY_API_MODULE", "xtensor")
    cubed: Any = pytest.importorskip("cubed", reason="Cubed is not installed (the extra `cubed`)")
    import cubed.array_api as cubed_xp
    from cubed.backend_array_api import namespace

ROOT = Path(__file__).resolve().parent.parent
VALUES = np.random.default_rng(0).normal(size=(12, 8))

# Written once for both: xp is Cubed's namespace or NumPy.
OPERATIONS: dict[str, Callable[[Any, Any], Any]] = {
    "elementwise": lambda xp, x: xp.exp(-x) * xp.sin(x) + 2.0 * x**2,
    "comparison": lambda xp, x: (x > 0) & ~(x < -1),
    "where": lambda xp, x: xp.where(x > 0, x, -x),
    "astype": lambda xp, x: xp.astype(x, xp.float32),
    "sum": lambda xp, x: xp.sum(x),
    "mean": lambda xp, x: xp.mean(x, axis=0),
    "std": lambda xp, x: xp.std(x, axis=0),
    "var": lambda xp, x: xp.var(x, axis=1),
    "min": lambda xp, x: xp.min(x, axis=0),
    "max": lambda xp, x: xp.max(x),
    "prod": lambda xp, x: xp.prod(x, axis=1),
    "any": lambda xp, x: xp.any(x > 1, axis=0),
    "all": lambda xp, x: xp.all(x > -9),
    "argmin": lambda xp, x: xp.argmin(x, axis=0),
    "argmax": lambda xp, x: xp.argmax(x, axis=1),
    "cumulative_sum": lambda xp, x: xp.cumulative_sum(x, axis=0),
    "matmul": lambda xp, x: x @ x.T,
    "tensordot": lambda xp, x: xp.tensordot(x, x, axes=((0,), (0,))),
    "outer": lambda xp, x: xp.linalg.outer(x[0, :], x[1, :]),
    "svdvals": lambda xp, x: xp.linalg.svdvals(x[:, :4].rechunk((6, 4)) if isinstance(x, cubed.Array) else x[:, :4]),
    "concat": lambda xp, x: xp.concat([x, x + 1], axis=1),
    "stack": lambda xp, x: xp.stack([x, -x], axis=1),
    "transpose": lambda xp, x: xp.permute_dims(x, (1, 0)),
    "reshape": lambda xp, x: xp.reshape(x, (3, 4, 8)),
    "slices": lambda xp, x: x[1:11:3, 2:],
    "list of indices": lambda xp, x: x[[0, 7, 3], :],
    "broadcast_to": lambda xp, x: xp.broadcast_to(x, (2, 12, 8)),
    "flip": lambda xp, x: xp.flip(x, axis=0),
    "roll": lambda xp, x: xp.roll(x, 3, axis=0),
    "repeat": lambda xp, x: xp.repeat(x, 2, axis=0),
    "tril": lambda xp, x: xp.tril(x),
}


@pytest.fixture
def spec(tmp_path: Path) -> Any:
    """What a task may take, and where its results go."""
    return cubed.Spec(str(tmp_path), allowed_mem=10_000_000)


def test_the_namespace_is_xtensors() -> None:
    """The variable has chosen it."""
    assert namespace is xt


@pytest.mark.parametrize("name", OPERATIONS)
def test_results_are_tensors(name: str, spec: Any) -> None:
    """Each operation gives a tensor with NumPy's values, shape and dtype."""
    x = cubed.from_array(VALUES, chunks=(5, 3), spec=spec)
    found, expected = OPERATIONS[name](cubed_xp, x).compute(), OPERATIONS[name](np, VALUES)
    assert type(found) is xt.Tensor and found.dtype == np.asarray(expected).dtype
    np.testing.assert_allclose(found.numpy(), expected, rtol=1e-11, atol=1e-12)


def test_one_kernel_for_a_block(spec: Any) -> None:
    """What Cubed has fused into one task is one graph, and one kernel."""
    explained: list[str] = []

    def note(block: xt.Tensor) -> xt.Tensor:
        if not explained:
            explained.append(str(xt.explain(block)))
        return block

    n = np.linspace(0.0, 1.0, 180_000).reshape(600, 300)
    x = cubed.from_array(n, chunks=(300, 300), spec=spec)
    z = cubed.map_blocks(note, cubed_xp.exp(-x) * cubed_xp.sin(x) + x, dtype=np.float64)
    executor = cubed.runtime.create.create_executor("single-threaded")
    np.testing.assert_allclose(z.compute(executor=executor).numpy(), np.exp(-n) * np.sin(n) + n, rtol=1e-13)
    assert "graph: 5 steps" in explained[0] and "plan: 1 kernel," in explained[0]


def test_the_code_of_the_page() -> None:
    """Cubed's code in "More than one machine" runs; in a process of its own, as Cubed is told at import."""
    page = (ROOT / "docs" / "machines.md").read_text(encoding="utf-8")
    code = page.partition("## Cubed")[2].partition("```python\n")[2].partition("```")[0]
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, timeout=300)
    assert done.stdout == "Tensor (2000,)\n", done.stderr[-3000:]


def test_the_example() -> None:
    """It refuses what takes too much, and its values are NumPy's."""
    pytest.importorskip("rich", reason="rich is not installed (the extra `cubed`)")
    code = "import cubed_means; cubed_means.main(800, 200)"
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT / "examples", capture_output=True, text=True, timeout=300
    )
    assert done.returncode == 0, done.stderr[-3000:]
    assert "in one block: Projected blockwise memory" in done.stdout
    assert "Tensor (800,)" in done.stdout
    assert float(done.stdout.rsplit(maxsplit=1)[-1]) < 1e-13
