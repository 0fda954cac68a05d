"""Special functions: formulas against mpmath, the library's against SciPy itself, names, dtypes, errors and gradients.

Gradients of each function, of both orders, are tested by tests/samples/special.py.
"""

from __future__ import annotations

import math
import os
import subprocess
import sys
from collections.abc import Callable
from inspect import signature
from pathlib import Path
from typing import Any

import mpmath
import numpy as np
import pytest

import xtensor as xt
from tests.samples import samples
from xtensor import special
from xtensor.special import names

scipy_special = pytest.importorskip("scipy.special", reason="SciPy is not installed")

ROOT = Path(__file__).resolve().parent.parent
INF, NAN = math.inf, math.nan

WRITTEN = names.written()
GROUPS = names.groups()
LIBRARY = sorted(name for name in WRITTEN if GROUPS[name][0] == names.LIBRARY)
OTHERS = sorted(name for name in GROUPS if name not in WRITTEN)


# ---- formulas, against mpmath


def entropy(x: Any) -> Any:
    return -x * mpmath.log(x)


def relative_entropy(x: Any, y: Any) -> Any:
    return x * mpmath.log(x / y)


def huber(delta: Any, r: Any) -> Any:
    return r * r / 2 if abs(r) <= delta else delta * (abs(r) - delta / 2)


# What is true, the arguments' ends as powers of ten or as they are, and the bound in units in the last place.
TRUTH: dict[str, tuple[Callable[..., Any], list[tuple[float, float]], float]] = {
    "cosm1": (lambda x: mpmath.cos(x) - 1, [(-3.0, 3.0)], 4),
    "entr": (entropy, [(1e-300, 1e300)], 4),
    "exp10": (lambda x: mpmath.mpf(10) ** x, [(-300.0, 300.0)], 2),
    "exp2": (lambda x: mpmath.mpf(2) ** x, [(-1000.0, 1000.0)], 2),
    "expit": (lambda x: 1 / (1 + mpmath.exp(-x)), [(-700.0, 700.0)], 4),
    "exprel": (lambda x: mpmath.expm1(x) / x, [(-700.0, 700.0)], 4),
    "huber": (huber, [(0.1, 10.0), (-10.0, 10.0)], 4),
    "log_expit": (lambda x: -mpmath.log1p(mpmath.exp(-x)), [(-700.0, 700.0)], 4),
    "logit": (lambda x: mpmath.log(x / (1 - x)), [(1e-6, 1.0)], 4),
    "pseudo_huber": (lambda d, r: d * d * (mpmath.sqrt(1 + (r / d) ** 2) - 1), [(0.1, 10.0), (-10.0, 10.0)], 8),
    "rel_entr": (relative_entropy, [(0.1, 10.0), (0.1, 10.0)], 8),
    "sinc": (lambda x: mpmath.sinc(mpmath.pi * x), [(-30.0, 30.0)], 8),
    "softplus": (lambda x: mpmath.log1p(mpmath.exp(x)), [(-700.0, 700.0)], 4),
    "xlog1py": (lambda x, y: x * mpmath.log1p(y), [(-10.0, 10.0), (-0.9, 10.0)], 4),
    "xlogy": (lambda x, y: x * mpmath.log(y), [(-10.0, 10.0), (0.1, 10.0)], 4),
}


def points(ends: tuple[float, float], dtype: str, seed: int) -> Any:
    """Return numbers between two ends, spread by magnitude where both are positive, else some about 0."""
    random = np.random.default_rng(seed)
    low, high = ends
    if dtype == "float32":
        low, high = np.clip([low, high], 1e-37 if low > 0 else -80.0, 1e37 if low > 0 else 80.0)
    if low > 0:
        return np.exp(random.uniform(np.log(low), np.log(high), 400)).astype(dtype)
    wide, narrow = random.uniform(low, high, 300), random.uniform(-1, 1, 100) * 1e-3
    return np.concatenate([wide, narrow]).astype(dtype)


def ulps(found: Any, true: Any) -> float:
    """Return how far a number is from the truth, in units in the last place of it."""
    last = mpmath.mpf(float(np.spacing(np.abs(found.dtype.type(float(true))))))
    return float(abs(mpmath.mpf(float(found)) - true) / last)


@pytest.mark.parametrize("name", TRUTH)
@pytest.mark.parametrize("dtype", ["float64", "float32"])
@pytest.mark.parametrize("engine", ["direct", "interpret", "llvm"])
def test_accuracy_of_formulas(name: str, dtype: str, engine: Any) -> None:
    """Within the bound everywhere, computed by NumPy's functions and by generated code."""
    if engine == "llvm":
        pytest.importorskip("llvmlite")
    truth, ends, bound = TRUTH[name]
    arguments = [points(one, dtype, seed) for seed, one in enumerate(ends)]
    with xt.options(lazy="never" if engine == "direct" else "always", engine=engine):
        found = getattr(special, name)(*[xt.asarray(a, copy=True) for a in arguments]).numpy()
    assert found.dtype == dtype
    with mpmath.workdps(50):
        for value, *given in zip(found, *arguments, strict=True):
            true = truth(*[mpmath.mpf(float(one)) for one in given])
            if np.finfo(dtype).smallest_normal < abs(true) < np.finfo(dtype).max:
                assert ulps(value, true) <= bound, f"{name}({given}) = {value!r}, not {mpmath.nstr(true, 20)}"


def test_accuracy_of_kl_div() -> None:
    """As near as the last places of the arguments, as its docstring says."""
    x, y = points((0.1, 10.0), "float64", 0), points((0.1, 10.0), "float64", 1)
    for a, b in ((x, y), (x, x * (1 + 1e-9))):
        found = special.kl_div(xt.asarray(a), xt.asarray(b)).numpy()
        for value, one, other in zip(found, a, b, strict=True):
            true = relative_entropy(mpmath.mpf(one), mpmath.mpf(other)) - one + other
            assert abs(value - true) <= 4 * np.spacing(max(one, other, abs(float(true))))


EDGES = np.array([0.0, -0.0, 0.5, 1.0, -1.0, 2.0, 1e-300, 1e300, -1e300, 5e-324, INF, -INF, NAN])
SMOOTH = ["exp10", "exp2", "expit", "exprel", "log_expit", "logit", "softplus", "entr", "huber", "rel_entr", "kl_div"]


@pytest.mark.parametrize("name", [*SMOOTH, "xlogy", "xlog1py", "pseudo_huber"])
def test_special_values_of_formulas(name: str) -> None:
    """Zeros, infinities, NaN and the ends of the range give what they give in SciPy."""
    grid = [EDGES] if len(signature(getattr(special, name)).parameters) == 1 else [EDGES[:, None], EDGES]
    with np.errstate(all="ignore"):
        theirs = getattr(scipy_special, name)(*grid)
    ours = getattr(special, name)(*map(xt.asarray, grid)).numpy()
    if name in ("pseudo_huber", "kl_div"):  # SciPy's quotients overflow on the way
        keep = (np.isfinite(theirs) | ~np.isfinite(ours)) & ~(np.isnan(theirs) & np.isinf(ours))  # squares underflow
        ours, theirs = ours[keep], theirs[keep]
    np.testing.assert_allclose(ours, theirs, rtol=1e-13, atol=0)


def test_sinc_is_zero_at_integers() -> None:
    """Exactly, which sin(pi x) / (pi x) is not; it vanishes at infinity."""
    assert special.sinc(xt.asarray([1.0, -2.0, 12345678.0, INF])).tolist() == [0.0, 0.0, 0.0, 0.0]


def test_formulas_are_recorded() -> None:
    """They wait and fuse with what stands around them."""
    x = xt.linspace(0.1, 0.9, 100_000)
    for name in ("expit", "logit", "entr", "sinc", "erf"):
        y = getattr(special, name)(x) * 2.0
        assert y.is_pending
        np.testing.assert_allclose(y.numpy(), 2.0 * getattr(scipy_special, name)(x.numpy()), rtol=1e-12, atol=1e-15)


# ---- sums of exponentials


@pytest.mark.parametrize("axis", [None, 0, -1, (0, 1)])
@pytest.mark.parametrize("keepdims", [False, True])
def test_logsumexp(axis: Any, keepdims: bool) -> None:
    """With factors and signs as SciPy has it; factors of 0 count nothing, not even an infinity."""
    random = np.random.default_rng(0)
    a, b = random.normal(size=(3, 4)), random.normal(size=(3, 4))
    a[0, 0], b[0, 0], a[1, 2] = INF, 0.0, 900.0
    ours = special.logsumexp(xt.asarray(a), axis, b=xt.asarray(b), keepdims=keepdims, return_sign=True)
    theirs = scipy_special.logsumexp(a, axis, b=b, keepdims=keepdims, return_sign=True)
    for one, other in zip(ours, theirs, strict=True):
        np.testing.assert_allclose(one.numpy(), other, rtol=1e-13)
    with np.errstate(invalid="ignore"):
        theirs = scipy_special.logsumexp(a, axis, b=b, keepdims=keepdims)
    ours = special.logsumexp(xt.asarray(a), axis, b=b, keepdims=keepdims)
    np.testing.assert_allclose(ours.numpy(), theirs, rtol=1e-13)


def test_logsumexp_without_factors() -> None:
    """The sign is 1, and 0 where the sum is."""
    a = np.array([[0.0, 1.0], [-INF, -INF]])
    value, sign = special.logsumexp(xt.asarray(a), axis=1, return_sign=True)
    np.testing.assert_allclose(value.numpy(), [math.log(1 + math.e), -INF])
    assert sign.tolist() == [1.0, 0.0]
    assert special.logsumexp([1, 1]).dtype == xt.float64


def test_softmax_over_all_axes() -> None:
    """As in SciPy that is the default; integers count as float64."""
    a = np.array([[1, 2], [3, 4]])
    for name in ("softmax", "log_softmax"):
        np.testing.assert_allclose(
            getattr(special, name)(xt.asarray(a)).numpy(), getattr(scipy_special, name)(a), rtol=1e-14
        )


# ---- SciPy's own functions


def arguments_for(name: str, dtype: str) -> list[Any]:
    """Return arrays at which a function of SciPy has values; those that must be whole numbers are."""
    count = len(signature(WRITTEN[name]).parameters)
    random = np.random.default_rng(1)
    found = [random.uniform(0.05, 0.95, (3, 4)).astype(dtype) for _ in range(count)]
    if name in ("expn", "pdtr"):
        found[0] = random.integers(1, 4, (3, 4)).astype(dtype)
    return found


@pytest.mark.parametrize("name", [name for name in LIBRARY if name not in ("polygamma", "zeta", "multigammaln")])
@pytest.mark.parametrize("dtype", ["float64", "float32"])
def test_library(name: str, dtype: str) -> None:
    """SciPy's bits, in its dtype; a Python number takes on the dtype of the array beside it."""
    arguments = arguments_for(name, dtype)
    ours, theirs = getattr(special, name)(*map(xt.asarray, arguments)), getattr(scipy_special, name)(*arguments)
    assert ours.dtype == theirs.dtype == dtype
    np.testing.assert_array_equal(ours.numpy(), theirs)
    if len(arguments) > 1:
        mixed = getattr(special, name)(1, *map(xt.asarray, arguments[1:]))
        assert mixed.dtype == dtype
        ones = np.ones((3, 4), dtype)
        np.testing.assert_array_equal(mixed.numpy(), getattr(scipy_special, name)(ones, *arguments[1:]))


def test_functions_of_an_order_or_a_dimension() -> None:
    """polygamma, zeta and multigammaln, which are no universal functions in SciPy."""
    x = np.array([0.5, 1.0, 3.5])
    for n in (0, 1, 4):
        np.testing.assert_allclose(special.polygamma(n, x).numpy(), scipy_special.polygamma(n, x), rtol=1e-14)
    np.testing.assert_array_equal(special.zeta(2.5, xt.asarray(x)).numpy(), scipy_special.zeta(2.5, x))
    np.testing.assert_array_equal(special.zeta(xt.asarray([-1.0, 2.0])).numpy(), scipy_special.zeta([-1.0, 2.0]))
    np.testing.assert_allclose(special.multigammaln(x + 1, 3).numpy(), scipy_special.multigammaln(x + 1, 3), rtol=1e-14)
    with pytest.raises(ValueError, match="^multigammaln: d must be a positive integer, got 1.5$"):
        special.multigammaln(xt.ones(2), 1.5)


@pytest.mark.parametrize("name", OTHERS)
def test_every_other_function(name: str) -> None:
    """SciPy's universal functions that are not written here are called as they are, several results included."""
    native = getattr(scipy_special, name)
    native = getattr(native, "__wrapped__", native)
    loops = [one.partition("->")[0] for one in native.types]
    loop = next((one for one in loops if set(one) & set("lp")), "d" * native.nin)  # with whole numbers, if there is one
    arguments = [np.array([1, 2]) if one in "lp" else np.array([0.3, 0.6]) for one in loop]
    with np.errstate(all="ignore"):
        theirs = native(*arguments)
    ours = getattr(special, name)(*map(xt.asarray, arguments))
    several = theirs if isinstance(theirs, tuple) else (theirs,)
    for one, other in zip(ours if isinstance(ours, tuple) else (ours,), several, strict=True):
        assert isinstance(one, xt.Tensor) and one.dtype == other.dtype
        np.testing.assert_array_equal(one.numpy(), other)


# ---- names


def test_every_name_that_scipy_dispatches_is_there() -> None:
    """SciPy asks a namespace's `special` for these."""
    from scipy.special import _support_alternative_backends as dispatch

    assert [name for name in dispatch.__all__ if not hasattr(special, name)] == []


def test_every_universal_function_of_scipy_is_there() -> None:
    """By its name, with its own parameters' number."""
    universal = {name for name in dir(scipy_special) if isinstance(getattr(scipy_special, name), np.ufunc)}
    assert universal <= set(dir(special))
    for name in universal & set(WRITTEN):
        if name != "round":
            assert len(signature(WRITTEN[name]).parameters) == getattr(scipy_special, name).nin, name


def test_every_function_has_a_sample() -> None:
    """Gradients of all that have one are tested."""
    sampled = {sample.function.removeprefix("special.") for sample in samples()}
    assert {name for name, (_, gradient) in GROUPS.items() if gradient == names.WITH} - sampled == set()


def test_arguments_without_a_derivative() -> None:
    """The table names them: those by which going back raises."""
    assert names.constants("gammainc") == ["a"] and names.constants("betainc") == ["a", "b"]
    assert names.constants("gammaln") == names.constants("logit") == names.constants("sici") == []


def test_unknown_names() -> None:
    """They raise AttributeError, as in any module, SciPy's functions of another kind included."""
    for name in ("gama", "roots_legendre", "_ufuncs"):
        with pytest.raises(AttributeError, match=f"module 'xtensor.special' has no attribute '{name}'"):
            getattr(special, name)


def test_it_is_loaded_when_asked_for() -> None:
    """`import xtensor` loads neither it nor SciPy, and it loads SciPy when a function needs it."""
    code = """
import sys, xtensor as xt
assert not {"xtensor.special", "scipy"} & set(sys.modules)
assert float(xt.special.expit(0.0)) == 0.5 and "scipy" not in sys.modules
assert float(xt.special.gamma(5.0)) == 24.0 and "scipy" in sys.modules"""
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


def test_without_scipy() -> None:
    """Formulas work; the others say what to install."""
    code = """
import sys
sys.modules["scipy"] = None
import xtensor as xt
assert float(xt.special.logit(0.5)) == 0.0 and "logit" in dir(xt.special)
try:
    xt.special.gamma(5.0)
except ImportError as error:
    print(error)"""
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert "gamma: SciPy must be installed (pip install 'xtensor[special]')" in done.stdout


# ---- dtypes and errors


def test_dtypes() -> None:
    """Integers and booleans count as float64; complex numbers go where SciPy takes them."""
    for dtype in (xt.int8, xt.uint64, xt.bool):
        x = xt.ones(2, dtype=dtype)
        assert special.expit(x).dtype == special.gammaln(x).dtype == xt.float64
    z = np.array([0.5 + 1j, 2.0 - 3j])
    np.testing.assert_allclose(special.loggamma(xt.asarray(z)).numpy(), scipy_special.loggamma(z), rtol=1e-14)
    np.testing.assert_allclose(special.xlogy(z, 2.0).numpy(), scipy_special.xlogy(z, 2.0), rtol=1e-14)
    np.testing.assert_allclose(special.wofz(xt.asarray(z)).numpy(), scipy_special.wofz(z), rtol=1e-14)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda z: special.expit(z), "expit: x must be real floating, got complex128"),
        (lambda z: special.gammaln(z), "gammaln: x must be real floating, got complex128"),
        (lambda z: special.gammainc(1.0, z), "gammainc: x must be real floating, got complex128"),
        (lambda z: special.gammainc(1.0, 1j), "gammainc: x must be real floating, got 1j"),
        (lambda z: special.bdtr(z, 1, 0.5), "bdtr: the arguments must be real, got complex128"),
        (lambda z: special.gammaln("a"), "gammaln: x must be an array or a scalar, got str"),
        (lambda z: special.gammainc(1.0), "gammainc: the arguments must be a, x, got 1 of them"),
    ],
)
def test_refused_arguments(call: Callable[[Any], Any], message: str) -> None:
    """Function, argument, what it must be and what it is."""
    with pytest.raises(TypeError) as raised:
        call(xt.ones(2, dtype=xt.complex128))
    assert str(raised.value) == message


def test_shapes_that_do_not_broadcast() -> None:
    with pytest.raises(ValueError, match="^gammainc: "):
        special.gammainc(xt.ones(2), xt.ones(3))
    with pytest.raises(ValueError, match="broadcast"):
        special.xlogy(xt.ones(2), xt.ones(3))


# ---- gradients that are not known


@pytest.mark.parametrize(
    ("name", "call", "argument"),
    [
        ("gammainc", lambda x: special.gammainc(x, x), "a"),
        ("gammainc", lambda x: special.gammainc(x, 0.5), "a"),
        ("zeta", lambda x: special.zeta(x), "x"),
        ("polygamma", lambda x: special.polygamma(x, 2.0), "n"),
        ("polygamma", lambda x: special.polygamma(x, x), "n"),
        ("jv", lambda x: special.jv(x, x), "v"),
        ("struve", lambda x: special.struve(0.5, x), "its arguments"),
        ("sici", lambda x: special.sici(x)[1], "its arguments"),
    ],
)
def test_a_missing_derivative_is_named(name: str, call: Callable[[Any], Any], argument: str) -> None:
    """No silent zero, also where another argument has a derivative or there are several results."""
    x = xt.asarray([1.5, 2.5], requires_grad=True)
    with pytest.raises(NotImplementedError, match=f"^{name}: no derivative with respect to {argument} is known$"):
        xt.sum(call(x)).backward()


# Functions whose derivatives are quotients that lose digits near some points, mpmath's, and points there and elsewhere.
SINGULAR: dict[str, tuple[Callable[[Any], Any], list[float]]] = {
    "ellipk": (mpmath.ellipk, [0.0, 1e-16, -1e-9, 1e-4, 0.24, 0.26, -0.3, 0.9]),
    "ellipe": (mpmath.ellipe, [0.0, 1e-16, -1e-9, 1e-4, 0.24, 0.26, -0.3, 0.9]),
    "i1": (lambda x: mpmath.besseli(1, x), [0.0, 1e-12, -1e-9, 0.5, 1.9, 2.1]),
    "j1": (lambda x: mpmath.besselj(1, x), [0.0, 1e-12, -1e-9, 0.5, 1.9, 2.1]),
    "spence": (lambda z: mpmath.polylog(2, 1 - z), [1.0, 1 + 1e-9, 1 - 1e-7, 0.7, 1.2, 1.3, 5.0]),
    "rgamma": (mpmath.rgamma, [0.0, -1.0, -3.0, 1e-9, 0.3, 0.5, 2.5, -1.5, -20.5]),
    "exprel": (lambda x: mpmath.expm1(x) / x if x else mpmath.mpf(1), [1e-3, 1.1, -1.1, 7.9, 8.1, 700.0, 711.0, -1e3]),
    "erfcx": (lambda x: mpmath.exp(x * x) * mpmath.erfc(x), [0.0, 3.0, 7.9, 8.1, 20.0]),
    "dawsn": (lambda x: mpmath.exp(-x * x) * mpmath.erfi(x) * mpmath.sqrt(mpmath.pi) / 2, [0.0, 3.0, 7.9, -8.1, 20.0]),
}


@pytest.mark.parametrize("name", SINGULAR)
def test_derivatives_near_removable_singularities(name: str) -> None:
    """The first and second derivative have all digits but for a few."""
    exact, points = SINGULAR[name]
    x = xt.asarray(points)
    first = xt.grad(lambda x: xt.sum(getattr(special, name)(x)))
    for order, found in ((1, first(x)), (2, xt.grad(lambda x: xt.sum(first(x)))(x))):
        with mpmath.workdps(60):
            wanted = [
                float(mpmath.re(mpmath.diff(exact, mpmath.mpf(one), order, h=mpmath.mpf("1e-12")))) for one in points
            ]
        np.testing.assert_allclose(found.numpy(), wanted, rtol=1e-10)


def test_large_exprel_in_single_precision() -> None:
    found = special.exprel(xt.asarray([50.0, 89.0, 92.0], dtype=xt.float32)).numpy()
    np.testing.assert_allclose(found, [math.expm1(one) / one for one in (50.0, 89.0, 92.0)], rtol=4e-7)


def test_pseudo_huber_of_unequal_sizes() -> None:
    for delta, r in ((1e-5, 1449.22186001174), (1e-3, 478.287), (1e-300, 1e10), (2.0, 1e-9), (1.0, 1e200)):
        with mpmath.workdps(60):
            exact = mpmath.mpf(delta) ** 2 * (mpmath.sqrt(1 + (mpmath.mpf(r) / mpmath.mpf(delta)) ** 2) - 1)
        assert abs(float(special.pseudo_huber(delta, r)) - float(exact)) <= 2 * np.spacing(float(exact))


def test_derivatives_where_a_formula_divides_by_zero() -> None:
    """Limits, PyTorch's conventions for products with logarithms."""
    zero = xt.asarray([0.0])
    slopes = {"exprel": 0.5, "sinc": 0.0, "i1": 0.5, "i1e": 0.5, "j1": 0.5, "ellipk": math.pi / 8}
    for name, slope in slopes.items():
        found = xt.grad(lambda x, name=name: xt.sum(getattr(special, name)(x)))(zero)
        np.testing.assert_allclose(found.numpy(), [slope], rtol=1e-15)
    by_x, by_y = xt.grad(lambda x, y: xt.sum(special.xlogy(x, y)), (0, 1))(zero, zero)
    assert float(by_x[0]) == 0.0 and math.isnan(float(by_y[0]))


# ---- captured functions


def test_in_a_captured_function() -> None:
    """Formulas fuse, and SciPy's functions are steps of the schedule."""

    @xt.fuse
    def f(x: Any, y: Any) -> Any:
        return special.gammainc(2.0, special.expit(x)) * y + 1

    random = np.random.default_rng(0)
    for n in (10, 10, 10_000, 10_000, 10_000):  # ten elements are called plainly: that costs less
        x, y = random.normal(size=n), random.normal(size=n)
        expected = scipy_special.gammainc(2.0, scipy_special.expit(x)) * y + 1
        np.testing.assert_allclose(f(xt.asarray(x), xt.asarray(y)).numpy(), expected, rtol=1e-13)
    assert f.why(xt.asarray(x), xt.asarray(y)) == ""


def test_functions_of_scipy_are_these() -> None:
    """By NumPy's protocol, so they are recorded and have gradients; their options still go to SciPy."""
    x = xt.asarray([0.5, 1.5])
    slope = xt.grad(lambda x: xt.sum(scipy_special.gammaln(x) * scipy_special.expit(x)))(x).numpy()
    n = x.numpy()
    e = scipy_special.expit(n)
    expected = scipy_special.psi(n) * e + scipy_special.gammaln(n) * e * (1 - e)
    np.testing.assert_allclose(slope, expected, rtol=1e-13)
    assert scipy_special.erf(xt.ones(100_000)).is_pending
    assert scipy_special.betaln(x, 2.0).tolist() == scipy_special.betaln(n, 2.0).tolist()
    out = xt.zeros(2)
    assert scipy_special.gammaln(x, out=out) is out and out.tolist() == scipy_special.gammaln(n).tolist()


def test_scipy_dispatches_here() -> None:
    """With its array API support on, SciPy calls these functions: a gradient goes through scipy.special.gammaln."""
    code = """
import numpy as np, scipy.special as s, xtensor as xt
x = xt.asarray([1.5, 2.5], requires_grad=True)
xt.sum(s.gammaln(x) + s.xlogy(x, x) + s.ndtr(x)).backward()
n = x.detach().numpy()
expected = s.psi(n) + np.log(n) + 1 + np.exp(-n * n / 2) / np.sqrt(2 * np.pi)
np.testing.assert_allclose(x.grad.numpy(), expected, rtol=1e-12)
assert isinstance(xt.special.bdtr(1, 3, xt.asarray(0.5)), xt.Tensor) and "airy" in dir(xt.special)"""
    environment = os.environ | {"SCIPY_ARRAY_API": "1"}
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


COMPLEX = ["erf", "erfc", "erfcx", "erfi", "dawsn", "ndtr", "log_ndtr", "gamma", "loggamma", "psi", "exp1", "expi"]


@pytest.mark.parametrize("dispatches", [False, True])
def test_complex_numbers(dispatches: bool) -> None:
    """Where SciPy's function takes them, under its array API support too, and Bessel functions with real orders."""
    code = f"""
import numpy as np, scipy.special as s, xtensor as xt
z = np.array([0.3 + 0.4j, -0.5 + 1j, 2.0])
for name in {COMPLEX}:
    for function in (getattr(s, name), getattr(xt.special, name)):
        found = function(xt.asarray(z))
        assert type(found) is xt.Tensor, name
        np.testing.assert_allclose(found.numpy(), getattr(s, name)(z), rtol=1e-12, err_msg=name)
for name in ("jv", "yv", "iv", "kv"):
    for function in (getattr(s, name), getattr(xt.special, name)):
        np.testing.assert_allclose(function(1, xt.asarray(z)).numpy(), getattr(s, name)(1, z), rtol=1e-12, err_msg=name)
zeta = xt.special.zeta(xt.asarray(z + 1))
np.testing.assert_allclose(zeta.numpy(), s.zeta(z + 1), rtol=1e-12)
np.testing.assert_allclose(xt.special.sinc(xt.asarray(z)).numpy(), np.sinc(z), rtol=1e-12, atol=1e-15)
assert xt.special.jv(1, xt.asarray(z, dtype=xt.complex64)).dtype == xt.complex64
"""
    environment = os.environ | {"SCIPY_ARRAY_API": str(int(dispatches))}
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


def test_complex_numbers_where_scipy_has_none() -> None:
    for call in (lambda: special.erfinv(xt.asarray([1j])), lambda: special.erfinv(1j)):
        with pytest.raises(TypeError, match="erfinv: x must be real floating"):
            call()


def test_polygamma_of_other_orders() -> None:
    """NaN, as SciPy's."""
    n, x = np.array([0.5, 1.0, 0.0, -1.0, 2.0]), np.array([1.5, 2.5, 0.5, 1.5, 1.5])
    found = special.polygamma(xt.asarray(n), xt.asarray(x)).numpy()
    with np.errstate(all="ignore"):
        np.testing.assert_allclose(found, scipy_special.polygamma(n, x), rtol=1e-12)


@pytest.mark.parametrize(("name", "count"), [("digamma", 1), ("gammaln", 1), ("expit", 1), ("xlogy", 2), ("jv", 2)])
def test_small_arrays_go_to_scipys_function_at_once(name: str, count: int) -> None:
    """Where a program calls SciPy's function with tensors; large arrays and other dtypes have the same dtypes."""
    native = getattr(scipy_special, name)
    native = getattr(native, "__wrapped__", native)
    small = np.linspace(0.5, 2.0, 6)
    operands = [xt.asarray(small)] * count
    native(*operands)  # remembered
    calls: list[str] = []
    sys.setprofile(lambda frame, event, argument: calls.append(frame.f_code.co_name) if event == "call" else None)
    found = native(*operands)
    sys.setprofile(None)
    assert len(calls) < 20, calls
    np.testing.assert_array_equal(found.numpy(), native(*[small] * count))
    assert isinstance(native(*[x[0] for x in operands]), xt.Tensor)
    for dtype in (xt.float16, xt.float32, xt.int8):
        ones = [native(*[xt.ones(n, dtype=dtype)] * count) for n in (3, 100_000)]
        assert ones[0].dtype == ones[1].dtype
    if count == 2:
        beside = [native(xt.ones(n, dtype=xt.float32), 0.5).dtype for n in (3, 40_000, 400_000)]
        assert len(set(beside)) == 1
    if name != "jv":
        slopes = [
            xt.grad(lambda x, f=f: xt.sum(f(*[x] * count)))(operands[0]) for f in (native, getattr(special, name))
        ]
        np.testing.assert_array_equal(slopes[0].numpy(), slopes[1].numpy())
