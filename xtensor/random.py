"""Random numbers: numpy.random.Generator with tensors as its results.

>>> generator = xt.random.default_rng(0)
>>> generator.normal(size=3, dtype=xt.float32)
Tensor([ 0.12573022, -0.13210486,  0.64042264], dtype=float32)

There is no hidden state: every number comes from a Generator, and the same seed gives NumPy's own stream.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, cast
from weakref import ref

import numpy as np

from .autograd.rules import Rule, xt
from .autograd.tape import OFF, active, recording, remember, step_of, steps_of
from .base.dtypes import REAL_FLOATING, DType, canonical, float16, float32, float64
from .base.errors import expected
from .base.layout import as_axis
from .base.profiling import noting, observers
from .calls.writes import writable
from .devices import Device
from .devices.cpu import CPU
from .storage.storage import Native, refuse_capture, watchers, watching
from .tensor.face import Tensor, face, from_native
from .tensor.operands import DeviceLike, as_tensor, chosen_device, foreign_array
from .tensor.scalars import valued

__all__ = ["Generator", "default_rng"]

Size = int | tuple[int, ...] | None


def default_rng(seed: Any = None, *, device: DeviceLike = None) -> Generator:
    """Return a Generator.

    seed: what numpy.random.default_rng takes (None for a seed from the system), a numpy.random.Generator whose stream
    is continued, or a Generator, which is returned unchanged. device: where tensors are made; None for the `device`
    option. Raises TypeError and ValueError as NumPy does. Source: numpy.random.default_rng.
    """
    if isinstance(seed, Generator):
        return seed
    target = chosen_device(device, "default_rng")
    return Generator(np.random.default_rng(seed), target)


class _Again:
    """Numbers that each call of a captured function draws anew. generator: NumPy's; a call that fails later restores
    its state.
    """

    __slots__ = ("_draw", "generator")

    def __init__(self, generator: Any, draw: Callable[[], Native]) -> None:
        self.generator, self._draw = generator, draw

    def __call__(self) -> Native:
        return self._draw()


class Generator:
    """A source of random numbers.

    Each method draws the same numbers, in the same order, as the method of numpy.random.Generator with its name. It
    takes the same arguments, where parameters may be tensors, and `dtype`. Results are tensors, 0-d if no size is
    given. Gradients reach the parameters of `normal`, `lognormal`, `laplace`, `logistic`, `gumbel`, `uniform` and
    `exponential` (reparameterisation); for the parameters of other methods, and for what is permuted or chosen from,
    going back raises NotImplementedError.

    native: the numpy.random.Generator behind it, for distributions that have no method here.
    device: where its tensors are.
    """

    draws = True  # a captured function draws from this very generator (calls/signature.py)

    def __init__(self, native: np.random.Generator, device: Device) -> None:
        self.native = native
        self.device = device
        capture = watching() if watchers else None
        self._within = None if capture is None else ref(capture)

    def __repr__(self) -> str:
        return f"Generator({type(self.native.bit_generator).__name__}, device={str(self.device)!r})"

    @property
    def state(self) -> Mapping[str, Any]:
        """The state of the stream, as a dict; assign a state that was read before to return to that point."""
        return self.native.bit_generator.state

    @state.setter
    def state(self, state: Mapping[str, Any]) -> None:
        refuse_capture("state")
        self.native.bit_generator.state = state

    def spawn(self, n_children: int) -> list[Generator]:
        """Return `n_children` generators with independent streams of their own: one for each thread, for instance."""
        refuse_capture("spawn")
        return [Generator(child, self.device) for child in self.native.spawn(n_children)]

    # ---- the uniform and the normal distribution

    def random(self, size: Size = None, dtype: Any = None) -> Tensor:
        """Return uniform numbers in [0, 1); float32 ones are drawn in that dtype."""
        if _floating(dtype, "random") == float16:  # of the bits that it has: rounding comes to 1
            wide = self._standard("random", size, float32)
            return cast(Tensor, xt.astype(xt.floor(wide * 2048) / 2048, float16))
        return self._standard("random", size, dtype)

    def uniform(self, low: Any = 0.0, high: Any = 1.0, size: Size = None, dtype: Any = None) -> Tensor:
        """Return uniform numbers in [low, high), drawn in float64 and rounded to the dtype."""
        return self._rounded("uniform", (low, high), size, dtype)

    def standard_normal(self, size: Size = None, dtype: Any = None) -> Tensor:
        """Return normal numbers of mean 0 and standard deviation 1; float32 ones are drawn in that dtype."""
        return self._standard("standard_normal", size, dtype)

    def normal(self, loc: Any = 0.0, scale: Any = 1.0, size: Size = None, dtype: Any = None) -> Tensor:
        """Return normal numbers of mean loc and standard deviation scale, drawn in float64 and rounded to the dtype."""
        return self._rounded("normal", (loc, scale), size, dtype)

    # ---- other distributions

    def standard_exponential(self, size: Size = None, dtype: Any = None) -> Tensor:
        """Return exponentially distributed numbers of mean 1; float32 ones are drawn in that dtype."""
        return self._standard("standard_exponential", size, dtype)

    def exponential(self, scale: Any = 1.0, size: Size = None, dtype: Any = None) -> Tensor:
        """Return exponentially distributed numbers of mean `scale`, drawn in float64 and rounded to the dtype."""
        return self._rounded("exponential", (scale,), size, dtype)

    def gamma(self, shape: Any, scale: Any = 1.0, size: Size = None, dtype: Any = None) -> Tensor:
        """Return gamma distributed numbers of mean shape * scale, drawn in float64 and rounded to the dtype."""
        return self._rounded("gamma", (shape, scale), size, dtype)

    def beta(self, a: Any, b: Any, size: Size = None, dtype: Any = None) -> Tensor:
        """Return beta distributed numbers of mean a / (a + b), drawn in float64 and rounded to the dtype."""
        return self._rounded("beta", (a, b), size, dtype)

    def laplace(self, loc: Any = 0.0, scale: Any = 1.0, size: Size = None, dtype: Any = None) -> Tensor:
        """Return double exponential numbers around loc, drawn in float64 and rounded to the dtype."""
        return self._rounded("laplace", (loc, scale), size, dtype)

    def logistic(self, loc: Any = 0.0, scale: Any = 1.0, size: Size = None, dtype: Any = None) -> Tensor:
        """Return logistically distributed numbers around loc, drawn in float64 and rounded to the dtype."""
        return self._rounded("logistic", (loc, scale), size, dtype)

    def gumbel(self, loc: Any = 0.0, scale: Any = 1.0, size: Size = None, dtype: Any = None) -> Tensor:
        """Return numbers from Gumbel's distribution of largest values, drawn in float64 and rounded to the dtype."""
        return self._rounded("gumbel", (loc, scale), size, dtype)

    def lognormal(self, mean: Any = 0.0, sigma: Any = 1.0, size: Size = None, dtype: Any = None) -> Tensor:
        """Return numbers whose logarithms are normal, drawn in float64 and rounded to the dtype."""
        return self._rounded("lognormal", (mean, sigma), size, dtype)

    def triangular(self, left: Any, mode: Any, right: Any, size: Size = None, dtype: Any = None) -> Tensor:
        """Return numbers between left and right, most of them near mode, drawn in float64 and rounded to the dtype."""
        return self._rounded("triangular", (left, mode, right), size, dtype)

    def standard_t(self, df: Any, size: Size = None, dtype: Any = None) -> Tensor:
        """Return numbers from Student's distribution with df degrees of freedom, rounded to the dtype."""
        return self._rounded("standard_t", (df,), size, dtype)

    def chisquare(self, df: Any, size: Size = None, dtype: Any = None) -> Tensor:
        """Return sums of the squares of df normal numbers, drawn in float64 and rounded to the dtype."""
        return self._rounded("chisquare", (df,), size, dtype)

    def dirichlet(self, alpha: Any, size: Size = None, dtype: Any = None) -> Tensor:
        """Return vectors (..., k) that sum to 1, for weights alpha (k,), drawn in float64 and rounded to the dtype."""
        return self._rounded("dirichlet", (alpha,), size, dtype)

    def multivariate_normal(self, mean: Any, cov: Any, size: Size = None, dtype: Any = None) -> Tensor:
        """Return normal vectors (..., k) of mean (k,) and covariance (k, k), rounded to the dtype."""
        return self._rounded("multivariate_normal", (mean, cov), size, dtype)

    def multinomial(self, n: Any, pvals: Any, size: Size = None, dtype: Any = None) -> Tensor:
        """Return how many of n trials have each outcome (..., k) of probabilities pvals, as int64 or another dtype."""
        return self._counted("multinomial", (n, pvals), size, dtype)

    def geometric(self, p: Any, size: Size = None, dtype: Any = None) -> Tensor:
        """Return the number of the first trial that succeeds, with probability p each, as int64 or another dtype."""
        return self._counted("geometric", (p,), size, dtype)

    def poisson(self, lam: Any = 1.0, size: Size = None, dtype: Any = None) -> Tensor:
        """Return Poisson distributed counts of mean lam, as int64 or another dtype."""
        return self._counted("poisson", (lam,), size, dtype)

    def binomial(self, n: Any, p: Any, size: Size = None, dtype: Any = None) -> Tensor:
        """Return how many of n trials succeed, with probability p each, as int64 or another dtype."""
        return self._counted("binomial", (n, p), size, dtype)

    def standard_gamma(self, shape: Any, size: Size = None, dtype: Any = None) -> Tensor:
        """Return gamma distributed numbers of scale 1; float32 ones are drawn in that dtype."""
        wanted, given = _floating(dtype, "standard_gamma"), _plain(shape)
        own: Any = np.float32 if wanted == float32 else np.float64
        found = self._drawn(lambda: self.native.standard_gamma(given, size, own), wanted)
        return _with_gradient(found, "standard_gamma", (shape,))

    def standard_cauchy(self, size: Size = None, dtype: Any = None) -> Tensor:
        """Return numbers from Cauchy's distribution, rounded to the dtype."""
        return self._rounded("standard_cauchy", (), size, dtype)

    def rayleigh(self, scale: Any = 1.0, size: Size = None, dtype: Any = None) -> Tensor:
        """Return lengths of vectors of two normal numbers of standard deviation `scale`, rounded to the dtype."""
        return self._rounded("rayleigh", (scale,), size, dtype)

    def weibull(self, a: Any, size: Size = None, dtype: Any = None) -> Tensor:
        """Return numbers from Weibull's distribution with shape a, rounded to the dtype."""
        return self._rounded("weibull", (a,), size, dtype)

    def pareto(self, a: Any, size: Size = None, dtype: Any = None) -> Tensor:
        """Return numbers from the second Pareto distribution with shape a, rounded to the dtype."""
        return self._rounded("pareto", (a,), size, dtype)

    def power(self, a: Any, size: Size = None, dtype: Any = None) -> Tensor:
        """Return numbers in [0, 1] whose density grows as x ** (a - 1), rounded to the dtype."""
        return self._rounded("power", (a,), size, dtype)

    def wald(self, mean: Any, scale: Any, size: Size = None, dtype: Any = None) -> Tensor:
        """Return numbers from the inverse normal distribution, rounded to the dtype."""
        return self._rounded("wald", (mean, scale), size, dtype)

    def vonmises(self, mu: Any, kappa: Any, size: Size = None, dtype: Any = None) -> Tensor:
        """Return angles in [-pi, pi] around mu, rounded to the dtype."""
        return self._rounded("vonmises", (mu, kappa), size, dtype)

    def f(self, dfnum: Any, dfden: Any, size: Size = None, dtype: Any = None) -> Tensor:
        """Return ratios of two mean squares of normal numbers (the F distribution), rounded to the dtype."""
        return self._rounded("f", (dfnum, dfden), size, dtype)

    def noncentral_chisquare(self, df: Any, nonc: Any, size: Size = None, dtype: Any = None) -> Tensor:
        """Return sums of the squares of df normal numbers whose means are not 0, rounded to the dtype."""
        return self._rounded("noncentral_chisquare", (df, nonc), size, dtype)

    def negative_binomial(self, n: Any, p: Any, size: Size = None, dtype: Any = None) -> Tensor:
        """Return how many trials fail before n have succeeded, with probability p each, as int64 or another dtype."""
        return self._counted("negative_binomial", (n, p), size, dtype)

    def hypergeometric(self, ngood: Any, nbad: Any, nsample: Any, size: Size = None, dtype: Any = None) -> Tensor:
        """Return how many of nsample items drawn from two kinds are of the first kind, as int64 or another dtype."""
        return self._counted("hypergeometric", (ngood, nbad, nsample), size, dtype)

    def zipf(self, a: Any, size: Size = None, dtype: Any = None) -> Tensor:
        """Return ranks that occur with frequencies rank ** -a, as int64 or another dtype."""
        return self._counted("zipf", (a,), size, dtype)

    def logseries(self, p: Any, size: Size = None, dtype: Any = None) -> Tensor:
        """Return counts from the logarithmic series distribution, as int64 or another dtype."""
        return self._counted("logseries", (p,), size, dtype)

    def bernoulli(self, p: Any = 0.5, size: Size = None, dtype: Any = None) -> Tensor:
        """Return True with probability p, as booleans or another dtype: where random() is below p.

        Without a size the result has p's shape. Raises ValueError for p outside [0, 1].
        """
        chance = np.asarray(_plain(p))
        if not np.all((chance >= 0) & (chance <= 1)):
            raise ValueError(expected("bernoulli", "p", "be between 0 and 1", p))
        shape = chance.shape if size is None else size
        found = self._drawn(lambda: self.native.random(shape) < chance, _numeric(dtype, "bernoulli"))
        return _with_gradient(found, "bernoulli", (p,))

    # ---- integers, choices and permutations

    def integers(
        self, low: Any, high: Any = None, size: Size = None, dtype: Any = None, endpoint: bool = False
    ) -> Tensor:
        """Return integers from low up to high, excluded unless `endpoint`; from 0 up to low if high is None.

        dtype: an integer dtype or bool, in which they are drawn; None for int64.
        """
        wanted = np.dtype(np.int64) if dtype is None else canonical(dtype, "integers")
        if wanted.kind not in "iub":
            raise TypeError(expected("integers", "dtype", "be integer or bool", wanted))
        bounds = _plain(low), None if high is None else _plain(high)
        found: Tensor = self._drawn(lambda: self.native.integers(*bounds, size, wanted.type, endpoint), wanted)
        return found

    def choice(
        self, a: Any, size: Size = None, replace: bool = True, p: Any = None, axis: int = 0, shuffle: bool = True
    ) -> Tensor:
        """Return elements of a along an axis, or of range(a), drawn with probabilities p, or equally likely if None."""
        chosen, weights = _plain(a), None if p is None else _plain(p)
        found = self._drawn(lambda: self.native.choice(chosen, size, replace, weights, axis, shuffle))
        return _with_gradient(found, "choice", (a, p))

    def permutation(self, x: Any, axis: int = 0) -> Tensor:
        """Return x, or range(x), with the slices along an axis in random order, as a copy."""
        given = _plain(x)
        return _with_gradient(self._drawn(lambda: self.native.permutation(given, axis)), "permutation", (x,))

    def permuted(self, x: Any, axis: int | None = None) -> Tensor:
        """Return a copy of x in which the elements of each slice along an axis are in a random order of their own."""
        given = _plain(x)
        return _with_gradient(self._drawn(lambda: self.native.permuted(given, axis=axis)), "permuted", (x,))

    def shuffle(self, x: Any, axis: int = 0) -> None:
        """Put the slices of x along an axis in random order, in place; x may also be a NumPy array or a list.

        Raises TypeError for anything else.
        """
        if isinstance(x, (np.ndarray, list)):
            refuse_capture("shuffle")
            given: Any = x
            self.native.shuffle(given, axis)
            return
        if not isinstance(x, Tensor):
            raise TypeError(expected("shuffle", "x", "be a tensor, a NumPy array or a list", type(x).__name__))
        axis = as_axis(axis, x.ndim, "shuffle")
        if active[0] and steps_of((x,)) is not None:
            raise RuntimeError(expected("shuffle", "x", "have no gradient (use permutation)", "one that has"))
        native = writable(x, "shuffle")
        if x.device == "cpu":
            self.native.shuffle(native, axis)
            return
        host = np.array(x.device.backend.host(native))
        self.native.shuffle(host, axis)
        x.device.backend.assign(native, ..., x.device.backend.asarray(host))

    def _standard(self, name: str, size: Size, dtype: Any) -> Tensor:
        """Return numbers of a distribution without parameters, drawn in the dtype asked for."""
        wanted = _floating(dtype, name)
        own: Any = np.float32 if wanted == float32 else np.float64
        found: Tensor = self._drawn(lambda: getattr(self.native, name)(size, own), wanted)
        return found

    def _rounded(self, name: str, parameters: tuple[Any, ...], size: Size, dtype: Any) -> Tensor:
        """Return numbers of a distribution with parameters, drawn in float64 and rounded to the dtype asked for."""
        wanted = _floating(dtype, name)
        given = [_plain(one) for one in parameters]
        found = self._drawn(lambda: getattr(self.native, name)(*given, size), wanted, is_cast=dtype is not None)
        return _with_gradient(found, name, parameters)

    def _counted(self, name: str, parameters: tuple[Any, ...], size: Size, dtype: Any) -> Tensor:
        """Return counts of a distribution with parameters, as int64 or another dtype."""
        given = [_plain(one) for one in parameters]
        wanted = _numeric(dtype, name)
        found = self._drawn(lambda: getattr(self.native, name)(*given, size), wanted, is_cast=dtype is not None)
        return _with_gradient(found, name, parameters)

    def _drawn(self, draw: Callable[[], Any], dtype: DType | None = None, *, is_cast: bool = False) -> Any:
        """Return numbers that are drawn now as a tensor of a dtype; is_cast: whether the user asked for that dtype."""

        def native(found: Any) -> Native:
            a = np.asarray(found)
            return a if dtype is None else a.astype(dtype, copy=False)

        capture = watching() if watchers else None
        found = (noting(draw, CPU, "random") if observers else draw)()
        if not is_cast and self._keeps(found):
            refuse_capture("random")
            return found
        if capture is None or (self._within is not None and self._within() is capture):
            # a generator made by a function begins anew in each call of it
            return valued(from_native(native(found), self.device))
        again = _Again(self.native, lambda: native(draw()))
        return valued(face(capture.drawn(again, native(found), self.device)))

    def _keeps(self, found: Any) -> bool:
        """Return whether drawn numbers are returned as they are. Methods here return tensors, but generators under
        NumPy's names return single Python numbers.
        """
        return False


# The derivatives of numbers drawn from a location-scale family by each parameter (reparameterisation).
_SLOPES: dict[str, Callable[..., tuple[Any, ...]]] = {
    "exponential": lambda drawn, scale: (drawn / scale,),
    **dict.fromkeys(
        ("normal", "laplace", "logistic", "gumbel"), lambda drawn, loc, scale: (1.0, (drawn - loc) / scale)
    ),
    "lognormal": lambda drawn, mean, sigma: (drawn, drawn * (xt.log(drawn) - mean) / sigma),
    "uniform": lambda drawn, low, high: ((high - drawn) / (high - low), (drawn - low) / (high - low)),
}


def _with_gradient(drawn: Tensor, name: str, parameters: tuple[Any, ...]) -> Tensor:
    """Return drawn numbers with their derivatives by parameters that have gradients; if no derivative is known, going
    back raises an error that says so.
    """
    tensors = tuple([x for x in parameters if type(x) is Tensor])
    steps = steps_of(tensors) if active[0] and tensors else None
    if steps is None:
        return drawn
    if type(drawn) is not Tensor:
        drawn = as_tensor(drawn, name, "what is drawn")
    if drawn.dtype.kind not in "fc":
        return drawn
    if name not in _SLOPES:
        remember(Rule(name, {}), (("x", None),) * len(steps), steps, drawn)
        return drawn
    with recording(OFF):
        fixed = [xt.positive(x) if type(x) is Tensor else x for x in parameters]
        slopes = [_finite(slope) for slope in _SLOPES[name](drawn, *fixed)]
    for x, value, slope in zip(parameters, fixed, slopes, strict=True):
        if type(x) is Tensor and step_of(x) is not None:  # adds zero, with the derivative
            drawn = drawn + xt.astype(slope * (x - value), drawn.dtype)
    return drawn


def _finite(slope: Any) -> Any:
    """Return a derivative with the values that a scale of 0 made infinite or NaN replaced by 0."""
    return xt.where(xt.isfinite(slope), slope, 0.0) if type(slope) is Tensor else slope


def _plain(x: Any) -> Any:
    """Return a parameter as a number or array for NumPy."""
    if isinstance(x, (int, float)):
        return x
    foreign = None if isinstance(x, Tensor) else foreign_array(x)
    return as_tensor(x if foreign is None else foreign, "random", "a parameter").host()


def _floating(dtype: Any, function: str) -> DType:
    wanted = np.dtype(float64) if dtype is None else canonical(dtype, function)
    REAL_FLOATING.check(wanted, function, "dtype")
    return wanted


def _numeric(dtype: Any, function: str) -> DType | None:
    return None if dtype is None else canonical(dtype, function)


def __dir__() -> list[str]:
    return __all__
