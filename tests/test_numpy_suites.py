"""Calls that the test suites of NumPy and of CuPy make: the same results, dtypes and classes of errors as NumPy's.

Each is made on small arrays, which NumPy's own functions take, and on large ones, which go the long way.
"""

from __future__ import annotations

import ctypes
import pickle
from array import array
from collections import namedtuple
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy
import pytest

import xtensor as xt
import xtensor.numpy as xnp

Place = namedtuple("Place", "row column")
Call = Callable[[Any, Any, Any], Any]


def written(np: Any, key: Any, value: Any) -> Any:
    """Return a matrix into which a value was written."""
    x = np.zeros((4, 4))
    x[key] = value
    return x


def written_beside(x: Any, other: Any) -> Any:
    """Return an array after a write into it, if that left another one as it was."""
    before = other.tolist()
    x[0, 0] = 9
    return x if other.tolist() == before else None


def clipped(np: Any, m: Any) -> Any:
    """Return integers of which some were clipped in place."""
    x = (m.ravel()[:12] * 10).astype("i8")
    np.clip(x, 2, 7, out=x, where=x > 5)
    return x


# Functions of the library, a matrix of floats and a vector of integers.
CALLS: dict[str, Call] = {
    "named tuple as a key": lambda np, m, v: m[Place(1, 2)],
    "write at a named tuple": lambda np, m, v: written(np, Place(1, 2), 5),
    "concatenate, dtype": lambda np, m, v: np.concatenate([m, m], dtype=int),
    "concatenate, unsafe": lambda np, m, v: np.concatenate([m * 10, m], dtype=int, casting="unsafe"),
    "concatenate into out": lambda np, m, v: np.concatenate(
        (v + 2**62, v.astype("u8")), out=np.zeros(2 * v.size, "i8"), casting="unsafe"
    ),
    "concatenate, out and dtype": lambda np, m, v: np.concatenate((v, v), out=np.zeros(2 * v.size, int), dtype=int),
    "concatenate numbers": lambda np, m, v: np.concatenate([m.astype("f4"), 1.0], axis=None),
    "stack, safe": lambda np, m, v: np.stack((m, m), dtype="f4", casting="safe"),
    "hstack, no": lambda np, m, v: np.hstack((m, m), dtype="f4", casting="no"),
    "vstack, dtype": lambda np, m, v: np.vstack((m, m), dtype="f4"),
    "roll by an array": lambda np, m, v: np.roll(m, np.asarray([1, 2]), axis=(0, 1)),
    "roll twice": lambda np, m, v: np.roll(m, (1, 2), axis=0),
    "roll a range of axes": lambda np, m, v: np.roll(m, (1, 1), axis=range(2)),
    "squeeze a number": lambda np, m, v: np.squeeze(np.asarray(3.0), axis=0),
    "transpose by an array": lambda np, m, v: m[:, None].transpose(numpy.array([2, 0, 1])),
    "transpose by indices": lambda np, m, v: np.transpose(m[:, None], np.asarray([2, 0, 1])),
    "transpose by a range": lambda np, m, v: m.transpose(range(1, -1, -1)),
    "transpose, one of two": lambda np, m, v: m.transpose(1),
    "moveaxis, ranges": lambda np, m, v: np.moveaxis(m[:, None], range(2), range(1, 3)),
    "moveaxis, arrays": lambda np, m, v: np.moveaxis(m[:, None], numpy.array([0, 1]), numpy.array([1, 2])),
    "tile by a range": lambda np, m, v: np.tile(m, range(1, 3)),
    "tensordot, ranges": lambda np, m, v: np.tensordot(m[:9], m[:, :9], axes=[range(1, 2), range(1)]),
    "clip where": lambda np, m, v: clipped(np, m),
    "clip, dtype": lambda np, m, v: np.clip(v, 2, 7, dtype="f4"),
    "clip, unknown": lambda np, m, v: np.clip(v, 2, 7, other=1),
    "clip complex": lambda np, m, v: (m + 1j).clip(0, 2),
    "sum into integers": lambda np, m, v: np.sum(m, axis=0, out=np.zeros(m.shape[1], "i8")),
    "sum of halves into floats": lambda np, m, v: np.sum(m.astype("f4"), axis=0, out=np.zeros(m.shape[1])),
    "roll several times": lambda np, m, v: np.roll(v, np.int64(2), axis=[0, -1]),
    "transpose by nothing": lambda np, m, v: m.transpose(()),
    "var into integers": lambda np, m, v: np.var(m * 9, axis=0, out=np.zeros(m.shape[1], "i4")),
    "max into integers": lambda np, m, v: np.max(m, axis=0, out=np.zeros(m.shape[1], "i4")),
    "cumsum into integers": lambda np, m, v: np.cumsum(m, axis=0, out=np.zeros(m.shape, "i8")),
    "nansum into integers": lambda np, m, v: np.nansum(m, axis=0, out=np.zeros(m.shape[1], "i8")),
    "add into NumPy's": lambda np, m, v: np.add(m, 1, out=numpy.zeros(m.shape)),
    "sum into NumPy's": lambda np, m, v: np.sum(m, axis=0, out=numpy.zeros(m.shape[1])),
    "no axes": lambda np, m, v: [np.ndim(None), np.ndim("abc"), np.size(None), np.iscomplexobj(None), np.ndim({1})],
    "view as an array": lambda np, m, v: m.view(np.ndarray) + m.view(type=np.ndarray),
    "dot by name": lambda np, m, v: v.dot(b=v),
    "Fortran order": lambda np, m, v: np.add(m, 1, order="F").flags.f_contiguous,
    "Fortran order in a pickle": lambda np, m, v: pickle.loads(pickle.dumps(np.asfortranarray(m))).flags.f_contiguous,
    "block of one": lambda np, m, v: [written_beside(np.block(m), m), m],
    "block of a list of one": lambda np, m, v: [written_beside(np.block([m]), m), m],
    "vectorize, name": lambda np, m, v: np.vectorize(abs).__name__ == "abs",
    "vectorize a number": lambda np, m, v: np.vectorize(3),
    "dtype bool": lambda np, m, v: np.add(m, m, dtype=bool),
    "dtype bool, unsafe": lambda np, m, v: np.multiply(m, m, dtype=bool, casting="unsafe"),
    "dtype bool of a comparison": lambda np, m, v: np.less(m, 0, dtype=bool),
    "number, equiv": lambda np, m, v: np.exp(1.0, dtype="f4", casting="equiv"),
    "number, safe": lambda np, m, v: np.exp(1.0, dtype="f4", casting="safe"),
    "array and number, equiv": lambda np, m, v: np.add(m.astype("f4"), 1, dtype="f4", casting="equiv"),
}


def outcome(call: Call, np: Any, wide: int) -> Any:
    """Return a call's results with their dtypes, or the classes of its error."""
    m = numpy.random.default_rng(0).normal(size=(12, wide))
    v = numpy.arange(12 * wide)
    try:
        found = call(np, np.asarray(m.copy()), np.asarray(v))
    except Exception as error:
        return type(error).__mro__
    return [(one.dtype, one.tolist()) for one in map(numpy.asarray, found if isinstance(found, list) else [found])]


@pytest.mark.parametrize("wide", [10, 5000])
@pytest.mark.parametrize("name", CALLS)
def test_as_numpy_does(name: str, wide: int) -> None:
    ours, theirs = (outcome(CALLS[name], np, wide) for np in (xnp, numpy))
    if isinstance(theirs, tuple):
        theirs = next(kind for kind in theirs if kind.__module__ == "builtins")
        assert isinstance(ours, tuple), ours
        assert theirs in ours
    else:
        assert ours == theirs


@pytest.mark.parametrize("function", [xnp.sin, xnp.interp, xnp.median, xnp.linalg.eig, xnp.fft.rfft, xt.special.agm])
def test_functions_are_pickled(function: Any) -> None:
    """By name, as processes and saved models need it."""
    assert pickle.loads(pickle.dumps(function)) is function


BUFFERS: dict[str, Callable[[], Any]] = {
    "bytearray": lambda: bytearray(8 * 10**6),
    "array": lambda: array("d", bytes(8 * 10**6)),
    "ctypes": lambda: (ctypes.c_double * 10**6)(),
    "array's data": lambda: numpy.zeros(10**6).data,
}


@pytest.mark.parametrize("kind", BUFFERS)
def test_buffers_belong_to_others(kind: str) -> None:
    """What was computed from a buffer does not change when its owner writes to it; the array itself does."""
    buffer = BUFFERS[kind]()
    x = xnp.frombuffer(buffer)
    y = xnp.sqrt(x) + 2
    memoryview(buffer).cast("B")[6:8] = b"\xf0\x3f"  # the first number becomes 1
    assert y[:2].tolist() == [2, 2]
    assert x[:2].tolist() == [1, 0]


def test_archives_stay_archives(tmp_path: Path) -> None:
    numpy.savez(tmp_path / "both.npz", a=numpy.ones(3))
    numpy.save(tmp_path / "one.npy", numpy.ones(3))
    for _ in range(3):
        assert isinstance(xnp.load(tmp_path / "both.npz")["a"], xt.Tensor)
        assert isinstance(xnp.load(tmp_path / "one.npy", mmap_mode="r"), xt.Tensor)
