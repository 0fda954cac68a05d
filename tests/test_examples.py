"""The examples: what they compute is right, learns, and can be drawn."""

from __future__ import annotations

from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import xtensor as xt

pytest.importorskip("sklearn")
EXAMPLES = Path(__file__).resolve().parent.parent / "examples"


@pytest.fixture
def example(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Return the function that imports an example by its name."""
    monkeypatch.syspath_prepend(str(EXAMPLES))
    return import_module


def check(found: Any, share: float) -> None:
    """Assert that a network has learned to read digits it has not seen."""
    assert found.losses[-1] < found.losses[0] / 2
    assert found.accuracy >= share
    assert int(xt.sum(found.confusion)) == 450
    assert int(xt.linalg.trace(found.confusion)) == round(450 * found.accuracy)


def test_test_images_are_not_learned_from(example: Any) -> None:
    """Every image of the data is in one of the two parts, once."""
    from sklearn.datasets import load_digits

    x, y, x_test, y_test = example("digits").data(xt.random.default_rng(0))
    assert (x.shape, x_test.shape) == ((1347, 64), (450, 64))
    both = np.concatenate([np.c_[a.numpy() * 16, b.numpy()] for a, b in ((x, y), (x_test, y_test))])
    digits = load_digits()
    given = np.c_[digits.data, digits.target]
    np.testing.assert_array_equal(both[np.lexsort(both.T)], given[np.lexsort(given.T)])


def test_a_network_learns_to_read(example: Any) -> None:
    """The example of the docs reaches the accuracy they tell, or nearly so: last bits depend on the processor."""
    check(example("digits_mlp").train(quiet=True), 0.97)


def test_a_convolutional_network_learns_to_read(example: Any) -> None:
    """A third of the epochs of the docs' example are enough for 98 %; two runs are equal to the last bit."""
    network = example("digits_cnn")
    check(network.train(epochs=5, quiet=True), 0.98)
    first, second = (network.train(seed=1, epochs=1, quiet=True) for _ in range(2))
    assert first.losses == second.losses and first.accuracy == second.accuracy
    for one, other in zip(first.layers, second.layers, strict=True):
        np.testing.assert_array_equal(one["w"].numpy(), other["w"].numpy())


@pytest.mark.parametrize("name", ["digits_mlp", "digits_cnn"])
def test_figures_of_networks(example: Any, name: str, tmp_path: Path) -> None:
    """They are written as pictures."""
    pytest.importorskip("matplotlib")
    module = example(name)
    layers = module.start(xt.random.default_rng(0)) if name == "digits_cnn" else []
    found = example("digits").Learned(layers, [2.0, 1.0], 0.1, xt.ones((10, 10), dtype=xt.int64))
    module.draw(found).savefig(tmp_path / "figure.png")
    assert (tmp_path / "figure.png").read_bytes().startswith(b"\x89PNG")


# SciPy's names for our padding modes.
MODES = {"zeros": "constant", "reflect": "mirror", "replicate": "nearest", "circular": "wrap"}


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("name", ["china.jpg", "flower.jpg"])
def test_filters_are_scipys(example: Any, name: str, mode: str) -> None:
    """Sobel's filter and Gaussian bells on photographs, whatever stands around them."""
    ndimage = pytest.importorskip("scipy.ndimage")
    filters = example("filters")
    picture = xt.astype(filters.photograph(name), xt.float64)
    for sigma in (0.8, 3.0):
        expected = ndimage.gaussian_filter(picture.numpy(), sigma, mode=MODES[mode], axes=(0, 1))
        found = filters.blurred(picture, sigma, mode).numpy()
        np.testing.assert_allclose(found, expected, rtol=0, atol=1e-14)
    grey = xt.mean(picture, axis=2)
    expected = np.stack([ndimage.sobel(grey.numpy(), axis, mode=MODES[mode]) for axis in (0, 1)])
    np.testing.assert_allclose(filters.slopes(grey, mode).numpy(), expected, rtol=0, atol=1e-14)


def test_figure_of_filters(example: Any) -> None:
    """Three pictures; the edges of a photograph are those of its parts in double precision, to single precision."""
    filters = example("filters")
    picture = filters.photograph()
    exact = np.hypot(*filters.slopes(xt.mean(xt.astype(picture, xt.float64), axis=2)).numpy())
    np.testing.assert_allclose(filters.edges(picture).numpy(), exact, rtol=0, atol=1e-5)
    pytest.importorskip("matplotlib")
    assert len(filters.draw(picture).axes) == 3
