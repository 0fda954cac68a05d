"""Libraries written for any array namespace, on xtensor: array-api-compat and -extra, scikit-learn, SciPy, einops,
xarray.

conformance/consumers.py runs the whole array API tests of scikit-learn and SciPy; here is a quick part.
"""

from __future__ import annotations

import os
import pickle
import subprocess
import sys
import textwrap
import tomllib
from importlib.metadata import EntryPoint
from pathlib import Path
from typing import Any

import array_api_compat as compat
import numpy as np
import pytest

import xtensor as xt

ROOT = Path(__file__).resolve().parent.parent
VALUES = [[1.0, 2.0, 3.0], [4.0, 5.0, 6.0]]


@pytest.fixture
def x() -> Any:
    """A matrix."""
    return xt.asarray(VALUES)


def assert_close(ours: Any, theirs: Any) -> None:
    """Check that a tensor has the values and shape of a NumPy result."""
    assert isinstance(ours, xt.Tensor), type(ours)
    np.testing.assert_allclose(np.asarray(ours), np.asarray(theirs), rtol=1e-12, strict=True)


# ---- the entry point


def test_entry_point() -> None:
    """Tools that list installed namespaces find this one."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    [(name, value)] = project["entry-points"]["array_api"].items()
    assert EntryPoint(name, value, "array_api").load() is xt


# ---- array-api-compat


def test_compat_namespace(x: Any) -> None:
    """The namespace is found for one array and for several, with scalars among them."""
    assert compat.array_namespace(x) is xt
    assert compat.array_namespace(x, 1, None, x[0], api_version="2024.12") is xt
    assert compat.array_namespace(x, use_compat=None) is xt
    with pytest.raises(TypeError, match="Multiple namespaces"):
        compat.array_namespace(x, np.ones(2))


def test_compat_helpers(x: Any) -> None:
    """Device and size are found, and the kind of array is none that compat knows."""
    assert compat.device(x) == "cpu"
    assert compat.to_device(x, "cpu") is x
    assert compat.size(x) == 6
    assert compat.is_array_api_obj(x)
    assert compat.is_writeable_array(x)
    for known in ("numpy", "cupy", "torch", "dask", "jax", "ndonnx", "pydata_sparse"):
        assert not getattr(compat, f"is_{known}_array")(x)


def test_compat_laziness(x: Any) -> None:
    """No array counts as lazy: looking for it finds a truth value, whatever the shape and dtype."""
    for array in (x, x[0, 0], x[:0], xt.asarray(1j), xt.asarray([xt.nan]), xt.exp(xt.ones(100_000))):
        assert not compat.is_lazy_array(array)
    with xt.options(lazy="always"):
        assert not compat.is_lazy_array(x + 1)


def test_looking_for_laziness_computes_little() -> None:
    """The look itself, one element of a broadcast view, does not make all elements."""
    assert not compat.is_lazy_array(xt.broadcast_to(xt.asarray(1.0), (2**20, 2**20)))


# ---- array-api-extra, as scikit-learn carries it


@pytest.fixture
def xpx() -> Any:
    """The namespace of array-api-extra."""
    return pytest.importorskip("sklearn.externals.array_api_extra")


@pytest.mark.parametrize("copied", [None, True, False])
@pytest.mark.parametrize("key", [0, slice(1, None), [0, 2], [True, False, True]], ids=repr)
@pytest.mark.parametrize("method", ["set", "add", "subtract", "multiply", "divide", "power", "min", "max"])
def test_extra_at(method: str, key: Any, copied: bool | None, xpx: Any) -> None:
    """`at(x)[key].method(value)` is the assignment it stands for; copy=True leaves x alone."""
    x, n = xt.asarray([1.0, 5.0, 3.0]), np.asarray([1.0, 5.0, 3.0])
    key = xt.asarray(key) if isinstance(key, list) else key
    found = getattr(xpx.at(x)[key], method)(2.0, copy=copied)
    expected = getattr(xpx.at(n)[np.asarray(key) if isinstance(key, xt.Tensor) else key], method)(2.0, copy=True)
    assert_close(found, expected)
    assert x.tolist() == ([1.0, 5.0, 3.0] if copied else expected.tolist())


def test_extra_at_between_views(xpx: Any) -> None:
    """A value that overlaps the target is read before it is written."""
    x = xt.arange(5.0)
    assert_close(xpx.at(x)[1:].set(x[:-1]), [0.0, 0.0, 1.0, 2.0, 3.0])
    assert_close(xpx.at(x)[:-1].add(x[1:]), [0.0, 1.0, 3.0, 5.0, 3.0])


EXTRA = {
    "apply_where": lambda xpx, a: xpx.apply_where(a > 2, a, lambda v: v * 2, fill_value=0),
    "atleast_nd": lambda xpx, a: xpx.atleast_nd(a, ndim=3),
    "cov": lambda xpx, a: xpx.cov(a),
    "create_diagonal": lambda xpx, a: xpx.create_diagonal(a[0, :]),
    "isclose": lambda xpx, a: xpx.isclose(a, a + 1e-12),
    "kron": lambda xpx, a: xpx.kron(a, a),
    "lazy_apply": lambda xpx, a: xpx.lazy_apply(np.sin, a, as_numpy=True),
    "nunique": lambda xpx, a: xpx.nunique(a),
    "pad": lambda xpx, a: xpx.pad(a, 1),
    "setdiff1d": lambda xpx, a: xpx.setdiff1d(a[0, :], a[0, :1]),
    "sinc": lambda xpx, a: xpx.sinc(a),
}


@pytest.mark.parametrize("name", EXTRA)
def test_extra_functions(name: str, xpx: Any, x: Any) -> None:
    """Functions written on the standard alone give tensors with NumPy's values."""
    assert_close(EXTRA[name](xpx, x), EXTRA[name](xpx, np.asarray(VALUES)))


def test_extra_assertions(x: Any) -> None:
    """The checks that other libraries' tests use accept our arrays."""
    testing = pytest.importorskip("sklearn.externals.array_api_extra.testing")
    testing.assert_equal(x, x + 0)
    testing.assert_close(x, x + 1e-12)
    with pytest.raises(AssertionError):
        testing.assert_equal(x, x + 1)


# ---- scikit-learn and SciPy, in a process of their own: they read SCIPY_ARRAY_API when imported

START = """
import numpy as np, xtensor as xt

n = np.random.default_rng(0).normal(size=(40, 5))
x, y = xt.asarray(n, copy=True), xt.asarray(np.arange(40) % 3)

def same(ours, theirs, tolerance=1e-6):
    assert isinstance(ours, xt.Tensor), type(ours)
    np.testing.assert_allclose(np.asarray(ours), theirs, rtol=tolerance, atol=tolerance)
"""


def run(code: str) -> None:
    """Run code after START in a fresh interpreter with array API support switched on."""
    environment = os.environ | {"SCIPY_ARRAY_API": "1", "PYTHONPATH": str(ROOT)}
    code = START + textwrap.dedent(code)
    done = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def test_scikit_learn() -> None:
    """Estimators and metrics work in xtensor from end to end, and find what they find with NumPy."""
    pytest.importorskip("sklearn")
    run("""
        from sklearn import config_context
        from sklearn.decomposition import PCA
        from sklearn.discriminant_analysis import LinearDiscriminantAnalysis
        from sklearn.linear_model import Ridge
        from sklearn.metrics import accuracy_score, r2_score
        from sklearn.preprocessing import StandardScaler

        labels = np.asarray(y)
        with config_context(array_api_dispatch=True):
            same(StandardScaler().fit_transform(x), StandardScaler().fit_transform(n))
            same(abs(PCA(2, svd_solver="full").fit_transform(x)), abs(PCA(2, svd_solver="full").fit_transform(n)))
            ours, theirs = Ridge(solver="svd").fit(x, x[:, 0]), Ridge(solver="svd").fit(n, n[:, 0])
            same(ours.coef_, theirs.coef_)
            np.testing.assert_allclose(r2_score(x[:, 0], ours.predict(x)), r2_score(n[:, 0], theirs.predict(n)))
            ours, theirs = LinearDiscriminantAnalysis().fit(x, y), LinearDiscriminantAnalysis().fit(n, labels)
            same(ours.predict(x), theirs.predict(n))
            same(ours.transform(x), theirs.transform(n))
            assert accuracy_score(y, ours.predict(x)) == accuracy_score(labels, theirs.predict(n))
    """)


def test_scipy() -> None:
    """Functions that are written on the standard, and functions that fall back to compiled code."""
    pytest.importorskip("scipy")
    run("""
        from scipy import cluster, fft, ndimage, signal, special, stats

        same(stats.zscore(x), stats.zscore(n))
        same(stats.pearsonr(x[:, 0], x[:, 1]).statistic, stats.pearsonr(n[:, 0], n[:, 1]).statistic)
        same(stats.entropy(abs(x)), stats.entropy(abs(n)))
        same(special.logsumexp(x, axis=0), special.logsumexp(n, axis=0))
        same(special.gammaln(abs(x)), special.gammaln(abs(n)))
        same(fft.dct(x), fft.dct(n))
        same(signal.detrend(x), signal.detrend(n))
        same(ndimage.gaussian_filter(x, 1.0), ndimage.gaussian_filter(n, 1.0))
        same(cluster.vq.whiten(x), cluster.vq.whiten(n))
    """)


def test_without_dispatch() -> None:
    """Where array API support is off, scikit-learn and SciPy make NumPy arrays of tensors."""
    pytest.importorskip("sklearn")
    from scipy import stats
    from sklearn.preprocessing import StandardScaler

    found = StandardScaler().fit_transform(xt.asarray(VALUES))
    assert type(found) is np.ndarray
    np.testing.assert_allclose(found, StandardScaler().fit_transform(np.asarray(VALUES)))
    np.testing.assert_allclose(stats.zscore(xt.asarray(VALUES)), stats.zscore(np.asarray(VALUES)))


# ---- einops


@pytest.fixture
def einops() -> Any:
    """The part of einops that is written on the standard; it passes shapes as lists."""
    return pytest.importorskip("einops.array_api")


@pytest.mark.parametrize(
    ("pattern", "sizes"),
    [("a b -> b a", {}), ("a b -> (a b)", {}), ("a (b c) -> c (a b)", {"c": 3}), ("a b -> a 1 b", {})],
)
def test_einops_rearrange(pattern: str, sizes: Any, einops: Any, x: Any) -> None:
    """Axes are moved, split and joined."""
    assert_close(einops.rearrange(x, pattern, **sizes), einops.rearrange(np.asarray(x), pattern, **sizes))


@pytest.mark.parametrize("reduction", ["sum", "mean", "min", "max", "prod"])
def test_einops_reduce(reduction: str, einops: Any, x: Any) -> None:
    """Axes are reduced."""
    for pattern in ("a b -> b", "a b -> ", "a b -> a 1"):
        assert_close(einops.reduce(x, pattern, reduction), einops.reduce(np.asarray(x), pattern, reduction))


def test_einops_repeat_and_pack(einops: Any, x: Any) -> None:
    """Axes are repeated; arrays are packed into one and unpacked."""
    n = np.asarray(x)
    assert_close(einops.repeat(x, "a b -> (a two) b", two=2), einops.repeat(n, "a b -> (a two) b", two=2))
    packed, shapes = einops.pack([x, x[:, 0]], "a *")
    assert_close(packed, einops.pack([n, n[:, 0]], "a *")[0])
    first, second = einops.unpack(packed, shapes, "a *")
    assert_close(first, n)
    assert_close(second, n[:, 0])
    np.testing.assert_array_equal(einops.asnumpy(x), n)


def test_einops_itself(x: Any) -> None:
    """After the import of xtensor.einops its main functions take tensors, and gradients go through them."""
    einops = pytest.importorskip("einops")
    pytest.importorskip("xtensor.einops")
    n = np.asarray(x)
    for pattern, sizes in (("a b -> b a", {}), ("a (b c) -> c (a b)", {"c": 3}), ("a b -> a 1 b", {})):
        assert_close(einops.rearrange(x, pattern, **sizes), einops.rearrange(n, pattern, **sizes))
    assert_close(einops.reduce(x, "a b -> b", "mean"), einops.reduce(n, "a b -> b", "mean"))
    assert_close(einops.repeat(x, "a b -> (a two) b", two=2), einops.repeat(n, "a b -> (a two) b", two=2))
    assert_close(einops.einsum(x, x, "a b, c b -> a c"), n @ n.T)
    assert_close(einops.rearrange([x, x], "k a b -> a (k b)"), np.hstack([n, n]))
    assert_close(xt.grad(lambda v: einops.reduce(v * v, "a b -> ", "sum"))(x), 2 * n)
    np.testing.assert_array_equal(einops.asnumpy(x), n)


# ---- xarray

NATIVE = {
    "add": lambda a: a + 1,
    "subtract": lambda a: 1 - a,
    "negative": lambda a: -a,
    "by a row": lambda a: a * a[0],
    "compare": lambda a: a > 2,
    "matmul": lambda a: a[0] @ a[1],
    "where": lambda a: a.where(a > 2),
    "fillna": lambda a: a.where(a > 2).fillna(0.0),
    "isnull": lambda a: a.isnull(),
    "sum": lambda a: a.sum(),
    "sum along": lambda a: a.sum("r"),
    "mean": lambda a: a.mean("c", skipna=False),
    "std": lambda a: a.std("r", skipna=False),
    "var": lambda a: a.var(skipna=False),
    "min": lambda a: a.min("c", skipna=False),
    "max": lambda a: a.max(skipna=False),
    "prod": lambda a: a.prod("r", skipna=False),
    "count": lambda a: a.count("r"),
    "any": lambda a: (a > 5).any("c"),
    "all": lambda a: (a > 0).all(),
    "argmax": lambda a: a.argmax("c", skipna=False),
    "diff": lambda a: a.diff("c"),
    "roll": lambda a: a.roll(c=1),
    "transpose": lambda a: a.transpose("c", "r"),
    "isel": lambda a: a.isel(r=0),
    "isel slice": lambda a: a.isel(c=slice(None, None, -2)),
    "isel list": lambda a: a.isel(c=[0, 2]),
    "sel": lambda a: a.sel(r=20),
    "median": lambda a: a.median("c", skipna=False),
    "quantile": lambda a: a.quantile(0.3, "c", skipna=False),
    "cumsum": lambda a: a.cumsum("c", skipna=False),
    "pad": lambda a: a.pad(c=1, constant_values=0.0),
    "shift": lambda a: a.shift(c=1),
    "differentiate": lambda a: a.differentiate("c"),
    "coarsen": lambda a: a.coarsen(c=2, boundary="pad").mean(),
    "rolling": lambda a: a.rolling(c=2, min_periods=1).construct("w"),
    "rolling sum": lambda a: a.rolling(c=2).reduce(lambda v, axis: v.sum(axis=axis)),
    "nearest": lambda a: a.sel(c=1.2, method="nearest"),
    "expand_dims": lambda a: a.expand_dims("z"),
    "squeeze": lambda a: a.isel(r=[0]).squeeze(),
    "stack": lambda a: a.stack(z=("r", "c")),
    "unstack": lambda a: a.stack(z=("r", "c")).unstack(),
    "astype": lambda a: a.astype("float32"),
    "clip": lambda a: a.clip(2, 5),
    "round": lambda a: a.round(),
    "copy": lambda a: a.copy(deep=True),
    "isin": lambda a: a.isin([1.0, 2.0]),
    "sortby": lambda a: a.sortby("r", ascending=False),
    "reindex": lambda a: a.reindex(r=[10, 20, 30]),
    "pickle": lambda a: pickle.loads(pickle.dumps(a)),
}

# xarray itself turns to NumPy here.
THROUGH_NUMPY = {
    "mean": lambda a: a.mean("c"),
    "std": lambda a: a.std("r", ddof=1),
    "median": lambda a: a.median("r"),
    "min": lambda a: a.min("c"),
    "cumsum": lambda a: a.cumsum("c"),
    "sin": lambda a: np.sin(a),
    "array on the left": lambda a: np.ones((2, 3)) + a,
    "scalar on the left": lambda a: np.float64(2) * a,
    "groupby": lambda a: a.groupby("r").mean(),
    "interp": lambda a: a.interp(c=0.5),
}


@pytest.fixture
def xarray() -> Any:
    """The package; what it needs to interpolate and group comes with it or with SciPy."""
    return pytest.importorskip("xarray")


def labelled(xarray: Any, values: Any) -> Any:
    """Return values with names for the axes."""
    return xarray.DataArray(values, dims=("r", "c"), coords={"r": [10, 20], "c": [0, 1, 2]})


@pytest.mark.parametrize("name", NATIVE)
def test_xarray(name: str, xarray: Any, x: Any) -> None:
    """Operations of xarray on tensors give tensors with NumPy's values."""
    ours, theirs = NATIVE[name](labelled(xarray, x)), NATIVE[name](labelled(xarray, np.asarray(x)))
    assert ours.dims == theirs.dims
    assert ours.dtype == theirs.dtype
    assert_close(ours.data, theirs.data)


@pytest.mark.parametrize("name", THROUGH_NUMPY)
def test_xarray_through_numpy(name: str, xarray: Any, x: Any) -> None:
    """Where xarray calls NumPy's functions the values are right too."""
    ours = THROUGH_NUMPY[name](labelled(xarray, x))
    np.testing.assert_allclose(np.asarray(ours), THROUGH_NUMPY[name](labelled(xarray, np.asarray(x))))


def test_xarray_joins(xarray: Any, x: Any) -> None:
    """Several arrays are joined, broadcast and chosen from."""
    ours, theirs = labelled(xarray, x), labelled(xarray, np.asarray(x))
    assert_close(xarray.concat([ours, ours], dim="r").data, xarray.concat([theirs, theirs], dim="r").data)
    assert_close(xarray.where(ours > 2, ours, 0.0).data, xarray.where(theirs > 2, theirs, 0.0).data)
    assert_close(xarray.broadcast(ours, ours.isel(r=0))[1].data, xarray.broadcast(theirs, theirs.isel(r=0))[1].data)
    assert_close(xarray.full_like(ours, 2.0).data, np.full((2, 3), 2.0))
    assert ours.equals(ours.copy())
    xarray.testing.assert_allclose(ours, ours + 1e-12)


def test_xarray_text_and_writing(xarray: Any, x: Any) -> None:
    """A labelled tensor is shown with its values, and assigned by position and by label."""
    ours = labelled(xarray, x)
    assert "Tensor([[1., 2., 3.],\n        [4., 5., 6.]], dtype=float64)" in repr(ours)
    ours[0, 0] = 7.0
    ours.loc[{"r": 20}] = 8.0
    assert x.tolist() == [[7.0, 2.0, 3.0], [8.0, 8.0, 8.0]]
    assert float(ours[0, 0]) == 7.0
    assert type(ours.values) is np.ndarray
