"""Elements in the room of NumPy's names: isinstance() takes them for NumPy's scalars, and nothing else changes."""

from __future__ import annotations

import _thread
import contextlib
import copy
import functools
import io
import json
import numbers
import pickle
import threading
import types
import unittest
from collections.abc import Callable
from typing import Any

import numpy
import pytest

import xtensor as xt
import xtensor.numpy as np

KINDS = (bool, int, float, complex, str, list, numbers.Number, numbers.Real, numbers.Integral)
NAMES = (
    *("generic", "number", "integer", "signedinteger", "unsignedinteger", "floating", "inexact", "complexfloating"),
    *("bool_", "int8", "int64", "float32", "float64", "complex128"),
)
DTYPES = ("bool", "int8", "uint16", "int64", "float32", "float64", "complex64", "complex128")

# Ways to an element or to a result without axes.
WAYS: dict[str, Callable[[Any, Any], Any]] = {
    "element": lambda np, x: x[1],
    "element of a row": lambda np, x: x.reshape(1, -1)[0][2],
    "result": lambda np, x: np.max(x),
    "method": lambda np, x: x.sum(),
    "operator": lambda np, x: x[0] * x[1],
    "function": lambda np, x: np.minimum(x[1], x[2]),
    "iterated": lambda np, x: next(iter(x)),
    "large": lambda np, x: np.repeat(x, 100_000).sum(),
    "array of an element": lambda np, x: np.array(x[0]),
    "the same of another dtype": lambda np, x: np.asarray(x[0], np.complex128),
    "an element as an array": lambda np, x: np.asarray(x[0]),
    "copy of an element": lambda np, x: np.copy(x[0]),
    "copy by its method": lambda np, x: x[0].copy(),
    "array": lambda np, x: x,
}


def answers(np: Any, x: Any) -> list[bool]:
    return [isinstance(x, kind) for kind in (*KINDS, *(getattr(np, name) for name in NAMES), np.ndarray)]


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("way", WAYS)
def test_elements_are_instances_of_what_numpys_are(way: str, dtype: str) -> None:
    native = numpy.ones(3, dtype)
    assert answers(np, WAYS[way](np, np.asarray(native))) == answers(numpy, WAYS[way](numpy, native))


def test_an_element_says_its_class() -> None:
    x = np.ones(3)
    assert x[0].__class__ is numpy.float64 and x.__class__ is xt.Tensor and type(x[0]) is xt.Tensor
    assert isinstance(x[0], xt.Tensor) and not isinstance(np.asarray(2.0), float)
    y = xt.asarray([1.0, 2.0], requires_grad=True)
    assert isinstance((y * y).sum(), float) and isinstance(y[0], float)


def test_an_array_made_from_an_element_has_memory_of_its_own() -> None:
    x = np.arange(3.0)
    for make in (np.asarray, np.array, np.copy, np.asanyarray):
        y = z = make(x[1])
        y += 1.0
        y[...] = y + 1.0
        assert z == 3.0 and x.tolist() == [0.0, 1.0, 2.0]


def test_a_captured_function_goes_the_same_way() -> None:
    def function(x: Any) -> Any:
        return x * 2 if isinstance(x.sum(), float) and not isinstance(x, float) else x * 3

    x = np.arange(5.0)
    fused = xt.fuse(function)
    for given in (x, np.astype(x, np.float32), x, np.arange(5)):
        for _ in range(3):
            assert fused(given).tolist() == function(given).tolist()


def test_a_test_of_the_class_computes_nothing() -> None:
    x = np.exp(np.linspace(0.0, 1.0, 1_000_000)).sum()
    assert isinstance(x, float) and x.is_pending


def test_elements_can_be_copied_and_sent() -> None:
    x = np.arange(3.0)[2]
    for one in (copy.copy(x), copy.deepcopy(x), pickle.loads(pickle.dumps(x))):
        assert type(one) is xt.Tensor and one == 2.0 and np.isscalar(one) and isinstance(one, float)
    assert not np.isscalar(pickle.loads(pickle.dumps(np.asarray(2.0))))  # of an array without axes


# Where a function asks whether an argument is a number, an element is not: it has a dtype, and may have a gradient.
CALLS: tuple[Callable[[Any, Any, Any], Any], ...] = (
    lambda np, x, v: np.clip(x, v[0], v[2]),
    lambda np, x, v: np.select([x > 1], [v[1]], v[0]),
    lambda np, x, v: np.choose([0, 1, 0], [v[1], v[2]]),
    lambda np, x, v: np.quantile(x, v[1] / 4),
    lambda np, x, v: np.gradient(x, v[1]),
    lambda np, x, v: np.linspace(v[0], v[2], 5),
    lambda np, x, v: np.linspace(np.float32(0), v[2], 5),
    lambda np, x, v: np.logspace(v[0], v[2], 3, base=v[2]),
    lambda np, x, v: np.full(3, v[2]),
    lambda np, x, v: np.full_like(x, v[2]),
    lambda np, x, v: np.heaviside(x, v[1]),
    lambda np, x, v: np.where(x > 1, x, v[1]),
    lambda np, x, v: np.copysign(v[1], x),
    lambda np, x, v: np.interp(v[1], x, x),
    lambda np, x, v: np.piecewise(x, [x > 1], [v[1], v[2]]),
    lambda np, x, v: np.arange(v[0], v[2], v[1]),
    lambda np, x, v: np.full((2, 2), x[1]),
    lambda np, x, v: np.std(x, ddof=v[1]),
    lambda np, x, v: np.nan_to_num(x, nan=v[1]),
    lambda np, x, v: np.pad(x, 1, constant_values=v[2]),
    lambda np, x, v: np.insert(x, 1, v[1]),
    lambda np, x, v: np.append(x, v[1]),
    lambda np, x, v: np.result_type(x, v[1]),
    lambda np, x, v: x[np.arange(3)[1] :],
    lambda np, x, v: np.roll(x, np.arange(3)[1]),
    lambda np, x, v: np.repeat(x, np.arange(3)[2]),
    lambda np, x, v: np.zeros(np.arange(4)[3]),
    lambda np, x, v: np.array([v[0], v[1], 2]),
    lambda np, x, v: np.sum(x, axis=np.arange(3)[0], initial=v[1]),
)


def called(np: Any, call: Callable[[Any, Any, Any], Any], dtype: str) -> Any:
    x, v = numpy.arange(3, dtype="float32"), numpy.arange(3, dtype=dtype)
    return call(np, np.asarray(x), np.asarray(v))


@pytest.mark.parametrize("number", range(len(CALLS)))
@pytest.mark.parametrize("dtype", ["float64", "float32", "int64"])
def test_an_element_is_no_number_without_a_dtype(number: int, dtype: str) -> None:
    found, wanted = called(np, CALLS[number], dtype), called(numpy, CALLS[number], dtype)
    if isinstance(wanted, numpy.dtype):
        assert found == wanted
    else:
        assert found.dtype == wanted.dtype and numpy.allclose(numpy.asarray(found), wanted)


def test_an_element_that_is_assigned_keeps_its_gradient() -> None:
    def function(v: Any) -> Any:
        y = np.zeros(4)
        y[1] = v[0]
        np.fill_diagonal(z := np.zeros((2, 2)), v[1])
        y.flat[2] = 3.0
        return (y * y).sum() + z.sum() + np.full(2, v[0]).sum() + np.linspace(v[0], v[1], 3).sum()

    assert xt.grad(function)(np.array([2.0, 3.0])).tolist() == [4.0 + 2.0 + 1.5, 2.0 + 1.5]


ASKED = """
import xtensor as xt, numbers
{line}
x = xt.ones(3)
print(isinstance(x[0], float), isinstance(x[0], numbers.Number), x[0].__class__ is xt.Tensor)
"""


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("", "False False True"),
        ("import xtensor.numpy as np", "True True False"),
        ("from xtensor.numpy import sin", "True True False"),
        ("from xtensor.numpy import array, ndarray", "True True False"),
        ("from xtensor.numpy.linalg import norm", "True True False"),
        ("import xtensor.numpy.linalg as la", "True True False"),
        ("_ = xt.ones(3).cumsum(0)", "False False True"),
        ("import numpy as np; np.median(xt.ones(3))", "False False True"),
    ],
)
def test_the_answer_depends_on_who_asks(line: str, expected: str) -> None:
    """Without NumPy's names an element is an array, as in every other library of the standard."""
    namespace = {"__name__": f"asking_{line}"}
    code = compile(ASKED.format(line=line), "asking", "exec")
    out = io.StringIO()
    with contextlib.redirect_stdout(out):
        exec(code, namespace)
    assert out.getvalue().strip() == expected


def test_a_module_may_import_later() -> None:
    names: dict[str, Any] = {"__name__": "later", "x": np.ones(2)}
    exec("before = isinstance(x[0], float)", names)
    exec("import xtensor.numpy as np", names)
    exec("after = isinstance(x[0], float)", names)
    assert (names["before"], names["after"]) == (False, True)


def test_other_libraries_see_arrays() -> None:
    """Those that ask whether something is a number would convert it."""
    x = np.ones(3)[0]
    assert not numpy.isscalar(x) and np.isscalar(x)
    assert json.dumps([x], indent=1, default=float) == json.dumps([1.0], indent=1)


def test_python_asks_for_its_callers() -> None:
    x = np.ones(3)
    dispatched = functools.singledispatch(lambda x: "other")
    dispatched.register(float, lambda x: "number")
    dispatched.register(np.ndarray, lambda x: "array")
    assert dispatched(x[0]) == "number" and dispatched(1.5) == "number"
    assert isinstance(x[0], int | float)
    unittest.TestCase().assertIsInstance(x[0], float)
    match x[0]:
        case float():
            pass
        case _:
            pytest.fail("an element is a float")


def test_what_a_module_has_now_decides() -> None:
    """Also after a name stands for something else, and for another module of the same name."""
    asked = compile("found = isinstance(x, float)", "asking", "exec")
    names: dict[str, Any] = {"__name__": "changing", "np": numpy, "x": np.ones(1)[0], "found": None}
    for library in (numpy, np, numpy, np):
        names["np"] = library
        exec(asked, names)
        assert names["found"] == (library is np)
        again = {"__name__": "changing", "np": library, "x": names["x"], "found": None}
        exec(asked, again)
        assert again["found"] == (library is np)
    names = {"__name__": "changing", "nameless": types.ModuleType("nameless"), "x": names["x"]}
    del names["nameless"].__name__
    exec(asked, names)
    assert names["found"] is False


def test_a_thread_without_python_asks() -> None:
    x, done = np.ones(1)[0], threading.Event()

    class Told:
        def __init__(self, *_: Any) -> None:
            done.set()

    _thread.start_new_thread(isinstance, (x, float))
    _thread.start_new_thread(isinstance, (x, numbers.Real))
    _thread.start_new_thread(Told, ())
    assert done.wait(10)


@pytest.mark.parametrize("size", [1, 100_000])
def test_results_without_axes_are_values_at_every_size(size: int) -> None:
    x = np.ones(size)
    for result in (np.sum(x), x.mean(), np.max(x), np.median(x), np.dot(x, x)):
        before = result
        result += 1.0
        assert isinstance(before, float) and before is not result
