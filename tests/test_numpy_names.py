"""NumPy's names over tensors: every public one is called on tensors and on NumPy's arrays, and gives the same."""

from __future__ import annotations

import re
import warnings
from collections.abc import Callable
from typing import Any

import numpy
import pytest

import xtensor as xt
import xtensor.numpy as ours
from xtensor.numpy import names

LIBRARIES = ("linalg", "fft", "random")


def arrays() -> dict[str, Any]:
    """Return the operands of the calls below, as NumPy's arrays: drawn anew, as some calls write them."""
    r = numpy.random.default_rng(0)
    a = r.normal(size=(4, 5))
    n = a.copy()
    n[1, 2] = n[3, 0] = numpy.nan
    return {
        "a": a,
        "b": r.normal(size=(4, 5)),
        "p": r.uniform(0.5, 2.0, (4, 5)),
        "u": r.uniform(-0.9, 0.9, (4, 5)),
        "v": r.normal(size=6),
        "w": r.uniform(0.5, 1.5, 6),
        "s": numpy.sort(r.normal(size=6)),
        "c": r.normal(size=(3, 3)) + 1j * r.normal(size=(3, 3)),
        "m": r.normal(size=(3, 3)) + 4.0 * numpy.eye(3),
        "h": (lambda x: x @ x.T + numpy.eye(3))(r.normal(size=(3, 3))),
        "t": r.normal(size=(2, 3, 4)),
        "n": n,
        "i": r.integers(1, 9, (4, 5)),
        "j": r.integers(1, 9, (4, 5)),
        "k": r.integers(0, 5, 12),
        "e": r.integers(-100, 100, (3, 4)).astype(numpy.int8),
        "f": r.normal(size=(3, 4)).astype(numpy.float32),
        "q": r.normal(size=(3, 4)) > 0,
        "z": numpy.array([numpy.inf, -numpy.inf, numpy.nan, 0.0, -2.5]),
    }


def on_tensors(given: dict[str, Any]) -> dict[str, Any]:
    return {name: xt.asarray(x, copy=True) for name, x in given.items()}


def _words(text: str) -> list[str]:
    return text.split()


UNARY = _words(
    """
absolute abs arctan arcsinh asinh atan bitwise_count cbrt ceil conj conjugate cos cosh deg2rad degrees exp
exp2 expm1 fabs floor frexp isfinite isinf isnan logical_not modf negative positive rad2deg radians rint sign
signbit sin sinh spacing square tan tanh trunc fix sinc i0 angle real imag isreal iscomplex nan_to_num
"""
)
UNARY_WITHIN = _words("arccos acos arcsin asin arctanh atanh")
UNARY_ABOVE = _words("log log10 log1p log2 reciprocal sqrt")
BINARY = _words(
    """
add arctan2 atan2 copysign divide divmod equal float_power floor_divide fmax fmin fmod greater greater_equal
heaviside hypot less less_equal logaddexp logaddexp2 logical_and logical_or logical_xor maximum minimum mod
multiply nextafter not_equal remainder subtract true_divide power pow
"""
)
BITS = _words(
    "bitwise_and bitwise_or bitwise_xor gcd lcm left_shift right_shift bitwise_left_shift bitwise_right_shift"
)
INVERTS = _words("bitwise_not bitwise_invert invert")
FOLDS = _words("sum prod max min amax amin mean std var any all ptp argmax argmin count_nonzero median average")
NANS = _words("nansum nanprod nanmax nanmin nanmean nanstd nanvar nanmedian nanargmax nanargmin")
RUNS = _words("cumsum cumprod nancumsum nancumprod")
WINDOWS = _words("bartlett blackman hamming hanning")


def listed(text: str) -> list[str]:
    """Return the calls of a text, which bars and ends of lines part."""
    found = [one.strip() for line in text.strip().splitlines() for one in line.split("|")]
    return [one for one in found if "row_stack" not in one or hasattr(numpy, "row_stack")]  # NumPy's up to 2.4


DRAWN = """
rand(2) | randn(2, 2) | random(3) | random_sample(2) | ranf(2) | sample(2) | randint(0, 9, 4) | normal(0, 1, 3)
uniform(size=2) | beta(1, 2, 3) | binomial(5, 0.5, 3) | bytes(3) | chisquare(2, 3) | choice(5, 3)
dirichlet([1, 2], 2) | exponential(1.0, 2) | f(1, 2, 3) | gamma(1.0, 2.0, 3) | geometric(0.5, 3) | gumbel(size=2)
hypergeometric(3, 4, 5, 2) | laplace(size=2) | logistic(size=2) | lognormal(size=2) | logseries(0.5, 2)
multinomial(5, [0.5, 0.5]) | multivariate_normal([0, 0], np.eye(2)) | negative_binomial(3, 0.5, 2)
noncentral_chisquare(1, 2, 3) | noncentral_f(1, 2, 3, 2) | pareto(2.0, 3) | permutation(5) | permutation(v)
poisson(2.0, 3) | power(2.0, 3) | rayleigh(size=2) | standard_cauchy(2) | standard_exponential(2)
standard_gamma(1.0, 2) | standard_normal(2) | standard_t(3, 2) | triangular(0, 1, 2, 2) | vonmises(0, 1, 2)
wald(1, 1, 2) | weibull(1.0, 2) | zipf(2.0, 3)
"""

CALLS = [
    *(f"np.{name}({x})" for name in UNARY for x in "af" if name != "bitwise_count"),
    *(f"np.{name}(z)" for name in UNARY if name not in ("bitwise_count", "spacing", "frexp", "i0")),
    *(f"np.{name}(u)" for name in UNARY_WITHIN),
    *(f"np.{name}(p)" for name in UNARY_ABOVE),
    *(f"np.{name}({x}, {y})" for name in BINARY for x, y in ("pb", ("p", "1.5"), ("2", "p"))),
    *(f"np.{name}(f, f + 1)" for name in BINARY if name not in ("power", "pow", "float_power")),
    *(f"np.{name}(i, j)" for name in BITS),
    *(f"np.{name}(i)" for name in INVERTS),
    *(f"np.{name}({x}{how})" for name in FOLDS for x in "ape" for how in ("", ", 0", ", axis=-1")),
    *(f"np.{name}(t, axis=(0, 2))" for name in FOLDS if name[:3] != "arg"),
    *(f"np.{name}(a, 0, keepdims=True)" for name in FOLDS),
    *(f"np.{name}(n{how})" for name in NANS for how in ("", ", 0", ", axis=1, keepdims=True")),
    *(f"np.{name}(i)" for name in NANS),
    *(f"np.{name}(n{how})" for name in RUNS for how in ("", ", 0", ", axis=1")),
    *(f"np.{name}(e, 1)" for name in RUNS),
    *(f"np.{name}(a, axis=1, where=a > 0)" for name in ("sum", "prod", "mean", "std", "var", "any", "all")),
    *(f"np.rot90(t, {k})" for k in range(4)),
    *(f"np.pad(a, 2, mode='{mode}')" for mode in ("edge", "wrap", "reflect", "symmetric", "mean", "linear_ramp")),
    *(f"np.{name}(7)" for name in WINDOWS),
    *(f"np.fft.{name}({x})" for name in ("fft", "ifft", "fftn", "ifftn", "fft2", "ifft2") for x in "ac"),
    *(f"np.fft.{name}(a)" for name in _words("rfft rfftn rfft2 irfft irfftn irfft2 hfft ihfft fftshift ifftshift")),
    *(f"(np.random.seed(1), np.random.{call})[1]" for call in listed(DRAWN)),
    *listed(
        """
np.bitwise_count(i) | np.arccosh(p + 1) | np.acosh(p + 1) | np.sqrt(i) | np.exp(e) | np.floor(q) | np.rint(i)
np.power(p, 3) | np.power(p, b) | np.pow(i, 2) | np.float_power(i, 0.5) | np.add(i, 0.5) | np.add(e, 1)
np.add(f, 1.0) | np.add([1, 2], (3, 4)) | np.add(q, q) | np.ldexp(a, i) | np.add(e, f) | np.multiply(e, 2.5)
np.divide(i, j) | np.subtract(f, a[:3, :4]) | np.maximum(i, 3.5) | np.max(a, axis=1, initial=0.5, where=a > 0)
np.min(a, initial=-9.0) | np.sum(a, 0, initial=10.0) | np.sum(e, dtype=np.float32) | np.mean(f, dtype=np.float64)
np.prod(i, 1, initial=2) | np.sum(a, 0, np.float32) | np.std(a, 0, ddof=1) | np.var(c, 0) | np.std(i, 1)
np.var(a, axis=1, correction=1) | np.std(c) | np.var(a, 0, mean=np.mean(a, 0, keepdims=True))
np.nanvar(n, 1, ddof=1) | np.max(c.real) | np.mean(q) | np.average(v, weights=w)
np.average(a, 1, weights=np.arange(5), returned=True) | np.average(i, returned=True)
np.average(t, axis=(0, 1), weights=np.ones((2, 3))) | np.median(a, 1) | np.median(n, 0) | np.median(i)
np.median(t, axis=(0, 2), keepdims=True) | np.median(f) | np.percentile(a, 30)
np.percentile(a, [10, 50, 90], axis=1) | np.quantile(a, 0.25, 0, keepdims=True) | np.quantile(i, [0.1, 0.9])
np.quantile(n, 0.5, axis=1) | np.quantile(a, 0.3, method='hazen') | np.quantile(f, 0.3)
np.nanpercentile(n, [20, 70], 1) | np.nanquantile(n, 0.4) | np.nanquantile(n, 0.4, 0, keepdims=True) | np.sort(a)
np.sort(a, None) | np.sort(a, axis=0, kind='stable') | np.argsort(a, 0) | np.argsort(a, axis=None)
np.partition(v, 2)[2] | np.argpartition(v, 2)[2] | np.lexsort((k, k[::-1])) | np.sort_complex(v)
np.searchsorted(s, v) | np.searchsorted(s, 0.1, 'right') | np.searchsorted(v, s, sorter=np.argsort(v))
np.searchsorted([1, 2, 3], 2.5) | np.digitize(v, s) | np.digitize(v, s[::-1]) | np.digitize(v, s, right=True)
np.reshape(a, (5, 4)) | np.reshape(a, -1, order='F') | np.ravel(a) | np.ravel(a, 'F') | np.transpose(t)
np.transpose(t, (1, 0, 2)) | np.permute_dims(t, (2, 0, 1)) | np.matrix_transpose(t) | np.swapaxes(t, 0, -1)
np.moveaxis(t, 0, -1) | np.moveaxis(t, [0, 1], [1, 2]) | np.rollaxis(t, 2) | np.rollaxis(t, 0, 2)
np.squeeze(a[:1]) | np.squeeze(a[:1], 0) | np.expand_dims(a, 0) | np.expand_dims(a, (0, 3)) | np.ndim(a)
np.shape(a) | np.size(a) | np.size(a, 1) | np.ndim([[1]]) | np.atleast_1d(3.0) | np.atleast_2d(v, 1.0)
np.atleast_3d(v) | np.atleast_3d(a, 2) | np.broadcast_to(v, (2, 6)) | np.broadcast_arrays(v, w[:1]) | np.flip(a)
np.flip(a, 1) | np.fliplr(a) | np.flipud(a) | np.rot90(t, 1, (1, 2)) | np.roll(a, 2) | np.roll(a, (1, 2), (0, 1))
np.roll(v, -1, 0) | np.tile(a, 2) | np.tile(v, (2, 2)) | np.repeat(a, 2) | np.repeat(a, [1, 2, 0, 1], axis=0)
np.resize(v, (3, 4)) | np.concatenate((a, b)) | np.concatenate([a, i], 1) | np.concatenate((a, b), axis=None)
np.concat([v, w]) | np.concatenate((i, j), dtype=np.float32) | np.stack([v, w]) | np.stack((v, w), -1)
np.hstack([v, w]) | np.hstack((a, b[:, :2])) | np.vstack([v, w]) | np.row_stack([v, w]) | np.dstack([v, w])
np.dstack((a, b)) | np.column_stack((v, w)) | np.block([[a, b], [np.zeros((1, 5)), np.ones((1, 5))]])
np.block([v, 1.0, w]) | np.append(v, 2.0) | np.append(a, b, 0) | np.insert(v, 2, 7.0)
np.insert(a, 1, 5.0, axis=1) | np.insert(v, [1, 4], [8.0, 9.0]) | np.insert(a, [0, 2], v[:5], 0)
np.insert(v, slice(1, 3), 0.0) | np.delete(v, 2) | np.delete(a, [0, -1], 1) | np.delete(v, slice(1, 3))
np.delete(v, v > 0) | np.trim_zeros(np.floor(np.abs(z[3:])))
np.trim_zeros(np.floor(np.abs(z)), 'f') | np.trim_zeros(np.zeros(3)) | np.array_split(v, 4)
np.array_split(a, [1, 3], 1)
np.split(v, 3) | np.split(a, [1], 0) | np.hsplit(v, 2) | np.hsplit(a, [2]) | np.vsplit(a, 2) | np.dsplit(t, 2)
np.unstack(a) | np.unstack(a, axis=1) | np.pad(a, 1) | np.pad(a, ((1, 2), (0, 3)), constant_values=5)
np.pad(a, 1, constant_values=((1, 2), (3, -0.0))) | np.pad(a, ((9, 0), (0, 14)), 'symmetric')
np.pad(i, (5, 11), 'reflect') | np.pad(t, {0: 2, -1: (0, 9)}, 'wrap') | np.pad(a[:0], 2) | np.pad(v[:1], 3, 'reflect')
np.array([[1, 2], [3, 4]]) | np.array(a, ndmin=3) | np.array(a, np.float32) | np.array([v, w]) | np.asarray(a)
np.asarray([1, 2], float) | np.asanyarray(a) | np.ascontiguousarray(a.T) | np.asfortranarray(a) | np.copy(a)
np.asarray_chkfinite(a) | np.require(a, np.float32, 'C') | np.astype(a, np.int32) | np.zeros((2, 3))
np.zeros(3, np.int32) | np.zeros((2, 3), order='F') | np.ones([2, 2]) | np.full((2, 2), 7) | np.full(3, v[:3])
np.full((2,), 1.5, dtype=np.float32) | np.shape(np.empty((2, 3), np.int8)) | np.shape(np.empty_like(a))
np.zeros_like(i) | np.ones_like(a, dtype=int) | np.full_like(i, 3) | np.full_like(a, 2, shape=(2,))
np.eye(3, 4, 1) | np.eye(2, dtype=int) | np.identity(3) | np.arange(5) | np.arange(1.0, 2.0, 0.25)
np.arange(2, 8, 3, np.float32) | np.linspace(0, 1) | np.linspace(0, 1, 5, False) | np.linspace(v[:2], w[:2], 4)
np.linspace(0, 2, 3, retstep=True) | np.logspace(0, 2, 5) | np.logspace(0, 3, 4, base=2) | np.geomspace(1, 100, 5)
np.meshgrid(v, w) | np.meshgrid(v, w, indexing='ij', sparse=True) | np.tri(3, 4, 1) | np.tril(a, 1)
np.triu(a, -1) | np.diag(v) | np.diag(a, 1) | np.diagflat(m) | np.vander(v)
np.vander([1, 2, 3], 3, increasing=True) | np.indices((2, 3)) | np.indices((2, 3), sparse=True)
np.fromfunction(lambda x, y: x + y, (2, 3)) | np.fromiter([1, 2], float) | np.mgrid[0:3, 1:2:0.25]
np.mgrid[0:1:5j] | np.ogrid[0:3, 0:2] | np.r_[1:4, 0, v] | np.r_['0,2', v, w] | np.c_[v, w] | np.r_[v, 2.5, w]
np.s_[1:2] | np.index_exp[1:2] | np.tril_indices(3) | np.triu_indices(3, 1, 4) | np.tril_indices_from(m)
np.triu_indices_from(m, 1) | np.diag_indices(3) | np.diag_indices_from(m) | np.mask_indices(3, np.triu, 1)
np.ix_([0, 1], [2, 3]) | a[np.ix_([0, 1], [2, 3])] | np.ix_(q[0], [1]) | np.kaiser(7, 3.0)
np.frombuffer(b'abcd', np.uint8) | np.fromstring('1 2 3', sep=' ') | np.from_dlpack(v) | np.ndarray((2, 3)).shape
isinstance(a, np.ndarray) | divmod(v, 0.7) | divmod(7.0, v) | v[0].__trunc__()
np.isscalar(3.0) | (np.isscalar(v[0]), np.isscalar(v), np.isscalar(np.zeros(())), np.isscalar(np.sum(v)))
list(np.ndindex(2, 2)) | np.indices(n for n in (2, 3))
len(np.ndarray[int, np.dtype].__args__)
[(index, x) for index, x in np.ndenumerate(m)] | np.vectorize(lambda x, y: x + 2 * y)(a, 1.0)
np.where(a > 0, a, b) | np.where(a > 0, 1.0, b) | np.where(q) | np.where(i, a, 0) | np.nonzero(q) | np.argwhere(q)
np.flatnonzero(q) | np.take(a, [1, 7]) | np.take(a, [0, 2], 1) | np.take(v, [7, -8], mode='wrap')
np.take(v, [[9, -2]], mode='clip') | np.take_along_axis(a, np.argsort(a, 1), 1)
np.compress([True, False, True], a, 0) | np.extract(a > 0, a) | np.choose(k % 2, [np.arange(12), np.zeros(12)])
np.choose([0, 5], [v[:2], w[:2]], mode='wrap') | np.choose([0, 5], [v[:2], w[:2]], mode='clip')
np.select([v < 0, v > 1], [v, v * v], 42.0) | np.piecewise(v, [v < 0, v >= 0], [lambda x: -x, lambda x: x * x])
np.piecewise(v, v < 0, [-1.0, 1.0]) | np.diagonal(t, 0, 1, 2) | np.diagonal(a, 1) | np.trace(m)
np.trace(t, 1, 1, 2) | np.trace(e) | np.apply_along_axis(np.sort, 0, a)
np.apply_along_axis(lambda x: x.sum(), 1, a) | np.apply_over_axes(np.sum, t, (0, 2))
np.apply_along_axis(lambda x: np.outer(x, x), 1, a) | np.unravel_index([3, 7], (4, 5))
np.ravel_multi_index(([1, 2], [3, 4]), (4, 5)) | np.isin(k, [1, 3]) | np.isin(k, [1, 3], invert=True)
np.unique(k) | np.unique(k, True, True, True) | np.unique(i, return_inverse=True) | np.unique(i % 2, axis=0)
np.unique(q, axis=1, return_counts=True) | np.unique(n) | np.unique_all(k) | np.unique_counts(k)
np.unique_inverse(k) | np.sort(np.unique_values(k)) | np.union1d(k, [9, 1]) | np.intersect1d(k, [1, 2, 9])
np.intersect1d(k, [1, 2, 9], return_indices=True) | np.setdiff1d(k, [1]) | np.setxor1d(k, [1, 9])
np.isclose(a, a + 1e-9) | np.isclose(z, z, equal_nan=True) | np.isclose(z, z) | np.allclose(a, a)
np.allclose(a, b) | np.array_equal(a, a) | np.array_equal(a, v) | np.array_equal(n, n, equal_nan=True)
np.array_equiv(v, np.stack([v, v])) | np.isneginf(z) | np.isposinf(z) | np.isreal(c) | np.iscomplex(c)
np.iscomplexobj(c) | np.isrealobj(c) | np.isfortran(a.T) | np.isdtype(a.dtype, 'real floating')
np.result_type(i, f) | np.result_type(f, 1.0) | np.can_cast(a.dtype, np.float32) | np.common_type(f, i)
np.min_scalar_type(300) | np.promote_types('i4', 'f4') | np.issubdtype(a.dtype, np.floating)
np.shares_memory(a, a[1:]) | np.may_share_memory(a, b) | np.iterable(a) | np.histogram(v)
np.histogram(v, 4, (-1, 1)) | np.histogram(v, s) | np.histogram(a, 5, density=True)
np.histogram(v, 4, weights=w) | np.histogram(k, bins=5) | np.histogram_bin_edges(v, 'auto')
np.histogram2d(v, w, 3) | np.histogramdd([v, w], 2) | np.bincount(k) | np.bincount(k, minlength=9)
np.bincount(k, np.arange(12) / 2) | np.cov(a) | np.cov(v, w) | np.cov(a, rowvar=False, ddof=0)
np.cov(a, aweights=np.arange(1, 6)) | np.cov(f) | np.cov(a, fweights=np.arange(1, 6)) | np.cov(v) | np.corrcoef(a)
np.corrcoef(v, w) | np.diff(a) | np.diff(a, 2, 0) | np.diff(v, prepend=0.0, append=[1.0, 2.0]) | np.ediff1d(v)
np.ediff1d(v, 9.0, [1.0, 2.0]) | np.gradient(v) | np.gradient(a) | np.gradient(a, 0.5, axis=1) | np.gradient(v, s)
np.gradient(v, s, edge_order=2) | np.gradient(a, 2.0, np.arange(5) ** 2, edge_order=2) | np.trapezoid(a)
np.trapezoid(v, s) | np.trapezoid(a, dx=0.5, axis=0) | np.interp(v, s, w)
np.interp([0.0, 99.0], s, w, left=-1.0, right=5.0) | np.interp(v, s, w, period=2.0) | np.interp(0.3, s, w)
np.unwrap(np.cumsum(w * 4)) | np.cumulative_sum(v) | np.cumulative_sum(a, axis=0, include_initial=True)
np.cumulative_prod(v) | np.dot(a, b.T) | np.dot(v, w) | np.dot(a, v[:5]) | np.dot(2.0, v)
np.dot(t, np.ones((4, 2))) | np.inner(v, w) | np.inner(a, b) | np.inner(2.0, v) | np.outer(v, w)
np.outer(a, [1, 2]) | np.vdot(c, c) | np.vdot(a, b) | np.vecdot(a, b) | np.matmul(a, b.T) | np.matvec(m, v[:3])
np.vecmat(v[:3], m) | np.vecmat(c[0], c) | np.tensordot(a, b, 2) | np.tensordot(t, t, ([0, 1], [0, 1]))
np.tensordot(a, b, (1, 1)) | np.kron(v, w) | np.kron(m, a) | np.kron(v, m) | np.cross(m, c)
np.cross([1, 2, 3], [4.0, 5.0, 6.0]) | np.einsum('ij,kj->ik', a, b) | np.einsum('ii', m)
np.einsum('...j->...', t) | np.einsum(m, [0, 1], m, [1, 2]) | np.einsum_path('ij,jk,kl->il', m, m, m)[0]
np.convolve(v, w) | np.convolve(v, w[:3], 'same') | np.convolve(v[:2], w, 'valid') | np.convolve(v[:2], w, 'same')
np.correlate(v, w[:3]) | np.correlate(v, w[:3], 'same') | np.correlate(v[:2], w, 'same')
np.correlate(v[:2], w, 'full') | np.correlate(v[:4], w, 'valid') | np.correlate(c[0], c[1], 'full')
np.polyval(v, 2.0) | np.polyval([1, 2, 3], w) | np.polyadd(v, [1, 2]) | np.polysub([1.0, 2.0], v)
np.polymul(v, w) | np.polyder(v) | np.polyder([1, 2, 3], 2) | np.polyint(v) | np.polyint([1, 2], 2, [3, 4])
np.polydiv(v, w[:3]) | np.polyfit(s, w, 2) | np.poly([1.0, 2.0]) | np.roots([1.0, -3.0, 2.0]) | np.real(c)
np.imag(c) | np.real(a) | np.angle(c) | np.angle(c, deg=True) | np.real_if_close(c) | np.real_if_close(c * 0 + 1)
np.round(a, 2) | np.around(a) | np.round(i, -1) | np.clip(a, -0.5, 0.5) | np.clip(a, None, 0.5)
np.clip(i, 2, None) | np.clip(a, min=0) | np.clip(e, -5, 5) | np.nan_to_num(z, nan=1.0, posinf=2.0)
np.nan_to_num(i) | np.nan_to_num(c) | np.packbits(q) | np.unpackbits(np.array([7], np.uint8)) | np.add.reduce(a)
np.add.reduce(a, axis=None) | np.multiply.reduce(a, 1, keepdims=True) | np.maximum.reduce(t, (0, 1))
np.logical_and.reduce(q) | np.hypot.reduce(p) | np.bitwise_or.reduce(i) | np.add.accumulate(a)
np.maximum.accumulate(a, 1) | np.add.accumulate(e) | np.subtract.outer(v, w) | np.multiply.outer(a, v)
np.add.reduceat(v, [0, 2, 4]) | np.add.reduce([1, 2]) | np.add.nin | np.add.identity | np.exp(a, dtype=np.float32)
np.add(i, j, dtype=float) | np.sqrt(p, where=True) | isinstance(np.add, np.ufunc) | np.add.reduce(e)
np.add.reduce(q) | np.minimum.reduce(a, initial=-5.0) | np.linalg.cholesky(h) | np.linalg.cond(m)
np.linalg.cond(m, 1) | np.linalg.cond(m, -2) | np.linalg.cross(m, h) | np.linalg.det(m) | np.linalg.diagonal(t)
np.linalg.eigh(h)[0] | np.linalg.eigh(h, 'U')[0] | np.linalg.eigvalsh(h) | np.sort(np.abs(np.linalg.eigvals(h)))
np.abs(np.linalg.eig(h)[0]) | np.linalg.inv(m) | np.linalg.inv(i[:4, :4] + 40 * np.eye(4, dtype=int))
np.linalg.lstsq(a.T, v[:5]) | np.linalg.matmul(m, h) | np.linalg.matrix_norm(m) | np.linalg.matrix_power(m, 3)
np.linalg.matrix_rank(a) | np.linalg.matrix_transpose(t) | np.linalg.multi_dot([m, h, m]) | np.linalg.outer(v, w)
np.linalg.pinv(a) | np.linalg.qr(m) | np.linalg.qr(m, 'r') | np.linalg.qr(m, 'complete') | np.linalg.slogdet(m)
np.linalg.solve(m, v[:3]) | np.linalg.solve(m, h) | np.linalg.svd(m)[1] | np.linalg.svd(a, compute_uv=False)
np.linalg.svd(a, False).S | np.linalg.svdvals(m) | np.linalg.tensordot(m, h, axes=1)
np.linalg.tensorinv(np.eye(4).reshape(2, 2, 2, 2)) | np.linalg.tensorsolve(m, v[:3]) | np.linalg.trace(m)
np.linalg.vecdot(m, h) | np.linalg.vector_norm(a) | np.linalg.norm(a) | np.linalg.norm(v, 1)
np.linalg.norm(m, 'nuc') | np.linalg.norm(a, axis=1) | np.linalg.norm(t, axis=(0, 2))
np.linalg.norm(m, 2, keepdims=True) | np.linalg.norm(i) | np.linalg.norm(v, 0) | np.linalg.norm(v, np.inf)
np.linalg.norm(m, -np.inf) | np.linalg.norm(t) | np.fft.fft(v, 4) | np.fft.fft(i)
np.fft.rfft(a, axis=0, norm='ortho') | np.fft.fftfreq(5, 0.1) | np.fft.rfftfreq(5)
np.fft.fftn(t, (2, 2), (0, 1)) | np.fft.fftshift(a, 1) | np.fft.fft(f) | np.random.default_rng(0).normal(size=3)
np.random.default_rng(0).vonmises(0, 1, 2) | np.random.RandomState(0).rand(2)
np.argsort(np.array(3.0)) | np.argmax(np.array(3.0), axis=0) | np.cumsum(np.array(3.0), axis=-1, dtype=float)
np.repeat(np.array(3.0), 2, axis=0) | np.nanmean(np.array(3.0), axis=0) | np.nanmax(np.array(3.0), axis=-1)
np.nanstd(np.array(3.0), axis=0) | np.take(np.array(3.0), [0, -1], axis=0) | np.nanargmin(np.array(3.0), axis=0)
np.cumulative_sum(np.array(3.0), axis=0) | np.count_nonzero(np.array(3.0), axis=0) | np.array(3.0).sum(axis=0)
np.array(3.0).argmin(axis=-1, keepdims=True) | np.array(3.0).any(axis=0) | np.array(3.0).max(-1) | (v > 1).conj()
np.einsum('ij,jk,kl->il', a, a.T, a) | np.cumulative_prod(np.array(2.5)) | np.cumulative_sum(np.array(2.5))
np.choose(np.arange(9) % 2, [np.ones(9, np.uint8), 0]) | np.choose(np.arange(9) % 2, [np.ones(9, np.float32), 0.5])
np.choose(np.arange(9) % 2, [1, 2.5]) | np.choose(np.arange(9000) % 2, [np.ones(9000, np.int32), 7])
np.intersect1d(np.arange(5000) % 7, np.arange(3, 9000)) | np.intersect1d(i, i[::2], return_indices=True)
np.sum(np.array(3.0), axis=-1) | np.max(2, axis=-1) | np.any(np.array(3.0), axis=0) | np.add.reduce(np.array(3.0))
np.logical_and.reduce(np.array(3.0)) | np.sum(np.array(3.0), axis=0, keepdims=True) | np.ptp(np.array(3.0), axis=0)
np.piecewise(2.5, np.array([True, False]), [1, 2]) | np.sum(np.array(3.0), axis=np.int64(0))
np.piecewise(2.5, [True], [lambda x: x * 2, 0]) | np.piecewise(np.array(0.5), [np.array(0.5) > 1], [np.sin, np.cos])
np.interp(np.sort(v), [0.0, 1.0, 2.0], [3.0, 1.0, 2.0], -1.0) | np.interp(a, [0, 1], [1j, 2.0], period=3)
np.random.Generator(np.random.PCG64(1)).random(2) | np.random.default_rng(0).choice(v, 3)
np.random.default_rng(3).permutation(v) | np.random.get_state()[0] | np.random.set_state(np.random.get_state())
np.array2string(v) | np.array_repr(v) | np.array_str(v) | np.base_repr(5) | np.binary_repr(5) | np.typename('d')
"""
    ),
]

# Functions that write their first argument, and `out=`: the statements run, and then all operands are compared.
WRITING = [
    *listed(
        """
np.copyto(a, b) | np.copyto(a[1:], a[:-1]) | np.copyto(a, 7.0, where=a > 0) | np.fill_diagonal(m, 9.0)
np.place(a, a > 0, [1.0, 2.0]) | np.put(a, [0, 5], [8.0, 9.0]) | np.putmask(a, a > 0, b)
np.put_along_axis(a, np.argmax(a, 1, keepdims=True), 99.0, 1) | np.random.seed(3); np.random.shuffle(v)
np.random.default_rng(3).shuffle(v) | np.add.at(v, [0, 0, 2], 1.0) | np.negative.at(v, [1]) | np.add(a, b, out=a)
np.add(a, b, a) | np.add(a, b, out=(a,)) | np.exp(a, out=b, where=a > 0) | np.sum(a, 0, out=v[:5])
np.cumsum(v, out=w) | np.divmod(a, b, out=(b, a)) | np.modf(a, b, a) | np.add(i, j, out=a)
np.multiply(a[:, :2], 2.0, out=a[:, 3:]) | np.add(a[1:], a[:-1], out=a[1:]) | np.matmul(m, h, out=m)
np.dot(m, h, out=h) | np.clip(a, 0, 1, out=a) | np.round(a, 1, out=a) | np.maximum(a, 0, a)
np.mean(a, axis=1, out=v[:4]) | np.take(a, [0, 1], 0, out=b[:2]) | np.nan_to_num(n, copy=False)
np.add.reduce(a, 1, out=v[:4]) | np.hypot.accumulate(a, 1, out=a) | np.concatenate((a[:2], b[:2]), out=a)
np.stack((v, w), out=np.ones((2, 6))) | np.linalg.multi_dot([m, h, m], out=h) | np.median(a, 0, out=v[:5])
np.einsum('ij,jk->ik', m, h, out=m) | a[...] = 1; np.power(a, 2, out=a) | np.partition(v, 2, axis=-1)
a.fill(3.0) | a.sort() | a.sort(0) | a.flat[2] = 5.0 | a.T.flat[1] = 5.0 | a.put([1, 2], 0.5)
v.partition(2); v.sort() | a.shape = (2, 10) | a[1:].shape = 15 | v.flat = 2.0 | a.shape = -1
"""
    ),
]

METHODS = [
    *listed(
        """
a.cumsum() | a.cumsum(0) | a.cumprod(1) | a.argsort() | a.argsort(0) | q.nonzero() | a.repeat(2) | a.repeat(2, 1)
a.take([1, 2]) | a.take([0, 1], 1) | t.swapaxes(0, 2) | m.trace() | m.diagonal(1) | a.tobytes() | a.T.tobytes('C')
a.ravel() | a.flatten() | a.reshape(5, 4) | a.reshape((2, -1)) | a.sum(0) | a.mean(1) | a.min() | a.max(axis=0)
a.std() | a.var(0) | a.prod(1) | q.any(0) | q.all() | a.argmin() | a.argmax(1) | a.clip(-1, 1) | a.round(1)
t.reshape(4, -1, order='F') | t.reshape((6, -1), order='A') | t.ravel('F')
t.transpose().copy('K').ravel('K') | t.flatten('F')
t[::-1].transpose(1, 2, 0).ravel('K') | t.transpose().flatten('K')
v[0].is_integer() | np.sqrt(v)[1].is_integer() | bytes(a.data) | np.__version__
v[0].as_integer_ratio() | v.astype(np.float32)[1].as_integer_ratio() | k[3].bit_count() | (-k)[5].bit_count()
m.dot(h) | a.astype(int) | a.copy() | a.tolist() | v[:1].item() | a[:1].squeeze() | t.transpose(1, 0, 2)
c.conj() | c.conjugate() | list(a.flat) | a.flat[3] | a.flat[2:5] | len(a.flat) | s.searchsorted(0.5)
v.compress([True, False]) | (k % 2).choose([np.zeros(12), np.ones(12)]) | v.argpartition(2)[2]
a.flags.c_contiguous | a.T.flags.f_contiguous | a.flags['WRITEABLE'] | a.sum(0, keepdims=True) | a.T | c.real
a.nbytes | a.itemsize | a.strides | a.size | a.ndim
"""
    ),
]

RNG_NAMES = ("default_rng", "Generator", "RandomState")


def compare(found: Any, expected: Any) -> None:
    """Compare a result with NumPy's: values, dtypes and shapes; arrays must have become tensors."""
    if isinstance(expected, (list, tuple)):
        assert isinstance(found, (list, tuple)) and len(found) == len(expected)
        for one, other in zip(found, expected, strict=True):
            compare(one, other)
    elif isinstance(expected, (numpy.ndarray, numpy.generic)):
        if not isinstance(found, (bool, str, bytes)) and expected.dtype.kind in "biufc":
            assert isinstance(found, xt.Tensor), type(found)
            assert (found.shape, found.dtype) == (expected.shape, expected.dtype)
            tolerance = 1e-5 if expected.dtype.itemsize == 4 or expected.dtype == numpy.complex64 else 1e-11
            numpy.testing.assert_allclose(found.numpy(), expected, rtol=tolerance, atol=tolerance)
        else:
            assert numpy.array_equal(found, expected)
    else:
        assert found == expected or (found is expected)


def run(text: str, given: dict[str, Any], np: Any, how: Any = eval) -> Any:
    with warnings.catch_warnings(), numpy.errstate(all="ignore"):
        warnings.simplefilter("ignore")
        return how(text, {"np": np, **given})


@pytest.mark.parametrize("lazy", ["auto", "always"])
@pytest.mark.parametrize("text", [*CALLS, *METHODS])
def test_a_call_gives_what_numpy_gives(text: str, lazy: Any) -> None:
    """Values, dtypes and shapes are NumPy's, arrays have become tensors: on the thin way, and where it is closed."""
    given = arrays()
    expected = run(text, given, numpy)
    with xt.options(lazy=lazy):
        compare(run(text, on_tensors(given), ours), expected)


def _as(dtype: str, of: str) -> Any:
    """Return what makes operands of these kinds others, integers and booleans of values that are apart."""
    kind = numpy.dtype(dtype).kind

    def whole(x: Any) -> Any:
        return numpy.nan_to_num(x * 3, posinf=9, neginf=-9)

    spread = {"f": lambda x: x, "i": whole, "u": lambda x: numpy.abs(whole(x))}
    change = spread.get(kind, lambda x: x > 0)
    return lambda x: change(x).astype(dtype) if x.dtype.kind in of else x


# The same calls on other operands.
SWEEPS: dict[str, Any] = {
    "float32": _as("float32", "f"),
    "int64": _as("int64", "f"),
    "int16": _as("int16", "f"),
    "uint8": _as("uint8", "fi"),
    "bool": _as("bool", "fi"),
    "not packed": lambda x: numpy.asfortranarray(x) if x.ndim > 1 else numpy.repeat(x, 2)[::2],
    "empty": lambda x: x[:0],
}

# Where they may differ, and why.
UNLIKE = {
    ("int64", "argsort"): "equal elements keep their order, which NumPy does not promise",
    ("int16", "argsort"): "the same",
    ("uint8", "argsort"): "the same",
    ("bool", "argsort"): "the same",
    ("bool", "angle"): "float64, as all other functions give",
    ("empty", "strides"): "of what has no elements they say nothing",
    ("empty", "polymul"): "no coefficients are no polynomial",
    ("empty", "weights"): "the mean of nothing by weights",
    ("empty", "nanpercentile"): "of nothing",
}


@pytest.mark.parametrize("lazy", ["auto", "always"])
@pytest.mark.parametrize("sweep", SWEEPS)
def test_calls_on_other_operands(sweep: str, lazy: Any) -> None:
    """Wherever NumPy has an answer, it is the same."""
    for text in (*CALLS, *METHODS):
        if any(sweep == one and word in text for one, word in UNLIKE):
            continue
        given = {name: SWEEPS[sweep](x) for name, x in arrays().items()}
        try:
            expected = run(text, given, numpy)
        except Exception:  # no answer
            continue
        try:
            with xt.options(lazy=lazy):
                compare(run(text, on_tensors(given), ours), expected)
        except Exception as error:
            error.add_note(f"in {text} on {sweep}")
            raise


@pytest.mark.parametrize("text", WRITING)
def test_a_write_gives_what_numpy_gives(text: str) -> None:
    """What is written is NumPy's, and pending readers of the old values were served."""
    given, tensors = arrays(), on_tensors(arrays())
    names_ = [name for name in given if re.search(rf"\b{name}\b", text)]
    with xt.options(lazy="always"):
        pending = {name: tensors[name] + 1 for name in names_}
    run(text, given, numpy, exec)
    run(text, tensors, ours, exec)
    before = arrays()
    for name in names_:
        compare(tensors[name], given[name])
        compare(pending[name], before[name] + 1)


def public() -> list[str]:
    """Return every public name of NumPy's main namespace, linalg, fft and random."""
    found = sorted([name for name in numpy.__all__ if name[0] != "_" and name not in names.MODULES])
    return found + [f"{one}.{name}" for one in LIBRARIES for name in getattr(numpy, one).__all__ if name[0] != "_"]


@pytest.mark.parametrize("path", public())
def test_every_public_name_works_or_is_left_out(path: str) -> None:
    """A name is called above, is NumPy's own object, or stands in the list of those left out with its reason."""
    look_up = ours
    if path in names.LEFT_OUT:
        with pytest.raises(AttributeError, match=re.escape(names.LEFT_OUT[path])):
            run(f"np.{path}", {}, ours)
        return
    for part in path.split("."):
        look_up = getattr(look_up, part)
    if names.group(path) == names.OWN:
        theirs: Any = numpy
        for part in path.split("."):
            theirs = getattr(theirs, part)
        assert look_up is theirs or look_up == theirs or theirs != theirs
    else:
        used = "\n".join([*CALLS, *WRITING, *ELSEWHERE])
        assert re.search(rf"np\.{re.escape(path)}\b|random\.{re.escape(path.rpartition('.')[2])}\(", used), path


# Names whose tests are below, as they deal with files, or elsewhere, as they deal with what no tensor holds.
ELSEWHERE = [
    "np.isnat",
    "np.save np.savez np.savez_compressed np.savetxt np.load np.loadtxt np.genfromtxt np.fromfile np.random.seed",
]


def test_files(tmp_path: Any) -> None:
    """What is saved comes back as tensors."""
    x = xt.asarray([[1.0, 2.0], [3.0, 4.0]])
    ours.save(tmp_path / "x.npy", x)
    ours.savetxt(tmp_path / "x.txt", x)
    ours.savez(tmp_path / "x.npz", x=x)
    ours.savez_compressed(tmp_path / "y.npz", x=x)
    (tmp_path / "x.bin").write_bytes(x.tobytes())
    found = [ours.load(tmp_path / "x.npy"), ours.loadtxt(tmp_path / "x.txt"), ours.genfromtxt(tmp_path / "x.txt")]
    found.append(ours.fromfile(tmp_path / "x.bin").reshape(2, 2))
    for one in found:
        compare(one, x.numpy())
    for name in ("x.npz", "y.npz"):
        with numpy.load(tmp_path / name) as archive:
            assert numpy.array_equal(archive["x"], x.numpy())


def test_changes_at_indices() -> None:
    """In place, each index as often as it occurs, whoever else reads or may not write the memory."""
    x = ours.zeros(5)
    view, pending, exported = x[1:], xt.asarray(numpy.ones(100_000)) * 2.0, numpy.asarray(x)
    later, before = pending + 1.0, x * 3.0
    ours.add.at(view, [0, 0, 3], 1.5)
    ours.subtract.at(pending, ours.asarray([7, 7]), ours.asarray([1.0, 2.0]))
    ours.negative.at(x, [1])
    assert x.tolist() == exported.tolist() == [0.0, -3.0, 0.0, 0.0, 1.5]
    assert before.tolist() == [0.0] * 5
    assert (float(pending[7]), float(later[7])) == (-1.0, 3.0)
    for fixed in (ours.broadcast_to(ours.zeros(3), (2, 3)), xt.asarray(numpy.broadcast_to(numpy.zeros(3), (2, 3)))):
        with pytest.raises(ValueError, match="must be writable"):
            ours.add.at(fixed, [0], 1.0)
    with pytest.raises(IndexError):
        ours.add.at(x, [5], 1.0)
    leaf = ours.zeros(3)
    leaf.requires_grad = True
    with pytest.raises(RuntimeError):
        ours.multiply.at(leaf, [0], 2.0)
    assert leaf.tolist() == [0.0] * 3


def test_parts_of_complex_arrays_are_views() -> None:
    z = ours.asarray([1 + 2j, 3 - 4j])
    real, imag = z.real, z.imag
    real[0], imag[:] = 10.0, 5.0
    assert z.tolist() == [10 + 5j, 3 + 5j]
    assert (real.dtype, imag.shape) == (xt.float64, (2,))
    later = real * 2.0
    z[...] = 0.0
    assert later.tolist() == [20.0, 6.0]
    assert float(ours.asarray(1 + 2j).imag) == 2.0


@pytest.mark.parametrize("dtype", ["float64", "int32", "complex64", "bool"])
def test_sorting_in_place(dtype: str) -> None:
    """Who waits for the old elements gets those; views are sorted; wrong axes are refused with nothing changed."""
    a = (numpy.random.default_rng(0).integers(0, 2 if dtype == "bool" else 50, (4, 6))).astype(dtype)
    with xt.options(lazy="always"):
        x = xt.asarray(a, copy=True)
        before = xt.where(xt.asarray(True), x, x)
        assert x.sort() is None
        numpy.testing.assert_array_equal(x.numpy(), numpy.sort(a))
        numpy.testing.assert_array_equal(before.numpy(), a)
    x = xt.asarray(a, copy=True)
    x[1:, ::2].sort(axis=0)
    expected = a.copy()
    expected[1:, ::2].sort(axis=0)
    numpy.testing.assert_array_equal(x.numpy(), expected)
    for axis in (2, -3):
        with pytest.raises(ValueError, match="axis"):
            x.sort(axis)
    numpy.testing.assert_array_equal(x.numpy(), expected)
    x.detach().sort(kind="stable")
    numpy.testing.assert_array_equal(x.numpy(), numpy.sort(expected))
    read_only = xt.asarray(numpy.broadcast_to(a[0], (3, 6)))
    with pytest.raises(ValueError, match="read-only|writ"):
        read_only.sort()


def test_integers_that_no_tensor_holds_are_not_sorted() -> None:
    for sort in (ours.sort, ours.argsort):
        with pytest.raises(OverflowError, match="asarray: obj must"):
            sort([2**70, 1])


def test_numpys_arrays_beside_small_tensors() -> None:
    """They are read as they are: results are tensors, in memory of their own."""
    x, a = xt.asarray([3.0, 1.0, 2.0]), numpy.array([1.0, 5.0, 2.5])
    for function in (numpy.fmax, numpy.heaviside, numpy.fmod, numpy.interp):
        mine = getattr(ours, function.__name__)
        given = (x, numpy.sort(a), a) if function is numpy.interp else (x, a)
        right = function(*[one.numpy() if isinstance(one, xt.Tensor) else one for one in given])
        found = mine(*given)
        assert isinstance(found, xt.Tensor)
        numpy.testing.assert_array_equal(found.numpy(), right)
    sorted_ = ours.sort(a)
    sorted_[0] = -1.0
    assert a[0] == 1.0
    rotation = ours.array([[xt.cos(x[0]), -xt.sin(x[0])], [1.0, x[1]]])
    numpy.testing.assert_array_equal(rotation.numpy(), numpy.array([[numpy.cos(3.0), -numpy.sin(3.0)], [1.0, 1.0]]))
    with pytest.raises(ValueError, match="ragged"):
        ours.array([[x[0], 1.0], [x[1]]])


WAYS_TO_LIE: dict[str, Any] = {
    "packed": lambda a: a.reshape(6, 4),
    "rows": lambda a: a.reshape(6, 4)[2:4],
    "turned": lambda a: a.reshape(6, 4).T,
    "permuted": lambda a: a.reshape(2, 3, 4).transpose(1, 0, 2),
    "backwards": lambda a: a[::-1],
    "both backwards": lambda a: a.reshape(6, 4)[::-1, ::-1],
    "steps": lambda a: a[::2],
    "a column": lambda a: a.reshape(6, 4)[:, 0:1],
    "every other": lambda a: a.reshape(6, 4)[:, ::2],
    "of length one": lambda a: a.reshape(1, 24, 1)[:, 1:5],
    "one": lambda a: a[:1],
    "none": lambda a: a[:0],
}


@pytest.mark.parametrize("lazy", ["auto", "always"])
@pytest.mark.parametrize("order", "CFAK")
@pytest.mark.parametrize("way", WAYS_TO_LIE)
def test_ravel_copies_what_does_not_follow_each_other(way: str, order: str, lazy: str) -> None:
    """What is written to the array afterwards shows where NumPy returns a view, and nowhere else."""
    view = WAYS_TO_LIE[way]
    with xt.options(lazy=lazy):  # type: ignore[arg-type]
        for ravel in (lambda np, x: x.ravel(order), lambda np, x: np.ravel(x, order)):
            theirs, own = numpy.arange(24), xt.asarray(numpy.arange(24), copy=True)
            expected, found = ravel(numpy, view(theirs)), ravel(ours, view(own))
            theirs += 100
            own += 100
            numpy.testing.assert_array_equal(found.numpy(), expected)


def test_ravel_of_what_is_pending() -> None:
    """What is recorded stays so where it will lie in a row, and is a copy where not."""
    with xt.options(lazy="always"):
        x = xt.asarray(numpy.arange(6.0), copy=True) * 2
        row, back = x.ravel(), x[::-1].ravel()
        assert row.is_pending
        x += 1
        assert back.tolist() == [10, 8, 6, 4, 2, 0] and row.tolist() == [1, 3, 5, 7, 9, 11]


def outcome(call: Callable[[Any], Any], module: Any) -> Any:
    """Return what a call gives, as NumPy's arrays, or the class of what it raises."""
    try:
        found = call(module)
    except Exception as error:
        return next(kind for kind in NUMPYS_ERRORS if isinstance(error, kind))
    return [numpy.asarray(one) for one in found] if isinstance(found, (list, tuple)) else numpy.asarray(found)


NUMPYS_ERRORS = (numpy.exceptions.AxisError, IndexError, TypeError, ValueError, RuntimeError)
DATA = [[1.0, 2, 4], [2, 3, 3]]

# Arguments that NumPy refuses, and their neighbours that it takes.
ODD: dict[str, Callable[[Any], Any]] = {
    "clip twice": lambda m: m.clip(m.ones(2), 0, 1, min=-9),
    "clip mixed": lambda m: m.clip(m.ones(2), None, 1, min=0),
    "std twice": lambda m: m.std(m.asarray([1.0, 2]), ddof=1, correction=2),
    "var of correction": lambda m: m.var(m.asarray([1.0, 2]), correction=1),
    **{f"{name} of a float": lambda m, name=name: getattr(m, name)(2.5) for name in ("zeros", "ones", "empty")},
    "full of text": lambda m: m.full("3", 1),
    "zeros of text": lambda m: m.zeros("33"),
    "zeros of an array": lambda m: m.zeros(m.asarray([2, 3])),
    "linspace": lambda m: m.linspace(0, 1, 2.5),
    "linspace of arrays": lambda m: m.linspace(m.asarray([0.0, 1]), 1, 3.0),
    "linspace along": lambda m: m.linspace(0, 1, 3, axis=3),
    "tile": lambda m: m.tile(m.ones(2), 1.9),
    "resize of a float": lambda m: m.resize(m.ones(3), 2.5),
    "resize below 0": lambda m: m.resize(m.ones(3), -1),
    "sort": lambda m: m.sort(m.asarray([2, 1]), kind="bad"),
    "argsort": lambda m: m.argsort(m.asarray([2, 1]), kind="bad"),
    "sort by a word": lambda m: m.sort(m.asarray([2, 1]), kind="mergesort"),
    **{f"zeros in order {o}": lambda m, o=o: m.zeros((2, 3), order=o).strides for o in ("Q", "f", "K", None, "C")},
    **{f"array in order {o}": lambda m, o=o: m.array([[1, 2]] * 2, order=o).strides for o in ("Q", "f", "K", None)},
    **{f"reshape in order {o}": lambda m, o=o: m.asarray(DATA).reshape((3, 2), order=o) for o in ("Q", "K", "f", "A")},
    **{f"ravel in order {o}": lambda m, o=o: m.asarray(DATA).ravel(o) for o in ("Q", "k", "f", "a")},
    **{f"copy in order {o}": lambda m, o=o: m.copy(m.ones((90, 70)), order=o).strides for o in ("Q", "F", "A", "K")},
    "empty_like": lambda m: m.empty_like(m.ones((2, 3)), order="Q"),
    "copy by a word": lambda m: m.array(3.0, copy="x"),
    "choose by floats": lambda m: m.choose(m.zeros(3), [7]),
    "choose by booleans": lambda m: m.choose(m.asarray([True, False]), [1, 2]),
    "take": lambda m: m.take(m.zeros((2, 3)), [0], axis=2),
    **{f"take by {w}": lambda m, w=w: m.take(m.asarray([1, 2]), 1, mode=w) for w in ("bad", "raise", "clip", None)},
    "choose by a word": lambda m: m.choose(m.asarray([0, 1]), [5, 6], mode="bad"),
    "choose into integers": lambda m: m.choose(m.asarray([0, 1]), [5.5, 6], out=m.zeros(2, dtype=int)),
    **{f"rollaxis to {n}": lambda m, n=n: m.rollaxis(m.zeros((1, 2, 3)), 1, n) for n in (-5, -4, -3, -1, 0, 3, 4)},
    **{
        f"{name} as integers": lambda m, name=name: getattr(m, name)(m.asarray([1.5, 2.5]), dtype=int)
        for name in ("nanmean", "nanvar", "nanstd", "nansum", "mean", "var")
    },
    "compress": lambda m: m.compress([True], m.zeros((2, 3)), axis=-3),
    "einsum": lambda m: m.einsum(),
    "array_split": lambda m: m.array_split(m.ones(5), 2.5),
    "split": lambda m: m.split(m.ones(4), 2.0),
    "split at": lambda m: m.split(m.ones(4), m.asarray([1, 2])),
    "piecewise of one mask": lambda m: m.piecewise(m.ones(3), [[True]], [5]),
    "piecewise of a truth": lambda m: m.piecewise(m.ones(3), True, [5]),
    "piecewise of rows": lambda m: m.piecewise(m.ones(2), m.asarray([[True, False], [False, True]]), [5, 7]),
    "setflags": lambda m: m.ones(3).setflags(uic=True),
    "signature": lambda m: m.add(m.ones(2), 1, signature="dd->d"),
    "signature, where": lambda m: m.add(m.ones(2), 1, m.zeros(2), where=m.asarray([True, False]), signature="dd->d"),
    "cov of a cube": lambda m: m.cov(m.zeros((2, 2, 2))),
    "cov, counts below 0": lambda m: m.cov(DATA, fweights=[-1, 2, 3]),
    "cov, weights below 0": lambda m: m.cov(DATA, aweights=[-1, 1, 1]),
    "cov, parts of counts": lambda m: m.cov(DATA, fweights=[1.5, 2, 3]),
    "cov, ddof": lambda m: m.cov(DATA, ddof=1.5),
    "cov, two counts": lambda m: m.cov(DATA, fweights=[1, 2]),
    "cov, rows of counts": lambda m: m.cov(DATA, fweights=[[1, 2, 3]]),
    "cov with weights": lambda m: m.cov(DATA, fweights=[1, 2, 3], aweights=[1, 0.5, 2], ddof=0),
}


@pytest.mark.parametrize("lazy", ["auto", "always"])
@pytest.mark.parametrize("name", ODD)
def test_odd_arguments_are_taken_and_refused_as_numpy_does(name: str, lazy: Any) -> None:
    wanted = outcome(ODD[name], numpy)
    with xt.options(lazy=lazy):
        found = outcome(ODD[name], ours)
    if isinstance(wanted, type):
        assert found is wanted
    else:
        assert not isinstance(found, type), found
        numpy.testing.assert_equal(found, wanted)


@pytest.mark.skipif(numpy.lib.NumpyVersion(numpy.__version__) < "2.4.0", reason="numpy.array has ndmax since 2.4")
@pytest.mark.parametrize("ndmax", [0, 1, 2])
def test_most_axes_of_an_array(ndmax: int) -> None:
    call: Callable[[Any], Any] = lambda m: m.array([[1, 2]], ndmax=ndmax)  # noqa: E731 - which both are given
    wanted, found = outcome(call, numpy), outcome(call, ours)
    assert found is wanted if isinstance(wanted, type) else numpy.array_equal(found, wanted)


RNG = numpy.random.default_rng(3)
ROWS = {
    "half of them infinite": numpy.where(numpy.arange(2001) > 1000, numpy.inf, numpy.arange(2001.0)),
    "infinite at the end": numpy.array([1.0, 2.0, numpy.inf]),
    "infinite at the begin": numpy.array([-numpy.inf, 1.0, 2.0]),
    "alone": numpy.array([-numpy.inf]),
    "with NaN": numpy.array([1.0, numpy.nan, 3.0, numpy.inf]),
    "many float16": RNG.random(40_000).astype(numpy.float16),
    "large float16": numpy.arange(3000).astype(numpy.float16),
    "float32": RNG.random(100_001).astype(numpy.float32),
    "integers": numpy.arange(1000),
}
PARTS: list[Any] = [0, 1, 0.0, 1.0, 0.5, 0.99, 0.333, [0, 1], [0.2, 0.7]]


@pytest.mark.filterwarnings("ignore::RuntimeWarning")
@pytest.mark.parametrize("rows", ROWS)
@pytest.mark.parametrize("mode", ["auto", "always", "gradient", "fused"])
def test_quantiles_of_halves_and_infinities(rows: str, mode: str) -> None:
    """With NumPy's dtypes, and infinities where NumPy's are."""
    native = ROWS[rows]
    calls = [(name, (part,)) for name in ("quantile", "nanquantile") for part in PARTS]
    for name, args in [*calls, ("nanmedian", ()), ("median", ())]:
        x = ours.asarray(native, copy=True)
        call: Callable[[Any], Any] = lambda x, name=name, args=args: getattr(ours, name)(x, *args)  # noqa: E731
        call = xt.fuse(call) if mode == "fused" else call
        if mode == "gradient" and x.dtype.kind == "f":
            x.requires_grad = True
        with xt.options(lazy="always" if mode == "always" else "auto"):
            found = [call(x) for _ in range(1 + 2 * (mode == "fused"))][-1].detach().numpy()
        wanted = numpy.asarray(getattr(numpy, name)(native, *args))
        assert found.dtype == wanted.dtype
        rtol = {2: 2e-3, 4: 1e-6}.get(wanted.itemsize, 1e-12)
        numpy.testing.assert_allclose(found, wanted, rtol=rtol, err_msg=f"{name} {args}")
