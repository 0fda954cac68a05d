"""Parts of a graph that run together: rows or columns, and what comes before and after them, on small arrays."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

import xtensor as xt
from xtensor.codegen.cpu.compile import host
from xtensor.plan import costs
from xtensor.plan import fusion as plan
from xtensor.run import engines, replay

pytestmark = pytest.mark.skipif(host() is None, reason="there is no compiler here")

SHAPE = (37, 130)


def forget() -> None:
    """Drop the schedules that plans remember: they were prepared for other choices."""
    for one in [*plan._plans.values(), *[known.plan for known in replay._known.values()]]:
        one.schedules.clear()
    plan._plans.clear()


@pytest.fixture(autouse=True)
def compiled(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Have everything recorded and compiled, and columns of few elements run strip by strip."""
    monkeypatch.setattr(costs, "COLUMNS_CELLS", 0)
    monkeypatch.setattr("xtensor.base.threads.SHARE_PAYS", 0.0)
    monkeypatch.setattr("xtensor.base.threads.WAKE_PAYS", 0.0)
    forget()
    with xt.options(engine="llvm", lazy="always"):
        yield
    forget()


def given(dtype: str = "float64") -> list[Any]:
    rng = np.random.default_rng(3)
    arrays = [rng.normal(size=SHAPE), rng.normal(size=SHAPE), rng.uniform(0.5, 2, SHAPE[1]), rng.normal(size=SHAPE[1])]
    return [xt.asarray(one.astype(dtype)) for one in arrays]


def gradients(function: Callable[..., Any]) -> Callable[..., list[Any]]:
    """Return what computes the loss of a function of x, weight and bias, and its gradients."""

    def both(x: Any, g: Any, w: Any, b: Any) -> list[Any]:
        loss = xt.value_and_grad(lambda every: xt.sum(function(*every) * g))
        value, found = loss([x, w, b])
        return [value, *found]

    return both


def layer_norm(x: Any, w: Any, b: Any) -> Any:
    return xt.nn.layer_norm(x, w, b)


def softmax(x: Any, w: Any, b: Any) -> Any:
    return xt.nn.softmax(x * w + b)


def batch_norm(x: Any, w: Any, b: Any) -> Any:
    return xt.nn.batch_norm(x, None, None, w, b, training=True)


def mixed(x: Any, g: Any, w: Any, b: Any) -> list[Any]:
    """Both kinds of sums, what is wanted of both, a scalar before them, and a product after them."""
    scale = xt.sum(w) / 7.0
    rows = xt.exp(x - xt.max(x, axis=1, keepdims=True)) * scale
    parts = rows / xt.sum(rows, axis=1, keepdims=True)
    means = xt.mean(parts * g, axis=1, keepdims=True)
    left = parts * (g - means)
    return [left, means, xt.sum(left, axis=0), xt.sum(left * left), xt.max(x * means, axis=0), left @ w]


CASES = [gradients(layer_norm), gradients(softmax), gradients(batch_norm), mixed]


def found_by(function: Callable[..., Any], dtype: str) -> list[np.ndarray[Any, Any]]:
    values = function(*given(dtype))
    xt.evaluate(*values)
    return [np.asarray(one) for one in values]


@pytest.mark.parametrize("threads", [1, 3])
@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("function", CASES)
def test_same_bits_as_one_kernel_after_the_other(
    function: Any, dtype: str, threads: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    with xt.options(threads=1), monkeypatch.context() as patch:
        patch.setattr(engines, "_in_parts", lambda work: None)
        right = found_by(function, dtype)
    forget()
    with xt.options(threads=threads):
        fused = xt.fuse(function)
        for mine in (found_by(function, dtype), *[found_by(fused, dtype) for _ in range(3)]):
            for one, other in zip(mine, right, strict=True):
                if one.ndim:
                    np.testing.assert_array_equal(one, other, strict=True)
                else:  # in which order all is added up depends on the strides of what is read
                    np.testing.assert_allclose(one, other, rtol=8 * np.finfo(dtype).eps)


@pytest.mark.parametrize("function", CASES)
def test_same_bits_on_any_number_of_threads(function: Any) -> None:
    found = []
    for threads in (1, 2, 5):
        forget()
        with xt.options(threads=threads):
            found.append(found_by(function, "float32"))
    for other in found[1:]:
        for one, first in zip(other, found[0], strict=True):
            np.testing.assert_array_equal(one, first, strict=True)


def test_a_view_of_temporary_memory_is_read_after_other_parts() -> None:
    """A view of sums along rows is read when the sums over all rows have been made, whose memory lies elsewhere."""
    x, mask, row = np.asarray(given()[0])[:5, :5], np.eye(5) > 0, np.arange(5.0)

    def both(xp: Any, x: Any, mask: Any, row: Any) -> Any:
        part = xp.where(mask, 0.0, x)
        rows = xp.sum(part * row, axis=1, keepdims=True) + xp.sum(xp.where(mask, x, 0.0), axis=1, keepdims=True)
        return xp.sum(part * row[:, None], axis=0, keepdims=True) + rows.T

    with xt.options(lazy="always", engine="llvm"):
        found = np.asarray(both(xt, *[xt.asarray(one, copy=True) for one in (x, mask, row)]))
    np.testing.assert_allclose(found, both(np, x, mask, row), rtol=1e-12)


def test_values() -> None:
    """Against NumPy, in float64."""
    x, g, w, b = (np.asarray(one) for one in given())
    value, by_x, by_w, by_b = found_by(gradients(layer_norm), "float64")
    scale = 1 / np.sqrt(x.var(axis=1, keepdims=True) + 1e-5)
    normed, cotangent = (x - x.mean(axis=1, keepdims=True)) * scale, g * w
    means = [np.mean(one, axis=1, keepdims=True) for one in (cotangent, cotangent * normed)]
    np.testing.assert_allclose(value, np.sum((normed * w + b) * g), rtol=1e-12)
    np.testing.assert_allclose(by_x, scale * (cotangent - means[0] - normed * means[1]), rtol=1e-9, atol=1e-12)
    np.testing.assert_allclose(by_w, np.sum(g * normed, axis=0), rtol=1e-11, atol=1e-12)
    np.testing.assert_allclose(by_b, np.sum(g, axis=0), rtol=1e-11, atol=1e-12)


@pytest.mark.parametrize(
    ("function", "words"), [(layer_norm, "row by row of 130"), (batch_norm, "strip by strip over columns of 37")]
)
def test_what_is_said_of_it(function: Any, words: str) -> None:
    """Sums over rows come after rows, which hand nothing on to them but means and scales."""
    text = xt.explain(*gradients(function)(*given("float32")))
    (line,) = [line for line in text.splitlines() if "together" in line]
    first, last = (int(word) for word in line.split()[1:4:2])
    assert first == 1
    assert words in line
    count = int(text.split("plan: ")[1].split()[0])
    assert last < count
    assert f"kernel {count} over" in text
    assert "together" in xt.explain(*gradients(function)(*given("float32")), ir=True)


def test_memory_that_is_written_is_read_before() -> None:
    """What is written in place is not divided: what comes after rows may read what they would overwrite."""
    x, g, w, b = given()
    plain = [np.asarray(one) for one in gradients(layer_norm)(x, g, w, b)]
    value, by_x, by_w, by_b = gradients(layer_norm)(x, g, w, b)
    x[...] = by_x
    xt.evaluate(value, by_w, by_b)
    for one, other in zip((value, x, by_w, by_b), plain, strict=True):
        np.testing.assert_array_equal(np.asarray(one), other)


def wholes(text: str, shape: tuple[int, ...]) -> tuple[int, int]:
    """Return how many arrays of a shape the kernels of a plan read, and write."""
    lines = [line.split() for line in text.splitlines() if line.endswith(f" {shape}")]
    return sum(line[0] == "reads" for line in lines), sum(line[0] == "writes" for line in lines)


def test_kernels_compute_cheap_values_again() -> None:
    """Values between sums that make neither rows nor columns are computed from x in each kernel, and not stored."""
    shape = (40, 60, 300)
    native = np.random.default_rng(4).normal(size=shape)
    x = xt.asarray(native, copy=True)
    y = x * 2.0 + 1.0
    found = y / xt.sum(y * x, axis=(0, 2), keepdims=True)
    del y
    assert wholes(str(xt.explain(found)), shape) == (2, 1)
    wider = native * 2.0 + 1.0
    expected = wider / (wider * native).sum(axis=(0, 2), keepdims=True)
    np.testing.assert_allclose(found.numpy(), expected, rtol=0, atol=1e-9)


@pytest.mark.parametrize(
    ("dtype", "call"), [("int64", lambda x: x // 7 + x % 5), ("complex128", lambda x: x / (x + 3) * x)], ids=["//", "c"]
)
def test_values_of_slow_kinds_are_stored(dtype: str, call: Callable[[Any], Any]) -> None:
    """Whole divisions, and complex numbers, take longer than reading what was stored."""
    shape = (40, 60, 300)
    numbers = np.random.default_rng(8).integers(1, 90, shape)
    x = xt.asarray(numbers.astype(dtype))
    y = call(x)
    found = y - xt.sum(y, axis=(0, 2), keepdims=True)
    del y
    assert wholes(str(xt.explain(found)), shape)[1] == 2


@pytest.mark.parametrize("costly", [False, True])
def test_costly_values_and_those_of_many_arrays_are_stored(costly: bool) -> None:
    shape = (40, 60, 300)
    natives = np.random.default_rng(5).normal(size=(4, *shape))
    a, b, c, d = [xt.asarray(one, copy=True) for one in natives]
    y = xt.exp(a) if costly else a * b + c * d
    found = y / xt.sum(y, axis=(0, 2), keepdims=True)
    del y
    assert wholes(str(xt.explain(found)), shape) == ((2, 2) if costly else (5, 2))
    inner = np.exp(natives[0]) if costly else natives[0] * natives[1] + natives[2] * natives[3]
    np.testing.assert_allclose(found.numpy(), inner / inner.sum(axis=(0, 2), keepdims=True), rtol=0, atol=1e-9)


def test_values_that_are_kept_are_read() -> None:
    shape = (40, 60, 300)
    native = np.random.default_rng(6).normal(size=shape)
    x = xt.asarray(native, copy=True)
    y = x * 2.0
    found = y / xt.sum(y, axis=(0, 2), keepdims=True)
    assert wholes(str(xt.explain(found, y)), shape) == (2, 2)  # x, and then y
    xt.evaluate(found, y)
    np.testing.assert_array_equal(y.numpy(), native * 2.0)
    expected = native * 2.0 / (native * 2.0).sum(axis=(0, 2), keepdims=True)
    np.testing.assert_allclose(found.numpy(), expected, rtol=0, atol=1e-9)


def test_gradients_through_reshapes_are_not_copied() -> None:
    """A gradient that is a reshaped value which nobody else sees is no copy of it; one that is seen is."""
    x = xt.asarray(np.random.default_rng(7).normal(size=(6, 50)))
    gradient = xt.grad(lambda x: xt.sum(xt.exp(xt.reshape(x, (15, 20)))))(x)
    assert "positive" not in str(xt.explain(gradient))
    np.testing.assert_allclose(gradient.numpy(), np.exp(x.numpy()), rtol=1e-15)
    seen: list[Any] = []

    def noted(x: Any) -> Any:
        y = xt.reshape(x, (15, 20))
        seen.append(xt.exp(y))
        return xt.sum(seen[0])

    gradient = xt.grad(noted)(x)
    gradient[...] = 0.0
    np.testing.assert_allclose(xt.stop_gradient(seen[0]).numpy(), np.exp(x.numpy()).reshape(15, 20), rtol=1e-15)
