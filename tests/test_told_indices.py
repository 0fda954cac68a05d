"""Indices and bounds of slices that later calls of a captured function are told: beside NumPy, over more values than
are kept as kinds of their own.
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import xtensor as xt
import xtensor.numpy as xnp
from xtensor.calls import known, thin
from xtensor.codegen.cpu import compile as compile_

ROWS = 40


@pytest.fixture(params=["python", "machine code"])
def way(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """Who finds out what runs."""
    monkeypatch.setattr(known.Known, "_is_small", lambda *_: False)
    if request.param == "machine code":
        thin.exchange()
        monkeypatch.setattr(known, "DISPATCHED_AFTER", 1)
        monkeypatch.setattr(known, "AGAIN_AFTER", 1)
        monkeypatch.setattr(compile_, "HOT_CALLS", 0)
    else:
        monkeypatch.setattr(known, "DISPATCHED_AFTER", 1 << 30)
    return str(request.param)


def update(s: Any, k: int) -> Any:
    s.x[k] -= 0.5
    return s.x[k] * 2.0


def returns_view(s: Any, k: int) -> Any:
    """Captured for each value."""
    s.x[k] -= 0.5
    return s.x[k]


def keeps_view(s: Any, k: int) -> Any:
    row = s.x[k]
    row *= 1.5
    s.x += 0.25
    return row + 1.0


def view_of_view(s: Any, k: int) -> Any:
    part = s.x[k : k + 5]
    part[1] = s.x[0]
    part[:, 2] += 3.0
    return part.sum(axis=0)


def elements(s: Any, k: int) -> Any:
    s.x[k, 2] += s.x[k, 1] * 0.5
    s.x[k, -1] = 7.0
    return s.x[k, 2]


def columns(s: Any, k: int) -> Any:
    s.y[:, k] = s.y[:, k - 1] * 0.5 + 1.0
    return s.y[:, k] + s.x[3, 0]


def windows(s: Any, k: int) -> Any:
    s.x[k : k + 4] = s.x[k + 1 : k + 5] * 0.5
    return s.x[k : k + 3, 1:3] + 1.0


def both_axes(s: Any, k: int) -> Any:
    s.y[1, k : k + 3] = 5.0
    return s.y[0:2, k] + s.y[k % 5, 3:5]


def two_numbers(s: Any, k: int) -> Any:
    j = (k * 7) % ROWS
    s.x[k] = s.x[j] + s.x[k]
    return s.x[j] - s.x[k]


def overlapping(s: Any, k: int) -> Any:
    s.x[k : k + 6] += s.x[k + 2 : k + 8]
    return s.x[k] + 1


def ring(s: Any, k: int) -> Any:
    s.x[s.at] = s.x[s.at] * 0.5 + k
    s.at = (s.at + 1) % ROWS
    return s.x.sum()


def negative(s: Any, k: int) -> Any:
    s.x[-k - 1] += 1.0
    return s.x[-k - 1] + 1


def with_new_axes(s: Any, k: int) -> Any:
    return s.x[None, k, :, None] + s.x[..., 1][k]


def with_arrays(s: Any, k: int) -> Any:
    s.x[k, s.at3] += 1.0
    return s.x[s.at3, k % 4]


def integers(s: Any, k: int) -> Any:
    s.n[k] += k
    s.n[k] *= 2
    return s.n[k : k + 2] + 1


def reversed_rows(s: Any, k: int) -> Any:
    s.x[k, ::-1][1:] = s.x[k, :-1] * 2.0
    return s.x[::-1][k] + 1


def grown(s: Any, k: int) -> Any:
    """Of another length at each call: a kind of its own."""
    return s.x[:k].sum() + s.x[k:].sum()


PROGRAMS = [
    *(
        update,
        returns_view,
        keeps_view,
        view_of_view,
        elements,
        columns,
        windows,
        both_axes,
        two_numbers,
        overlapping,
        ring,
    ),
    *(negative, with_new_axes, with_arrays, integers, reversed_rows, grown),
]


def state(xp: Any) -> Any:
    rng = np.random.default_rng(0)
    x, y = rng.standard_normal((ROWS, 4)), rng.standard_normal((6, ROWS))
    return SimpleNamespace(x=xp.array(x), y=xp.array(y), n=xp.arange(ROWS), at=0, at3=xp.array([0, 2, 1]))


def agree(found: Any, expected: Any) -> None:
    for one, other in zip(found, expected, strict=True):
        one = np.asarray(one)
        assert (one.dtype, one.shape) == (np.asarray(other).dtype, np.shape(other))
        np.testing.assert_allclose(one, other, rtol=1e-12)


@pytest.mark.parametrize("program", PROGRAMS, ids=lambda one: str(one.__name__))
def test_indices_of_many_values(program: Callable[..., Any], way: str) -> None:
    fused, s, plain = xt.fuse(program), state(xnp), state(np)
    for call in range(5 * ROWS):
        k = (call * 11) % (ROWS - 8)
        fused._unwatched = fused._not_looked_up = 0
        agree((fused(s, k), s.x, s.y, s.n), (program(plain, k), plain.x, plain.y, plain.n))
        assert s.at == plain.at
    assert fused.why(s, 3) == "" or program is grown
    assert (len(fused._known) == 1) == (program not in (grown, returns_view))


def test_what_is_outside(way: str) -> None:
    """IndexError, with nothing written; slices are shorter, or empty."""

    def step(x: Any, k: int) -> Any:
        x[k] += 1.0
        return x[k : k + 3] * 2.0

    fused, x, plain = xt.fuse(step), xnp.array(np.zeros((ROWS, 3))), np.zeros((ROWS, 3))
    for call in range(3 * ROWS):
        k = (call * 7) % (ROWS - 3)
        fused._unwatched = fused._not_looked_up = 0
        agree((fused(x, k), x), (step(plain, k), plain))
    for k in (ROWS, -ROWS - 1, 1 << 40, -(1 << 70)):
        for each, function in ((x, fused), (plain, step)):
            with pytest.raises(IndexError):
                function(each, k)
        agree((x,), (plain,))
    for k in (ROWS - 1, ROWS - 2, -1, -2, -ROWS):
        for _ in range(3):
            agree((fused(x, k), x), (step(plain, k), plain))


def test_other_arguments_alike(way: str) -> None:
    """Kinds of other shapes have indices of their own; numbers of other types are others."""
    fused = xt.fuse(lambda x, k: x[k] * 2.0)
    for call in range(200):
        rows = (ROWS, ROWS + 5)[call % 2]
        x, k = np.arange(rows * 3.0).reshape(rows, 3), (call * 3) % ROWS
        np.testing.assert_array_equal(fused(xt.asarray(x), k), x[k] * 2.0)
        with pytest.raises((IndexError, TypeError)):
            fused(xt.asarray(x), float(k))
    x = xt.asarray(np.arange(6.0).reshape(2, 3))
    np.testing.assert_array_equal(fused(x, True).shape, (1, 2, 3))


def test_gradients_ask_for_indices() -> None:
    def step(w: Any, k: int) -> Any:
        return xt.value_and_grad(lambda w: xt.sum(w[k] * w[k]))(w)

    fused, w = xt.fuse(step), xt.asarray(np.random.default_rng(0).standard_normal((ROWS, 3)))
    for call in range(4 * ROWS):
        k = (call * 7) % ROWS
        fused._unwatched = fused._not_looked_up = 0
        value, slope = fused(w, k)
        expected = np.zeros((ROWS, 3))
        expected[k] = 2.0 * np.asarray(w)[k]
        np.testing.assert_allclose(slope, expected, rtol=1e-15)
        np.testing.assert_allclose(value, np.sum(np.asarray(w)[k] ** 2), rtol=1e-13)
    assert fused._fixed == {0}
    assert not fused._indexes


def test_views_are_not_returned(way: str) -> None:
    """A view of rows at a number that is returned shares memory, as a plain call's does."""
    fused, x = xt.fuse(lambda x, k: (x[k], x[k] + 1.0)), xnp.array(np.zeros((ROWS, 3)))
    for call in range(4 * ROWS):
        fused._unwatched = fused._not_looked_up = 0
        view, _ = fused(x, call % ROWS)
        view += 1.0
        assert float(x.sum()) == 3.0 * (call + 1)


def test_slices_as_arguments(way: str) -> None:
    """Another object at each call, of the same length or not."""

    def step(w: Any, x: Any, rows: slice) -> Any:
        w -= 0.01 * x[rows].sum(axis=0)
        return x[rows] * w

    fused, w, x = xt.fuse(step), xnp.zeros(4), xnp.array(np.random.default_rng(0).standard_normal((ROWS, 4)))
    plain, y = np.zeros(4), np.asarray(x)
    for call in range(8 * ROWS):
        start = (call * 7) % (ROWS - 5)
        rows = slice(start, start + 5) if call % 9 else (slice(0, 5), slice(start, None), slice(0, 8, 2))[call // 9 % 3]
        fused._unwatched = fused._not_looked_up = 0
        agree((fused(w, x, rows), w), (step(plain, y, rows), plain))


def test_new_slices_are_captured(way: str) -> None:
    fused, w, x = xt.fuse(lambda w, x, rows: w + x[rows].sum(axis=0)), xnp.zeros(4), xnp.ones((ROWS, 4))
    for call in range(3 * ROWS):
        fused._unwatched = fused._not_looked_up = 0
        fused(w, x, slice(call % 35, call % 35 + 5))
    assert fused.why(w, x, slice(3, 8)) == ""
    assert len(fused._known) == 1


def test_slices_in_tuples_and_of_other_things(way: str) -> None:
    def step(x: Any, key: Any, names: Any, part: slice) -> Any:
        return x[key] * len(names[part])

    fused, x = xt.fuse(step), xnp.array(np.arange(ROWS * 4.0).reshape(ROWS, 4))
    for call in range(4 * ROWS):
        k = (call * 3) % (ROWS - 4)
        key, part = (slice(k, k + 2), slice(1, 3)), slice(call % 3, call % 5)
        fused._unwatched = fused._not_looked_up = 0
        agree((fused(x, key, "abcdefgh", part),), (step(np.asarray(x), key, "abcdefgh", part),))


def test_threads_that_are_told_indices(way: str) -> None:
    """Each with a state of its own, all with one function: new kinds are made, and forgotten, all the time."""

    def step(s: Any, k: int) -> Any:
        s.n += 1
        s.last = k
        s.x[k] += 1.0
        return s.x[k] * 2.0 + s.n

    def worker(fused: Any, number: int) -> None:
        s, plain = (SimpleNamespace(n=0, last=0, x=xp.array(np.zeros((40, 3)))) for xp in (xnp, np))
        rng = np.random.default_rng(number)
        try:
            for call in range(100):
                k = int(rng.integers(0, 30))
                if call % 3 == 0:
                    fused._unwatched = fused._not_looked_up = 0
                agree((fused(s, k), s.x), (step(plain, k), plain.x))
                assert (s.n, s.last) == (plain.n, plain.last)
        except Exception as error:
            failed.append(error)

    failed: list[Exception] = []
    before = sys.getswitchinterval()
    try:
        sys.setswitchinterval(1e-6)
        for _ in range(12):
            fused = xt.fuse(step)
            threads = [threading.Thread(target=worker, args=(fused, number)) for number in range(4)]
            for one in threads:
                one.start()
            for one in threads:
                one.join()
            assert not failed, failed[0]
    finally:
        sys.setswitchinterval(before)


@pytest.mark.parametrize("first", ["part", "array"])
def test_memory_of_a_view_at_a_computed_place_is_handed_out(first: str) -> None:
    """As long as such a view, or an array outside, is there, both see what is written."""
    w, x = xt.asarray(np.ones((200, 200)), copy=True), xt.arange(200) * 1.0
    outside = w.numpy() if first == "array" else None
    row = xt.fuse(lambda w, x: w[xt.argmax(x)])(w, x)
    outside = w.numpy()
    outside[199] = 7
    assert float(xt.sum(row)) == 1400.0
    w += 1.0
    assert outside[199, 0] == 8.0 and float(row[0]) == 8.0
    owner = w.blob.owner
    del row
    assert owner.is_exposed()
    del outside
    assert not owner.is_exposed()


@pytest.mark.parametrize("form", ["read", "write", "slice"])
def test_an_index_that_the_function_advances_is_told_at_once(way: str, form: str) -> None:
    """No kind is made of each value, and calls are not left to Python until these are many."""
    rows, at = xt.asarray(np.arange(24.0).reshape(12, 2) + 0.5, copy=True), SimpleNamespace(pos=0)

    def step(x: Any) -> Any:
        if form == "write":
            rows[at.pos] = x * 2
            found = x + 1
        else:
            found = x + (rows[at.pos] if form == "read" else xt.sum(rows[at.pos : at.pos + 1], axis=0))
        at.pos += 1
        return found

    fused, x, expected = xt.fuse(step), xt.asarray(np.array([3.0, 4.0])), rows.numpy().copy()
    for number in range(12):
        if number == 6:
            assert fused.why(x) == ""
        found = fused(x).numpy()
        np.testing.assert_array_equal(found, x.numpy() + (1 if form == "write" else expected[number]))
        assert at.pos == number + 1
    np.testing.assert_array_equal(rows.numpy(), np.array([[6.0, 8.0]] * 12) if form == "write" else expected)
    if form != "slice":
        with pytest.raises(IndexError):
            fused(x)
        assert at.pos == 12
