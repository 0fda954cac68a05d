"""NumPy's names with arguments that are seldom given: the result, or the class of the error, is NumPy's."""

from __future__ import annotations

import copy
import pickle
from typing import Any

import numpy
import pytest
from test_numpy_names import compare, listed

import xtensor as xt
import xtensor.numpy as ours

pytestmark = pytest.mark.filterwarnings("ignore::RuntimeWarning", "ignore:Arrays of 2-dim:DeprecationWarning")


def arrays() -> dict[str, Any]:
    """Return the operands, as NumPy's arrays; capital letters are large ones."""
    r = numpy.random.default_rng(0)
    return {
        "d": numpy.array([1.0, 2.0, 3.0]),
        "f": numpy.array([1.0, 2.0, 3.0], dtype="f4"),
        "h": numpy.array([1.5, 2.0, 3.0], dtype="f2"),
        "i": numpy.array([-5, 3]),
        "a": numpy.arange(6).reshape(2, 3),
        "w": r.normal(size=(1, 3)),
        "q": numpy.array([True, False]),
        "m": r.normal(size=(3, 4)),
        "s": numpy.stack([numpy.zeros((2, 2)), numpy.eye(2)]),
        "X": r.normal(size=(300, 200)),
        "Q": numpy.array([0.25, 0.5], dtype="f4"),
        "F": r.normal(size=(300, 300)).astype("f4"),
        "J": numpy.arange(100_000),
        "U": r.integers(0, 200, 400_000).astype("u1"),
        "B": r.random(400_000) > 0.5,
        "Z": r.integers(-1, 2, (100_000, 3)) * 1.0,
        "V": r.random((300, 200)) > 0.9,
    }


def outcome(text: str, given: dict[str, Any], np: Any) -> Any:
    """Return what a text gives, or all operands if it is a statement, or the error."""
    scope = given | {"np": np, "numpy": numpy}
    try:
        with numpy.errstate(all="ignore"):
            return eval(text, scope)
    except SyntaxError:
        pass
    except Exception as error:
        return error
    try:
        exec(text, scope)
    except Exception as error:
        return error
    return [scope[name] for name in given]


def as_numpys(text: str, mode: str) -> None:
    given = arrays()
    tensors = {name: xt.asarray(x, copy=True) for name, x in given.items()}
    if mode == "gradient":
        for x in tensors.values():
            x.requires_grad = x.dtype.kind == "f"
    wanted = outcome(text, given, numpy)
    with xt.options(lazy="always" if mode == "always" else "auto"):
        found = outcome(text, tensors, ours)
    if isinstance(wanted, Exception):
        assert isinstance(found, type(wanted)), found
    else:
        compare(without_gradient(found), wanted)


def without_gradient(x: Any) -> Any:
    if isinstance(x, (list, tuple)):
        return [*map(without_gradient, x)]
    return x.detach() if isinstance(x, xt.Tensor) else x


MADE = listed(
    """
np.mgrid[0.1:0.3:np.complex64(3j)] | np.r_[0:36:np.complex64(100j)] | np.mgrid[0:3:np.complex128(4j), 0:2]
np.mgrid[d[:1]:d[2:]:3j] | np.mgrid[np.float32(0):np.float32(3):3j, 0:2] | np.mgrid[0:1j:3j] | np.r_[d[0]:d[2]:3j]
np.mgrid[0:3:0] | np.mgrid[0:3:0, 0:2] | np.mgrid[0:300, 0:300.5:0.5] | np.ogrid[0:2, 0:1:5j]
np.mgrid[3:0:-1, :2, 0:0]
np.r_[:3, i, 4] | np.r_[0:1:3j, d[:2]] | np.c_[i, i] | np.r_['0,2', i[:2], [1, 2]] | np.r_[f, 1.5] | np.r_[0:2, J]
np.linspace(i.min(), 3, 6, dtype=int) | np.linspace(np.int64(-5), 3, 6, dtype=int)
np.linspace(-5, 3, 6, retstep=True, dtype=int) | np.linspace(0, f.max(), 3) | np.linspace(0, np.float32(3), 3)
np.linspace(0, 1, 0, retstep=True) | np.linspace(0, 1, 1, retstep=True) | np.linspace(d, f, -1)
np.linspace(0, np.inf * d[0], 3) | np.logspace(0, 3, 4, base=[2, 3], axis=-1) | np.logspace([0, 1], 3, 4, base=[2, 3])
np.eye(3, 4, order='F').strides | np.eye(3, 4, 1, int, 'F') | np.asfortranarray(d[::2]).strides
np.tril(d) | np.triu(i, 1) | np.tril(J[:300], -3) | np.triu(q) | np.tril(d[:0]) | np.compress(m > 0, m) | np.tril(f, 1)
np.compress(1, X) | np.compress([True, False], X, 0) | np.compress(X > 0, X, 1)
np.concatenate([d, f], out=3) | np.stack([d, f], 0, 5)
np.asarray(d[::2], order='F').strides | np.require(d[::2], requirements='F').flags.f_contiguous
np.array([1, 2], copy=False) | np.array([1], ndmin=65) | np.array([1], ndmin=64).shape
np.size(a, (1, -1)) | np.size(a, (0, 1)) | np.size(a, 2) | np.astype(i, None) | np.astype(J, None)
i.astype(None) | F.astype(None) | J.astype(None) | q.astype(None, order='F') | f.astype(None, casting='safe')
"""
)
VIEWS = listed(
    """
a.flat = [1, 2] | a.flat[:] = [1, 2, 3, 4] | a.flat[[1, 2, 3]] = [7, 8] | a.flat[a.ravel() > 2] = [9, 8]
a.flat[[1, 2]] = [[7], [8], [9]] | a.flat = [] | a.T.flat[:] = [1, 2] | a[:, ::2].flat = [9, 8, 7] | a.flat = a * 2
a.flat == 3 | a.flat != a.T.flat | a.flat < [1, 2] | hash(a.flat) | a.flat[2] = [5, 6] | a.flat.copy()
(lambda x: [next(x), x.index, x.coords, x.base is a, list(x), list(x), x.index, x.coords])(a.flat)
np.ndarray.sum(a, 0) | [*map(np.ndarray.tolist, a)] | np.ndarray.foo
d.byteswap() | i.byteswap(True) | (m * 1j).byteswap() | J.byteswap(inplace=True) | q.byteswap() | a.T.byteswap().strides
(m * 1j).getfield(float, 8) | (m * 1j).getfield(float) | i.getfield('i4', 4) | F.T.getfield('u1', 3)
d[0].getfield('i8') | d.getfield('f4', 5) | d.getfield('f4', -1) | d.getfield(complex)
d.getfield('>f8') + 0 | d.getfield('f4', 1.5)
i.setfield(7, 'i4', 4) | J.setfield(i[:1], 'i2', 2) | a.T.setfield([[1], [2], [3]], 'u1') | d.setfield(1, complex)
np.ndarray((2,), int, buffer=np.arange(4), offset=8, strides=(16,)) | np.ndarray((2, 3), int, a, 0, None, 'F')
np.ndarray((2, 3), strides=(8, 16)).strides | np.ndarray((2, 3), int, np.arange(5))
np.ndarray((2,), int, a)[0] = 77 | np.ndarray(2, 'f4', bytearray(range(8)), 0, (4,)) | np.ndarray(2, float, bytes(16))
"""
)


SPREADS = [
    *(f"np.cov({x}{y}, rowvar=False, ddof=0)" for x in "dwm" for y in ("", ", w", ", w.T", ", 1.5")),
    *(f"np.cov({x}, {y}, rowvar={rows})" for x in ("m[:0]", "m[:, :0]") for y in "wm" for rows in (True, False)),
    *(f"np.{name}({x}, dtype={kind})" for name in ("std", "var", "mean") for x in "iJm" for kind in ("int", "'f4'")),
    *(f"np.{name}({x}, dtype=bool)" for name in ("sum", "prod") for x in "iJm"),
    *listed(
        """
np.corrcoef(w, rowvar=False) | np.var(m, 1, int, ddof=1, keepdims=True) | np.std(m, 0, int, where=m > 0)
np.prod(m, 0, bool, keepdims=True) | np.nanvar(m, ddof=1, correction=1) | np.nanstd(m, correction=1)
np.ediff1d(i, to_end=np.nan) | np.ediff1d(J, to_begin=[9.5]) | np.ediff1d(J, 5, [1, 2]) | np.ediff1d(q)
np.ediff1d(B) | np.gradient(q) | np.gradient(B) | np.gradient(m, d) | np.gradient(F, F[0]) | np.gradient(m, d, axis=0)
np.gradient(m, d[0]) | np.gradient(m, 2, w[0]) | np.histogram(np.ones((300, 300)), 3, weights=np.ones((300, 300)))
np.histogram(F, 3, weights=F) | np.histogram(F, 3, weights=F[0])
"""
    ),
    *(f"np.{name}(m{k}, dtype={kind!r})" for name in ("var", "nanstd") for k in ("", " * 1j") for kind in "FD"),
    *(f"np.{name}(m, where=a[0, [0, 1, 2, 0]])" for name in ("sum", "nansum", "mean", "var", "nanvar", "any")),
    *(f"np.{name}(m[:0] * 1j, 0, initial=1)" for name in ("max", "min", "sum")),
    *listed(
        """
np.sum(m, 0, initial=m) | np.max(m, initial=i[:1]) | np.add.reduce(m, initial=[1]) | np.sum(m, where=[1, 0, 1, 1])
np.max(a[:0], 0, initial=2**62 + 1) | np.min(a[:0], 0, initial=1.5, keepdims=True) | np.max(q[:0], initial=True)
np.trapezoid(s, a[0, :2].reshape(2, 1), axis=-2) | np.trapezoid(s, m[:2, :2], axis=-1) | np.trapezoid(s, d[:2], axis=0)
np.copyto(m, 1, where=a[:1, :1]) | np.add(m, 1, out=m, where=a[:1, :1]) | np.any(m, where=1)
"""
    ),
]
# More degrees of freedom than there are, or none to spare, and both names of the number that is subtracted.
WITHOUT_FREEDOM = [
    *(
        f"np.{name}({x}, ddof={n})"
        for name in ("var", "std", "nanvar", "nanstd")
        for x in "dfhiqwFJ"
        for n in (2, 3, 4, 90_000, 100_000)
    ),
    *(f"{x}.{name}(ddof={n})" for name in ("var", "std") for x in "dfiFJ" for n in (0, 2, 3, 90_000, 100_000)),
    *(f"np.{name}(m, 0, ddof=3, where=m > {k})" for name in ("var", "std", "nanvar") for k in (-9, 0, 9)),
    *(f"np.{name}(m * 1j, 1, ddof={n}, keepdims=True)" for name in ("var", "std", "nanvar") for n in (3, 4, 5)),
    *(f"np.{name}(m, 1, ddof=4, mean=m[:, :1])" for name in ("var", "std", "nanstd")),
    *(
        f"np.{name}({x}, ddof={n}, correction={c})"
        for name in ("var", "std", "nanvar", "nanstd")
        for x in "dF"
        for n, c in ((0, None), (1, None), (None, None), (0, 0), (0, 1), (1, 0), (1, 1))
    ),
    *(f"np.{name}(m, ddof=None)" for name in ("var", "std", "nanvar", "nanstd")),
    *(f"np.{name}(m, correction=None)" for name in ("var", "std", "nanvar", "nanstd")),
]
PRODUCTS = [
    *(
        f"np.{name}({pair})"
        for name, pairs in (
            ("vecdot", ("q, q", "q, i", "B, B", "B, ~B", "B, J[:2].sum()", "B, U", "V, V", "V, V[0]", "V, V[:, :1]")),
            ("vecdot", ("V, V, axis=0", "V, V[0, 0]", "V[:, :0], V[:, :0]")),
            ("linalg.vecdot", ("q, q", "B, B", "V, V, axis=0", "V, V[:1], axis=1", "V, V[:, :1]")),
            ("matvec", ("V, V[0]", "V, V[0, :5]", "V, J[:200]")),
            ("vecmat", ("V[:, 0], V", "V[:, 0], X", "V[0], V")),
        )
        for pair in pairs
    ),
    *(
        f"np.{inner}tensordot({x}, {y}, axes={n})"
        for inner in ("", "linalg.")
        for x, y in (("d", "d"), ("a", "m"), ("X", "X.T"), ("F", "F"))
        for n in (-1, 0, 1, 2, 3, True, 1.0, None, "'bad'", "'ab'", "np.int64(1)", "i.max() - 2", "(1, 0)")
        if (x, y, n) not in (("X", "X.T", -1), ("X", "X.T", 0), ("F", "F", -1), ("F", "F", 0))  # too large
    ),
    *(f"np.tensordot(m, m, {axes})" for axes in ("(2, 0)", "([0], [-3])", "(0,)", "i", "([0, 1], 0)", "a[:, :2]")),
    *(f"np.cross({x}, {y})" for x in ("Z[:, :2]", "Z", "-Z[:, :2]", "Z[0, :2]") for y in ("Z", "Z[0]", "-Z[:, :2]")),
    *(f"np.cross(Z.T, {y}, axisa=0, axisc=0)" for y in ("Z[:, :2]", "Z[0, :2] * np.inf", "a[0]", "a[0, :2]", "q")),
    *("np.cross(Z > 0, Z[:, :2] > 0)", "np.cross(U[:300_000].reshape(-1, 3), a[0, 1:])"),
    *(f"np.signbit(np.cross({x}, {y}))" for x in ("Z[:, :2]", "Z") for y in ("-Z", "-Z[:, :2]", "Z[:, :2] * 0")),
]
AXES = ((0, 0), (0, 1, 0), (1, -1))
QUANTILES = [
    f"np.{name}({x}, {q.replace('W', whole)})"
    for name, whole in (("quantile", "1"), ("percentile", "100"), ("nanquantile", "1"), ("nanpercentile", "100"))
    for x in "fFUqB"
    for q in ("0.5 * W", "np.float64(0.5 * W)", "np.float32(W)", "W", "[0.3 * W]", "Q * W", "np.ones((1, 2, 1))")
]


TRANSFORMS = [
    *(f"np.linalg.cond({x}, {p})" for x in ("s", "np.zeros((200, 200))", "X[:9, :9]") for p in (None, 2, -2, 1)),
    *(f"np.fft.{name}n({x}, axes={axes})" for name in ("fft", "ifft", "rfft", "irfft") for x in "mX" for axes in AXES),
    *(f"np.fft.{name}2({x}, (-1, 7), (0, 1))" for name in ("fft", "ifft", "rfft", "irfft") for x in "mX"),
    *(f"np.fft.{name}(np.ones(90_000, 'f2')).dtype" for name in ("fft", "ifft", "rfft", "irfft", "hfft", "ihfft")),
    *listed(
        """
np.fft.fftfreq([0, 1]) | np.fft.fftfreq(2.5) | np.fft.rfftfreq(None) | np.fft.rfftfreq('3') | np.fft.fftfreq(a.max())
np.fft.fft2(h.reshape(1, 3)).dtype | np.fft.fftn(i, axes=()) | np.fft.ifftn(X, s=(), axes=()) | np.fft.fft(X, norm='')
np.fft.fftn(X, norm='') | np.fft.fftn(X, (5, 6, 4), (1, 0, 1)) | np.linalg.pinv(m, rcond=0.1, rtol=0.1)
np.linalg.pinv(m @ m.T, hermitian=True, rtol=0.5) | np.random.default_rng(-i[:1]).random(2)
np.random.default_rng(a[0, 1]).random(2) | np.random.default_rng([a[0, 1], 3]).random(2) | np.random.default_rng(d)
"""
    ),
]


# NumPy 2.5 and later refuse vectors of two elements, which xtensor goes on taking.
if numpy.lib.NumpyVersion(numpy.__version__) >= "2.5.0":
    PRODUCTS = [text for text in PRODUCTS if "np.cross" not in text or not any(w in text for w in (":2]", "1:]", "q"))]


@pytest.mark.parametrize("mode", ["auto", "always", "gradient"])
@pytest.mark.parametrize("text", [*SPREADS, *WITHOUT_FREEDOM, *PRODUCTS, *QUANTILES, *TRANSFORMS])
def test_computed(text: str, mode: str) -> None:
    as_numpys(text, mode)


@pytest.mark.parametrize("mode", ["auto", "always", "gradient"])
@pytest.mark.parametrize("text", [*MADE, *VIEWS])
def test_arrays_that_are_made_and_seen(text: str, mode: str) -> None:
    as_numpys(text, mode)


@pytest.mark.parametrize("count", [8, 100_000])
@pytest.mark.parametrize(
    "made", [lambda raw: ours.ndarray((len(raw) // 8,), int, raw), lambda raw: ours.frombuffer(raw, int)]
)
def test_an_array_over_foreign_memory_shares_it(made: Any, count: int) -> None:
    """What was to be computed from it reads what was there before."""
    raw = bytearray(8 * count)
    x = made(raw)
    with xt.options(lazy="always"):
        later = x + 1
        raw[8] = 5
        assert x[1] == 5 and later[1] == 1


@pytest.mark.parametrize("count", [8, 100_000])
def test_an_array_over_a_tensors_memory_shares_it(count: int) -> None:
    with xt.options(lazy="always"):
        x = ours.zeros(count)
        view, before = ours.ndarray((2,), float, x, 8), x + 1.0
        view[0] = 3.0
        assert x[1] == 3.0 and before[1] == 1.0
    x.requires_grad = True
    with pytest.raises(RuntimeError, match="gradient"):
        ours.ndarray((2,), float, x)


def test_parts_of_numbers_pass_gradients() -> None:
    """The real and imaginary parts do; other bytes do not."""
    x = ours.asarray([1 + 2j, 3 - 4j])
    x.requires_grad = True
    (x.getfield(float) + 2 * x.getfield(float, 8)).sum().backward()
    assert x.grad.tolist() == [1 + 2j, 1 + 2j]
    with pytest.raises(NotImplementedError, match="no derivative"):
        x.real.getfield("f4").sum().backward()
    with pytest.raises(NotImplementedError, match="no derivative"):
        x.byteswap().real.sum().backward()


@pytest.mark.parametrize("lazy", ["auto", "always"])
@pytest.mark.parametrize("count", [3, 100_000])
def test_tensors_are_dumped(tmp_path: Any, count: int, lazy: Any) -> None:
    with xt.options(lazy=lazy):
        x = xt.arange(count) * 2
        x.dump(tmp_path / "named")
        with open(tmp_path / "opened", "wb") as file:
            x.dump(file)
    for written in (x.dumps(), (tmp_path / "named").read_bytes(), (tmp_path / "opened").read_bytes()):
        found = pickle.loads(written)
        assert type(found) is numpy.ndarray and found.dtype == x.dtype and numpy.array_equal(found, x.numpy())


def test_numpys_arrays_are_instances() -> None:
    """SciPy's results are such, in programs that ask whether they got an array."""
    for x in (numpy.zeros(3), numpy.ma.zeros(3), ours.zeros(3)):
        assert isinstance(x, ours.ndarray) and issubclass(type(x), ours.ndarray)
    for one in (numpy.float64(3), numpy.zeros(3).data, [0.0], ours.zeros(3)[0]):
        assert not isinstance(one, ours.ndarray)


def test_operators_read_elements_in_lists_where_they_lie(monkeypatch: Any) -> None:
    """Without `__array__`, which hands out the memory of each: ten times the time."""
    n, x = numpy.arange(40.0).reshape(2, 20), ours.arange(40.0).reshape(2, 20)
    rows, out = [list(row) for row in x], ours.zeros((2, 20))
    with monkeypatch.context() as patched:
        patched.delattr(xt.Tensor, "__array__")
        found = [x * rows, rows - x[0], x < [tuple(row) for row in x], ours.ones((3, 2)) @ rows]
        out[:] = rows
        out += rows
    for one, expected in zip([*found, out], (n * n, n - n[0], n < n, numpy.ones((3, 2)) @ n, n + n), strict=True):
        compare(one, expected)


@pytest.mark.filterwarnings("ignore:the matrix subclass")
def test_an_array_is_made_of_a_matrix() -> None:
    """Such as SciPy's sums of sparse matrices."""
    m = numpy.matrix([[1.0, 2.0]])
    for make in (ours.asarray, ours.array, ours.ascontiguousarray):
        compare(make(m) * ours.ones(2), numpy.asarray([[1.0, 2.0]]))
    assert ours.asanyarray(m) is m
    with pytest.raises(TypeError, match="MaskedArray"):
        ours.asarray(numpy.ma.masked_array([1.0, 2.0], [True, False]))


def test_assertions_that_call_a_function_hand_on_tensors() -> None:
    def refuse(x: Any, y: Any) -> None:
        raise LookupError(type(x).__name__ + type(y).__name__)

    t, testing = ours.zeros(3), ours.testing
    testing.assert_raises(LookupError, refuse, t, y=t)
    testing.assert_raises_regex(LookupError, "TensorTensor", refuse, t, y=t)
    assert testing.assert_no_warnings(lambda x: x, t) is t


def test_an_array_is_a_copy_of_what_holds_memory() -> None:
    raw = bytearray(b"abc")
    ours.array(memoryview(raw))[0] = 1
    assert raw == b"abc"


class Parameter:
    """A class that is written with the names of a library, whose arrays its `__array__` returns."""

    def __init__(self, np: Any, value: Any) -> None:
        self.made = np.asarray(value)

    def __array__(self, dtype: Any = None, copy: Any = None) -> Any:
        return self.made

    def __float__(self) -> float:  # NumPy asks for it in a list
        return float(self.made)


OF_A_PARAMETER = """
np.asarray(p) | np.array(p, dtype='f4') | np.array([p, p]) | np.full(3, p) | np.shape(p) | np.exp(p) | np.add(p, 1)
np.multiply(p, d) | np.sum(p) | np.mean(p) | np.dot(p, p) | np.where([True, False, True], p, 0) | d + p | d * p
np.linalg.norm(p) | np.stack([p, d]) | np.sqrt(p, where=[True, False, True], out=np.zeros(3))
"""


@pytest.mark.parametrize("call", listed(OF_A_PARAMETER))
@pytest.mark.parametrize("value", [[4.0, 1.0, 9.0], 4.0])
@pytest.mark.parametrize("inner", [numpy, ours])
def test_what_has_arrays_is_converted(call: str, value: Any, inner: Any) -> None:
    """Objects whose `__array__` returns a tensor, which NumPy refuses, are arrays as those of NumPy's own."""
    d = numpy.asarray([1.0, 2.0, 3.0])
    if value == 4.0 and "stack" in call:
        pytest.skip("shapes differ")
    expected = eval(call, {"np": numpy, "p": Parameter(numpy, value), "d": d})
    compare(eval(call, {"np": ours, "p": Parameter(inner, value), "d": ours.asarray(d)}), expected)


def test_a_parameter_keeps_its_gradient_and_is_compared() -> None:
    """The tensor of an object is taken as it is; a copy is one where it is asked for."""
    slope = xt.grad(lambda x: ours.sum(ours.square(Parameter(ours, x))))(xt.asarray([1.0, 2.0]))
    assert slope.tolist() == [2.0, 4.0]
    p = Parameter(ours, [1.0, 2.0])
    assert ours.asarray(p) is p.made and ours.array(p) is not p.made
    ours.testing.assert_allclose(p, [1.0, 2.0])
    with pytest.raises(AssertionError):
        ours.testing.assert_array_equal(p, [1.0, 3.0])


def test_the_global_stream_is_a_random_state() -> None:
    """Programs that take a seed, a stream or nothing return `np.random.mtrand._rand` for nothing."""
    stream = ours.random.mtrand._rand
    assert stream is ours.random.mtrand._rand and isinstance(stream, ours.random.RandomState)
    ours.random.seed(7)
    expected = numpy.random.RandomState(7)
    compare(stream.rand(3), expected.rand(3))
    assert ours.random.rand() == expected.rand() and stream.randint(9) == expected.randint(9)
    compare(pickle.loads(pickle.dumps(stream)).normal(size=2), expected.normal(size=2))
    assert ours.random.mtrand.RandomState is ours.random.RandomState
    own = numpy.random.RandomState(3)
    assert ours.random.RandomState(own).native is own


def test_streams_keep_their_methods() -> None:
    """One that each access made would take longer to make than most numbers to draw; copies have their own."""
    stream, expected = ours.random.RandomState(3), numpy.random.RandomState(3)
    assert stream.rand is stream.rand
    for copied in (copy.deepcopy(stream), pickle.loads(pickle.dumps(stream))):
        assert copied.rand is not stream.rand and copied.rand() == copy.deepcopy(expected).rand()
    assert stream.rand() == expected.rand()


def test_a_seed_may_hold_tensors() -> None:
    assert ours.random.RandomState([ours.asarray(1), 2]).rand() == numpy.random.RandomState([1, 2]).rand()


@pytest.mark.parametrize("name", ["sum", "prod", "max", "min", "mean", "all", "any"])
def test_reductions_without_tensors(name: str) -> None:
    """Small arrays of NumPy's, lists, and lists of tensors, with NumPy's dtypes; what NumPy refuses is refused."""
    reduced, theirs = getattr(ours, name), getattr(numpy, name)
    for dtype in ("bool", "int8", "int64", "float32", "float64", "complex64"):
        a = numpy.arange(12).reshape(3, 4).astype(dtype)
        for given in ({}, {"axis": 0}, {"axis": -1, "keepdims": True}, {"axis": (0, 1)}):
            for x in (a, a.tolist(), [ours.asarray(row) for row in a]):
                found, right = reduced(x, **given), theirs(numpy.asarray(x), **given)
                assert isinstance(found, xt.Tensor)
                assert (found.dtype, found.shape) == (right.dtype, right.shape)
                numpy.testing.assert_array_equal(numpy.asarray(found), right)
    with pytest.raises(numpy.exceptions.AxisError):
        reduced(numpy.ones(3), axis=1)
