"""What people do with arrays and elements outside of arithmetic: the same text, in NumPy and here."""

from __future__ import annotations

import math
import operator
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy
import pytest

import xtensor as xt
import xtensor.numpy as ours

Call = Callable[[Any], Any]

# With np: integers i, floating numbers f, as elements of arrays and results of reductions.
ELEMENTS = """
[0] * i[1] | i[1] * [0, 7] | (1, 2) * np.sum(i) | np.sum(i) * (1,) | i[1] * [[1]] | [1] * -i[2]
'ab' * i[1] | b'a' * i[1]
i[1] + [1] | np.multiply(i[1], [1, 2]) | np.asarray(2) * [1, 2] | [1, 2] * np.asarray(2) | range(i[1]) | [5, 6, 7][i[1]]
round(f[0]) | round(f[1]) | round(f[2], 1) | round(f[0], 0) | round(i[1]) | round(i[2] * 25, -1) | round(np.mean(f))
round(f[0].astype(np.float32)) | [0] * round(f[2]) | math.floor(f[2]) | math.ceil(f[2]) | math.trunc(f[2])
divmod(i[2], 2) | divmod(7, i[1]) | '%d' % i[2] | f'{f[2]:.1f}' | {1: 'a'}[i[0]] | sorted(f) | max(f) | sum(i)
round(f[0] / 0) | round(f[0] * np.nan)
""".replace("\n", "|").split("|")


def outcome(text: str, np: Any) -> Any:
    """Return what a text gives, or the type of its error."""
    i, f = np.asarray([1, 2, 3]), np.asarray([2.5, 3.5, 4.56])
    try:
        return eval(text, {"np": np, "i": i, "f": f, "math": math})
    except (ValueError, OverflowError) as error:
        return type(error)


def plain(x: Any) -> Any:
    """Return a result with arrays and scalars as Python's numbers, and whether they are arrays."""
    if isinstance(x, (list, tuple)):
        return type(x)(map(plain, x))
    return ("array", x.tolist()) if isinstance(x, (numpy.ndarray, numpy.generic, xt.Tensor)) else x


@pytest.mark.parametrize("lazy", ["auto", "always"])
@pytest.mark.parametrize("text", [text.strip() for text in ELEMENTS if text.strip()])
def test_elements_are_as_numpys(text: str, lazy: Any) -> None:
    with numpy.errstate(all="ignore"):
        wanted = plain(outcome(text, numpy))
    with xt.options(lazy=lazy):
        assert plain(outcome(text, ours)) == wanted


def test_a_repeated_list_under_fuse_follows_the_value() -> None:
    fused = xt.fuse(lambda x: len([0] * xt.sum(x)))
    assert [fused(xt.asarray([1, n])) for n in (1, 1, 1, 4, 2)] == [2, 2, 2, 5, 3]


@pytest.mark.parametrize("dtype", ["uint8", "int16", "float64", "bool"])
@pytest.mark.parametrize("make", [lambda n: n, lambda n: n[::2], lambda n: n.reshape(3, 2).T, lambda n: n[1]])
def test_bytes_are_as_numpys(make: Call, dtype: str, tmp_path: Path) -> None:
    n = make(numpy.arange(6).astype(dtype))
    x = make(xt.asarray(numpy.arange(6).astype(dtype), copy=True))
    assert bytes(x) == bytes(n)
    n.tofile(tmp_path / "n")
    x.tofile(tmp_path / "x")
    assert (tmp_path / "x").read_bytes() == (tmp_path / "n").read_bytes()


@pytest.mark.parametrize("save", ["savez", "savez_compressed"])
def test_archives(save: str, tmp_path: Path) -> None:
    """Tensors come out of .npz files, NumPy's own included."""
    x = xt.reshape(xt.arange(6.0), (2, 3))
    for np in (ours, numpy):
        getattr(np, save)(tmp_path / "x.npz", x, mask=x > 2)
        with ours.load(tmp_path / "x.npz") as found:
            assert (set(found), found.files, len(found), "mask" in found) == ({"arr_0", "mask"}, list(found), 2, True)
            assert isinstance(found["mask"], xt.Tensor)
            xt.testing.assert_array_equal(found["arr_0"], x)
            kept = found["mask"]
        xt.testing.assert_array_equal(kept, x > 2)
        with pytest.raises((ValueError, AttributeError)):  # closed
            found["mask"]
        with pytest.raises(KeyError, match="other"), ours.load(tmp_path / "x.npz") as found:
            found["other"]


def test_archives_of_objects_are_refused(tmp_path: Path) -> None:
    numpy.savez(tmp_path / "x.npz", text=numpy.asarray(["a"]))
    with ours.load(tmp_path / "x.npz") as found, pytest.raises(TypeError, match="dtype"):
        found["text"]


# ---- pandas and matplotlib


def test_pandas() -> None:
    """Frames are made of tensors, and NumPy's functions of a Series are its own, as with NumPy."""
    pandas = pytest.importorskip("pandas")
    n = numpy.asarray([1.0, 4.0, 9.0])
    x = xt.asarray(n, copy=True)
    series = pandas.Series(n, index=[3, 1, 2])
    makes: list[Call] = [lambda v: pandas.Series(v, index=[3, 1, 2]), lambda v: pandas.DataFrame({"a": v, "b": 1})]
    for made in makes:
        assert made(x).equals(made(n))
    frame = pandas.DataFrame({"a": [1, 2, 3]})
    frame["b"] = x
    assert frame.dtypes.tolist() == [numpy.int64, numpy.float64]
    assert frame.iloc[ours.argsort(-x)].b.tolist() == [9.0, 4.0, 1.0]
    calls: list[Callable[[Any, Any], Any]] = [
        lambda np, v: np.sqrt(series),
        lambda np, v: np.add(series, v),
        lambda np, v: v * series,
    ]
    for call in calls:
        assert call(ours, x).equals(call(numpy, n))
    assert isinstance(ours.mean(series), xt.Tensor)
    assert float(ours.mean(series)) == numpy.mean(series)
    assert pandas.cut([2, 5], ours.linspace(0, 10, 3)).codes.tolist() == [0, 0]


# What pictures are made of, by the name of the function of matplotlib's axes.
PICTURES: dict[str, Callable[[Any, Any, Any], Any]] = {
    "plot": lambda axes, x, z: axes.plot(x, z),
    "scatter": lambda axes, x, z: axes.scatter(x, x, c=x, s=x * 10),
    "bar": lambda axes, x, z: axes.bar(x, x * 2, width=x[1] - x[0], bottom=x, label=["a"] * x.size),
    "barh": lambda axes, x, z: axes.barh(x, x * 2),
    "hist": lambda axes, x, z: axes.hist(x, bins=x, weights=x),
    "imshow": lambda axes, x, z: axes.imshow(z, extent=(x[0], x[-1], 0, 1), vmin=z.min(), vmax=z.max()),
    "contourf": lambda axes, x, z: axes.contourf(x, x, z, levels=x),
    "pcolormesh": lambda axes, x, z: axes.pcolormesh(x, x, z),
    "errorbar": lambda axes, x, z: axes.errorbar(x, x, yerr=z[:2]),
    "fill_between": lambda axes, x, z: axes.fill_between(x, x * 2, where=x > 1),
    "quiver": lambda axes, x, z: axes.quiver(x, x, x, x),
    "ticks": lambda axes, x, z: axes.set_xticks(x[::2], [f"{one:.1f}" for one in x[::2]]),
    "limits": lambda axes, x, z: axes.set(xlim=(x[0], x[-1]), ylim=x[[0, 2]]),
    "lines": lambda axes, x, z: (axes.axhline(x[1]), axes.vlines(x, 0, x), axes.text(x[0], x[1], "a")),
    "boxplot": lambda axes, x, z: axes.boxplot(z),
    "stem": lambda axes, x, z: axes.stem(x, x),
}


@pytest.mark.parametrize("name", PICTURES)
def test_matplotlib(name: str) -> None:
    """A picture of tensors is that of their arrays, pixel by pixel."""
    pytest.importorskip("matplotlib")
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    pixels = []
    for np in (numpy, ours):
        figure = Figure(figsize=(3, 2))
        canvas: Any = FigureCanvasAgg(figure)
        x = np.linspace(0.0, 2.0, 5)
        PICTURES[name](figure.add_subplot(), x, np.sin(np.add.outer(x, x)))
        canvas.draw()
        pixels.append(numpy.asarray(canvas.buffer_rgba()).copy())
    assert numpy.array_equal(pixels[0], pixels[1])


def test_broadcast_arrays_keeps_objects_and_gradients() -> None:
    x = xt.asarray([1.0, 2.0, 3.0], requires_grad=True)
    broadcast: Any = numpy.broadcast_arrays
    found = broadcast(x, None, [["a"], ["b"]])
    assert [one.shape for one in found] == [(2, 3)] * 3
    assert found[1].dtype == object
    assert found[2].dtype.kind == "U"
    xt.sum(found[0]).backward()
    assert x.grad is not None
    assert x.grad.tolist() == [2.0, 2.0, 2.0]
    with pytest.raises(RuntimeError, match="gradient"):
        ours.broadcast_arrays(x, numpy.ma.masked_array([1.0], [True]))


@pytest.mark.parametrize("lazy", ["auto", "always"])
@pytest.mark.parametrize(
    "make",
    [
        lambda z: z[0].astype("complex64"),
        lambda z: z[0].copy(),
        lambda z: z[0].real,
        lambda z: z[0].imag,
        lambda z: z.real[0].real,
        lambda z: ours.inner(z, z),
    ],
)
def test_what_is_made_of_an_element_is_no_array(make: Call, lazy: Any) -> None:
    """`+=` makes another one, so who holds the first sees no change, as with NumPy's scalars."""
    with xt.options(lazy=lazy):
        total = before = make(xt.asarray([1.5 + 2j, 2.0]))
        held = before.item()
        total += 1
        assert (before.item(), total.item()) == (held, held + 1)


@pytest.mark.parametrize("lazy", ["auto", "always"])
@pytest.mark.parametrize("call", [operator.add, operator.mul, xt.add, ours.multiply, operator.matmul, xt.matmul])
@pytest.mark.filterwarnings("ignore:the matrix subclass")
@pytest.mark.parametrize(
    "make", [lambda: numpy.ma.masked_array([1.0, 2.0], [True, False]), lambda: numpy.matrix("1.; 2.")]
)
def test_masks_and_matrices_are_no_operands(make: Any, call: Any, lazy: Any) -> None:
    """What they mean would be lost in silence: their own operators and NumPy's functions keep it."""
    other, x = make(), xt.asarray([1.0, 2.0])
    with xt.options(lazy=lazy):
        if call in (xt.add, xt.matmul):
            with pytest.raises(TypeError, match=r"numpy\.asarray\(x\) makes one"):
                call(x, other)
        else:
            native = numpy.multiply if call is ours.multiply else call
            assert told(call, x, other) == told(native, numpy.asarray([1.0, 2.0]), other)


def told(call: Any, *operands: Any) -> tuple[type, str]:
    """Return what a call gives, or the error that it raises: NumPy's product of an array and a masked one does."""
    try:
        found = call(*operands)
    except ValueError as error:
        return type(error), str(error)
    return type(found), repr(found)
