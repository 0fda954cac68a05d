"""xt.random: the streams are NumPy's own, results are tensors of the dtype and device asked for."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import xtensor as xt

SEED = 20261121


def pair() -> tuple[Any, np.random.Generator]:
    """Return our generator and NumPy's, with one seed."""
    return xt.random.default_rng(SEED), np.random.default_rng(SEED)


CALLS: dict[str, Callable[[Any], Any]] = {
    "random": lambda g: g.random((3, 4)),
    "random float32": lambda g: g.random(5, dtype=np.float32),
    "uniform": lambda g: g.uniform(-2.0, 3.0, (3, 4)),
    "standard_normal": lambda g: g.standard_normal((3, 4)),
    "standard_normal float32": lambda g: g.standard_normal(5, dtype=np.float32),
    "normal": lambda g: g.normal(1.0, 2.0, (3, 4)),
    "standard_exponential": lambda g: g.standard_exponential(4),
    "exponential": lambda g: g.exponential(3.0, 4),
    "gamma": lambda g: g.gamma(2.0, 3.0, 4),
    "beta": lambda g: g.beta(2.0, 3.0, 4),
    "laplace": lambda g: g.laplace(1.0, 2.0, (3, 4)),
    "logistic": lambda g: g.logistic(1.0, 2.0, 4),
    "gumbel": lambda g: g.gumbel(1.0, 2.0, 4),
    "lognormal": lambda g: g.lognormal(0.5, 0.2, 4),
    "triangular": lambda g: g.triangular(0.0, 1.0, 3.0, 4),
    "standard_t": lambda g: g.standard_t(3.0, 4),
    "chisquare": lambda g: g.chisquare(3.0, 4),
    "dirichlet": lambda g: g.dirichlet([1.0, 2.0, 3.0], 4),
    "multivariate_normal": lambda g: g.multivariate_normal([1.0, 2.0], [[2.0, 0.5], [0.5, 1.0]], 4),
    "multinomial": lambda g: g.multinomial(20, [0.2, 0.5, 0.3], 4),
    "geometric": lambda g: g.geometric(0.3, 4),
    "poisson": lambda g: g.poisson(4.0, (2, 3)),
    "binomial": lambda g: g.binomial(10, 0.3, 5),
    "integers": lambda g: g.integers(5, size=20),
    "integers of bounds": lambda g: g.integers(-3, 4, (2, 5), dtype=np.int8, endpoint=True),
    "integers bool": lambda g: g.integers(0, 2, 9, dtype=np.bool_),
    "choice": lambda g: g.choice(10, (2, 3)),
    "choice without replacement": lambda g: g.choice(10, 5, replace=False, p=np.arange(10) / 45),
    "choice of slices": lambda g: g.choice(np.arange(12.0).reshape(3, 4), 2, axis=1, shuffle=False),
    "permutation": lambda g: g.permutation(7),
    "permutation of columns": lambda g: g.permutation(np.arange(12.0).reshape(3, 4), axis=1),
    "permuted": lambda g: g.permuted(np.arange(12.0).reshape(3, 4), axis=1),
}


@pytest.mark.parametrize("name", CALLS)
def test_numbers_are_numpys(name: str) -> None:
    """The same call gives the same numbers, dtype and shape, and leaves the stream at the same point."""
    ours, theirs = pair()
    got, wanted = CALLS[name](ours), CALLS[name](theirs)
    assert isinstance(got, xt.Tensor) and got.device == "cpu"
    np.testing.assert_array_equal(got.numpy(), wanted, strict=True)
    assert ours.state == theirs.bit_generator.state


@pytest.mark.parametrize("name", ["uniform", "normal", "exponential"])
def test_rounded_to_a_dtype(name: str) -> None:
    """Numbers that NumPy draws in float64 only are the same, rounded."""
    ours, theirs = pair()
    got = getattr(ours, name)(size=50, dtype=xt.float32)
    np.testing.assert_array_equal(got.numpy(), getattr(theirs, name)(size=50).astype(np.float32), strict=True)


def test_counts_in_a_dtype() -> None:
    """Counts and events come as other numbers where asked."""
    ours, _ = pair()
    assert ours.poisson(2.0, 3, dtype=xt.float32).dtype == xt.float32
    assert ours.binomial(2, 0.5, 3, dtype=xt.int8).dtype == xt.int8
    assert ours.bernoulli(0.5, 3, dtype=xt.float64).dtype == xt.float64


def test_scalars_are_0d() -> None:
    """Without a size there is one number."""
    ours, theirs = pair()
    got = ours.normal()
    assert got.shape == () and float(got) == theirs.normal()
    assert ours.integers(3).shape == ()


def test_parameters_may_be_tensors() -> None:
    """They broadcast, as NumPy's do."""
    ours, theirs = pair()
    loc = np.array([[0.0], [100.0]])
    got = ours.normal(xt.asarray(loc), xt.asarray([1.0, 2.0, 3.0]))
    np.testing.assert_array_equal(got.numpy(), theirs.normal(loc, [1.0, 2.0, 3.0]))
    low = ours.integers(xt.asarray([0, 100]), xt.asarray([10, 110]))
    np.testing.assert_array_equal(low.numpy(), theirs.integers([0, 100], [10, 110]))


def test_bernoulli() -> None:
    """Events where random() is below p; the shape is p's where no size is given."""
    ours, theirs = pair()
    got = ours.bernoulli(0.3, 1000)
    assert got.dtype == xt.bool
    np.testing.assert_array_equal(got.numpy(), theirs.random(1000) < 0.3)
    p = xt.asarray([0.0, 1.0, 0.5])
    assert ours.bernoulli(p).shape == (3,)
    assert not bool(xt.any(ours.bernoulli(p, (50, 3))[:, 0])) and bool(xt.all(ours.bernoulli(p, (50, 3))[:, 1]))
    for wrong in (-0.1, 1.1, float("nan")):
        with pytest.raises(ValueError, match="^bernoulli: p must be between 0 and 1"):
            ours.bernoulli(wrong)


@pytest.mark.parametrize("axis", [0, 1, -1])
def test_shuffle_is_in_place(axis: int) -> None:
    """Views change with it, and what was recorded before does not."""
    ours, theirs = pair()
    n = np.arange(24.0).reshape(4, 6)
    x = xt.asarray(n, copy=True)
    view = x[1:, ::2]
    with xt.options(lazy="always"):
        before = x * 2.0
        assert ours.shuffle(x, axis) is None
    theirs.shuffle(copy := n.copy(), axis)
    np.testing.assert_array_equal(x.numpy(), copy)
    np.testing.assert_array_equal(view.numpy(), copy[1:, ::2])
    np.testing.assert_array_equal(before.numpy(), n * 2)


def test_shuffle_refuses() -> None:
    """What is no tensor, what cannot be written, and axes there are not."""
    ours, _ = pair()
    with pytest.raises(TypeError, match="^shuffle: x must be a tensor, a NumPy array or a list, got str"):
        ours.shuffle("ab")
    with pytest.raises(ValueError, match="^shuffle: "):
        ours.shuffle(xt.broadcast_to(xt.ones(1), (3,)))
    with pytest.raises(IndexError, match="^shuffle: "):
        ours.shuffle(xt.ones(3), 1)


def test_state() -> None:
    """A stream can be taken back to an earlier point."""
    ours, _ = pair()
    ours.normal(size=3)
    state = ours.state
    first = ours.normal(size=5).numpy()
    ours.state = state
    np.testing.assert_array_equal(ours.normal(size=5).numpy(), first)


def test_spawn() -> None:
    """Children are NumPy's children."""
    ours, theirs = pair()
    children = ours.spawn(3)
    assert len({float(child.random()) for child in children}) == 3
    again = xt.random.default_rng(SEED).spawn(3)
    assert [float(g.random()) for g in again] == [g.random() for g in theirs.spawn(3)]


def test_default_rng() -> None:
    """A Generator passes through, NumPy's is gone on with, seeds are what NumPy takes, and None is no seed."""
    ours, theirs = pair()
    assert xt.random.default_rng(ours) is ours
    wrapped = xt.random.default_rng(theirs)
    assert wrapped.native is theirs
    assert repr(wrapped) == "Generator(PCG64, device='cpu')"
    sequence = np.random.SeedSequence(5)
    assert float(xt.random.default_rng(sequence).random()) == np.random.default_rng(sequence).random()
    assert float(xt.random.default_rng().random()) != float(xt.random.default_rng().random())
    assert xt.random.default_rng(0, device="cpu").device == "cpu"
    with pytest.raises(ValueError, match="^default_rng: device must be"):
        xt.random.default_rng(0, device="tpu")


@pytest.mark.parametrize(
    ("call", "text"),
    [
        (lambda g: g.random(3, dtype=xt.int64), "random: dtype must be real floating, got int64"),
        (lambda g: g.normal(size=3, dtype=xt.complex64), "normal: dtype must be real floating, got complex64"),
        (lambda g: g.integers(3, dtype=xt.float32), "integers: dtype must be integer or bool, got float32"),
    ],
)
def test_refused_dtypes(call: Callable[[Any], Any], text: str) -> None:
    """dtypes that hold no such numbers."""
    with pytest.raises(TypeError, match=f"^{text}"):
        call(pair()[0])


@pytest.mark.parametrize(
    ("name", "parameters"),
    [
        *[(name, (2.0, 3.0)) for name in ("normal", "laplace", "logistic", "gumbel", "uniform")],
        ("lognormal", (0.3, 0.5)),
        ("exponential", (2.0,)),
    ],
)
def test_gradients_of_parameters(name: str, parameters: tuple[float, ...]) -> None:
    """What is drawn is the same, and changes with its parameters as NumPy's own numbers of one seed do."""

    def draw(*given: Any) -> Any:
        return getattr(np.random.default_rng(5), name)(*[np.full(6, one) for one in given])

    places, drawn, h = tuple(range(len(parameters))), draw(*parameters), 1e-6
    value, found = xt.value_and_grad(
        lambda *some: xt.sum(getattr(xt.random.default_rng(5), name)(*some) ** 2), argnums=places
    )(*[xt.full(6, one) for one in parameters])
    np.testing.assert_allclose(float(value), np.sum(drawn**2), rtol=1e-14)
    for place, one in enumerate(found):
        more, less = [[p + sign * h * (at == place) for at, p in enumerate(parameters)] for sign in (1, -1)]
        np.testing.assert_allclose(one.numpy(), 2 * drawn * (draw(*more) - draw(*less)) / (2 * h), rtol=1e-6)


def test_gradients_that_are_not_known() -> None:
    """They are refused on the way back, and shuffling in place at once."""
    for draw in (
        lambda generator, x: generator.gamma(x),
        lambda generator, x: generator.permutation(x),
        lambda generator, x: generator.choice(x, 2),
        lambda generator, x: generator.geometric(x / 2, dtype=xt.float32),
        lambda generator, x: generator.poisson(x, dtype=xt.float32),
        lambda generator, x: generator.multinomial(3, x / 3, dtype=xt.float32),
        lambda generator, x: generator.bernoulli(x / 2, dtype=xt.float32),
    ):
        with pytest.raises(NotImplementedError, match="no derivative"):
            xt.grad(lambda x: xt.sum(draw(xt.random.default_rng(1), x)))(xt.ones(3))  # noqa: B023

    def shuffled(x: xt.Tensor) -> xt.Tensor:
        copy = x * 1.0
        xt.random.default_rng(1).shuffle(copy)
        return xt.sum(copy)

    with pytest.raises(RuntimeError, match="shuffle: x must have no gradient"):
        xt.grad(shuffled)(xt.ones(3))
