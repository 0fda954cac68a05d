"""Sums of products by labels: as one call of the library's, and as products of matrices and of elements."""

from __future__ import annotations

import random
from collections.abc import Iterator

import numpy as np
import pytest
from test_stacks import normal

import xtensor as xt
import xtensor.numpy as xnp
from xtensor.devices import blas
from xtensor.standard import extras
from xtensor.standard import subscripts as subscripts_


@pytest.fixture(autouse=True, params=["composed", "as it is"])
def composed(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Have all of them composed, or as many as are otherwise."""
    if request.param == "composed":
        for module in (extras, subscripts_):
            monkeypatch.setattr(module, "EINSUM_MULTIPLIED", 0)
    yield


def random_labels(seed: int) -> tuple[str, dict[str, int]]:
    """Return the subscripts of two operands with labels of all kinds, in any order, and their lengths."""
    rng = np.random.default_rng(seed)
    kinds = {
        "ab": (0, 3),
        "cd": (0, 3),
        "ef": (1, 3),
        "gh": (0, 3),
    }  # in both and kept, the first's, terms, the second's
    chosen = {labels: "".join(labels[: int(rng.integers(*bounds))]) for labels, bounds in kinds.items()}
    stacked, rows, terms, columns = chosen.values()
    parts = (stacked + rows + terms, stacked + terms + columns, stacked + rows + columns)
    first, second, output = ("".join(rng.permutation(list(part)) if part else part) for part in parts)
    return f"{first},{second}->{output}", {label: int(rng.integers(1, 7)) for label in "abcdefgh"}


@pytest.mark.parametrize("seed", range(40))
def test_einsum_as_a_product(seed: int) -> None:
    """Whatever order labels stand in; integers wrap, and other sums are within rounding of NumPy's."""
    subscripts, lengths = random_labels(seed)
    rng = np.random.default_rng(seed)
    shapes = [[lengths[label] for label in one] for one in subscripts.partition("->")[0].split(",")]
    for dtype in ("int8", "int64", "float64", "complex128"):
        a, b = (rng.integers(-100, 100, shape).astype(dtype) for shape in shapes)
        found = xt.einsum(subscripts, xt.asarray(a), xt.asarray(b)).numpy()
        wanted = np.einsum(subscripts, a, b)
        assert found.dtype == wanted.dtype
        np.testing.assert_array_equal(found, wanted)  # small integers: no sum is rounded


@pytest.mark.parametrize(
    ("subscripts", "a", "b"),
    [
        ("ii,ij->j", (3, 3), (3, 4)),
        ("ij,ij->ij", (3, 4), (3, 4)),
        ("ij,ij->", (3, 4), (3, 4)),
        ("ij,k->ik", (3, 4), (5,)),
        ("ij,jk->ik", (3, 1), (4, 5)),
        ("...ij,jk->...ik", (2, 3, 4), (4, 5)),
        ("...ij,...jk->...ik", (2, 3, 4), (1, 4, 5)),
        ("ij,jk", (3, 4), (4, 5)),
        ("i...,j...", (3, 4), (5, 4)),
    ],
)
def test_einsum_as_numpy_takes_it(subscripts: str, a: tuple[int, ...], b: tuple[int, ...]) -> None:
    """Diagonals, lengths of 1, ellipses, no arrow, labels of one operand that are summed over."""
    x, y = normal(*a, dtype="float64"), normal(*b, dtype="float64")
    found = xt.einsum(subscripts, xt.asarray(x), xt.asarray(y)).numpy()
    np.testing.assert_allclose(found, np.einsum(subscripts, x, y), rtol=1e-13, atol=1e-14)


@pytest.mark.parametrize("subscripts", ["ij,jk->iz", "ij,jkl->il", "ij->i", "ij,jk,kl->il", "1j,jk->1k", "ij,jk->ii"])
def test_einsum_refuses_what_numpy_refuses(subscripts: str) -> None:
    """With NumPy's error."""
    x = np.ones((3, 3))
    with pytest.raises(ValueError) as theirs:
        np.einsum(subscripts, x, x)
    with pytest.raises(ValueError) as ours:
        xt.einsum(subscripts, xt.asarray(x), xt.asarray(x))
    assert str(theirs.value) in str(ours.value)


def anything(seed: int) -> tuple[str, list[tuple[int, ...]]]:
    """Return subscripts of up to four operands, with any labels, stretched axes and ellipses, and shapes."""
    rnd = random.Random(seed)
    letters = "ijklm"[: rnd.randint(1, 5)]
    lengths = {label: rnd.choice([1, 2, 3, 4, 5]) for label in letters}
    more, inputs, shapes = [rnd.choice([2, 3]) for _ in range(2)] if rnd.random() < 0.3 else None, [], []
    for _ in range(rnd.choice([1, 1, 2, 2, 2, 2, 3, 4])):
        labels = "".join(rnd.choice(letters) for _ in range(rnd.randint(0, 3)))
        shape = [lengths[label] for label in labels]
        if labels and rnd.random() < 0.2 and labels.count(labels[-1]) == 1:
            shape[-1] = 1
        if more is not None and rnd.random() < 0.8:
            at, own = rnd.randint(0, len(labels)), more[rnd.randint(0, 2) :]
            labels = f"{labels[:at]}...{labels[at:]}"
            shape[at:at] = [1 if rnd.random() < 0.2 else n for n in own]
        inputs.append(labels)
        shapes.append(tuple(shape))
    text = ",".join(inputs)
    if rnd.random() < 0.8:
        kept = [label for label in sorted({*text} - {*".,"}) if rnd.random() < 0.5]
        rnd.shuffle(kept)
        text += "->" + "..." * ("." in text) + "".join(kept)
    return text, shapes


@pytest.mark.parametrize("seed", range(120))
def test_any_subscripts(seed: int) -> None:
    """Plain, recorded and fused, of any dtypes, they are NumPy's to the last digit: all numbers are small and whole."""
    text, shapes = anything(seed)
    rng = np.random.default_rng(seed)
    kinds = ["float64", "float32", "float16", "complex64", "complex128", "int8", "int64", "uint32", "bool"]
    names = [rng.choice(kinds)] * len(shapes) if seed % 3 else rng.choice(kinds, len(shapes))
    given = [
        (rng.integers(0, 3, shape) - (name[0] in "fci")).astype(name) for shape, name in zip(shapes, names, strict=True)
    ]
    expected = np.einsum(text, *given)
    fused = xt.fuse(lambda *x: xt.einsum(text, *x))
    ways = {
        "plain": xt.einsum,
        "NumPy's name": xnp.einsum,
        "fused": lambda text, *x: [fused(*x) for _ in range(3)][-1],
    }
    for lazy in ("auto", "always"):
        for way, function in ways.items():
            with xt.options(lazy=lazy):
                found = np.asarray(function(text, *[xt.asarray(one, copy=True) for one in given]))
            np.testing.assert_array_equal(found, expected, strict=True, err_msg=f"{text} {way} {lazy}")


@pytest.mark.parametrize(("text", "axes"), [("ii->i", 2), ("ij->ji", 2), ("iji->ij", 3), ("...i->i...", 3)])
def test_views(text: str, axes: int) -> None:
    """What sums nothing of one operand is a view that can be written, as NumPy's."""
    for namespace in (xt, xnp):
        x, a = xt.zeros((3,) * axes), np.zeros((3,) * axes)
        namespace.einsum(text, x)[...] = 1.0
        np.einsum(text, a)[...] = 1.0
        np.testing.assert_array_equal(np.asarray(x), a)


@pytest.mark.skipif(not blas.address("dgemm"), reason="NumPy's BLAS is not OpenBLAS")
def test_what_is_fused() -> None:
    """Sums of products are part of the machine code around them."""
    rng = np.random.default_rng(0)
    for text, *shapes in (
        ("ij,j->i", (8, 8), (8,)),
        ("nij,nj->ni", (50, 3, 3), (50, 3)),
        ("ai,bj,ij->ab", (4, 5), (6, 7), (5, 7)),
        ("ab,bcd->acd", (2, 2), (2, 2, 16)),
        ("ii->", (9, 9)),
    ):
        for dtype in ("float64", "complex128"):
            given = [rng.random(shape).astype(dtype) for shape in shapes]
            with xt.options(engine="llvm"):
                fused = xt.fuse(lambda *x: xt.exp(xt.einsum(text, *x) * 0.1))  # noqa: B023
                for _ in range(3):
                    found = fused(*[xt.asarray(one) for one in given])
                assert "library: " not in fused.explained(), text
            np.testing.assert_allclose(np.asarray(found), np.exp(np.einsum(text, *given) * 0.1), rtol=1e-12)
