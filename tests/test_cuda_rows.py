"""Row programs on CUDA, emulated: every form of them against NumPy, and how many instructions an element takes.

Instructions are those of NVRTC's PTX that the emulated threads execute, idle threads' among them; what the driver makes
of them for a GPU is not counted.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from typing import Any

import emulated
import numpy as np
import pytest
from emulated import as_in_another_process
from ptx import build
from test_cuda_emulated import host, softmax, there

import xtensor as xt
from xtensor.run import cuda_rows

if emulated.MISSING:
    pytest.skip(emulated.MISSING, allow_module_level=True)


@pytest.fixture(scope="module")
def cuda() -> Iterator[emulated.Launches]:
    with emulated.device() as launches:
        as_in_another_process()
        yield launches
    as_in_another_process()


def scaled_norm(x: Any, xp: Any) -> Any:
    """A norm with a weight that all rows share."""
    centred = x - xp.mean(x, axis=-1, keepdims=True)
    weight = np.linspace(0.5, 1.5, x.shape[-1], dtype=x.dtype)
    variance = xp.mean(centred * centred, axis=-1, keepdims=True)
    return centred / xp.sqrt(variance + 1e-5) * (there(weight) if xp is xt else weight)


def spread(x: Any, xp: Any) -> Any:
    return xp.std(x, axis=-1, keepdims=True)


# The cells of a row, and how often a thread takes four of them; None where one takes them one by one, or a row is too
# long for registers.
LENGTHS = [(4, 1), (32, 1), (36, 2), (128, 2), (1000, 2), (2052, 4), (4100, 8), (8192, 8), (8196, None)]


@pytest.mark.parametrize("program", [softmax, scaled_norm, spread])
@pytest.mark.parametrize(("cells", "held"), LENGTHS)
def test_every_form(program: Callable[[Any, Any], Any], cells: int, held: int | None, cuda: emulated.Launches) -> None:
    """One kernel, whose last block is not full, with nothing in shared memory but the sums of warps."""
    for rows in (1, 3, 67) if cells < 64 else (3,):
        x = np.random.default_rng(cells).uniform(-3, 3, (rows, cells)).astype(np.float32)
        before = len(cuda.texts)
        found, truth = host(program(there(x), xt)), program(x.astype(np.float64), np)
        assert np.max(np.abs(found - truth)) < 4e-6 * np.max(np.abs(truth))
        if held is not None:
            assert len(cuda.texts) == before + 1
            assert f"r < {held};" in cuda.texts[-1] and cuda.grids[-1][2] == 0


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("cells", [3, 33, 250])
def test_rows_outside_registers(
    cells: int, dtype: str, cuda: emulated.Launches, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In shared memory, and in memory of their own where that has no room for them."""
    monkeypatch.setattr(cuda_rows, "MOST_HELD", 0)
    for most in (48 << 10, 0):
        monkeypatch.setattr(cuda_rows.cuda_build, "most_shared", lambda number, most=most: most)
        rows = 300 if cells < 64 else 260
        x = np.random.default_rng(cells).uniform(-3, 3, (rows + (most > 0), cells)).astype(dtype)
        found, truth = host(softmax(there(x), xt)), softmax(x.astype(np.longdouble), np)
        assert np.max(np.abs(found - truth)) < 16 * np.finfo(dtype).eps * np.max(truth)
        assert (cuda.grids[-1][2] > 0) == (most > 0) and "r < " not in cuda.texts[-1]


# Instructions an element: at most so many. Where rows lay in shared memory, 256 threads taking one chunk each, it were
# 120, 100 and 90 for 1000 cells, and 82, 67 and 58 for 128.
COUNTS = {
    softmax: {128: 38, 1000: 46, 8192: 32},
    scaled_norm: {128: 24, 1000: 30, 8192: 18},
    spread: {128: 20, 1000: 26, 8192: 15},
}


@pytest.mark.parametrize("program", COUNTS)
@pytest.mark.parametrize("cells", [128, 1000, 8192])
def test_instructions_an_element(
    program: Callable[[Any, Any], Any], cells: int, cuda: emulated.Launches, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And bytes, of which each is read and written once."""
    rows = 16
    x = there(np.random.default_rng(0).uniform(-3, 3, (rows, cells)).astype(np.float32))
    made = program(x, xt)
    before, traffic = cuda.instructions, emulated.Traffic(monkeypatch)
    made.evaluate()
    assert (cuda.instructions - before) / (rows * cells) <= COUNTS[program][cells]
    written = 4 / cells if program is spread else 4.0
    assert traffic.written / x.size == written
    each = 4 * (1 + (program is scaled_norm))  # the weight, which all rows share
    assert each <= traffic.read / x.size <= each * 1.025  # idle threads read what others do
    text = build.compiled(cuda.texts[-1])
    loads = [load for load in re.findall(r"\bld\.global\S*", text) if load != "ld.global.u64"]  # of a table
    single = [load for load in loads if "v4" not in load]
    assert len(loads) > len(single) == cuda.texts[-1].count("xt_told(given.")  # scalars, where a graph's table has them


# Bytes read and written for an element of float32, with all of a row in shared memory, and with 57 856 of 65 536 cells
# there: those that are not are read by each stage, and what a stage hands on is written. The norm's weight is read too,
# from the second cache where all rows share it.
TRAFFIC = {softmax: (8.1, 9.5), scaled_norm: (12.1, 13.5), spread: (4.1, 4.6)}


@pytest.mark.parametrize("program", TRAFFIC)
@pytest.mark.parametrize("cells", [16_384, 65_536, 65_539])
def test_long_rows(
    program: Callable[[Any, Any], Any], cells: int, cuda: emulated.Launches, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What has no room in registers lies in shared memory, and what has none there in memory: values, and bytes moved.
    Rows that begin between vectors are taken one cell at a time.
    """
    monkeypatch.setattr(cuda_rows.cuda_build, "most_shared", lambda number: emulated.MOST_SHARED)
    monkeypatch.setattr(cuda_rows, "BLOCKS", 4)
    array = np.random.default_rng(cells).uniform(-3, 3, (2, cells)).astype(np.float32)
    made = program(there(array), xt)
    before, traffic = len(cuda.grids), emulated.Traffic(monkeypatch)
    made.evaluate()
    monkeypatch.undo()
    assert [threads for _, threads, _ in cuda.grids[before:]] == [1024]
    assert emulated.MOST_SHARED // 4 < cuda.grids[-1][2] <= emulated.MOST_SHARED
    assert (traffic.read + traffic.written) / array.size < TRAFFIC[program][cells > 57_856]
    truth = program(array.astype(np.float64), np)
    assert np.max(np.abs(host(made) - truth)) < 4e-6 * np.max(np.abs(truth))


def test_rows_that_shared_memory_has_too_little_for(cuda: emulated.Launches, monkeypatch: pytest.MonkeyPatch) -> None:
    """Less than a quarter of the cells: none of them lies there."""
    monkeypatch.setattr(cuda_rows.cuda_build, "most_shared", lambda number: 48 << 10)
    monkeypatch.setattr(cuda_rows, "BLOCKS", 4)
    for cells, shared in ((40_000, True), (60_000, False)):
        x = np.random.default_rng(0).uniform(-3, 3, (2, cells)).astype(np.float32)
        found, truth = host(softmax(there(x), xt)), softmax(x.astype(np.float64), np)
        assert np.max(np.abs(found - truth)) < 4e-6 * np.max(np.abs(truth))
        assert (cuda.grids[-1][2] > 0) == shared


@pytest.mark.parametrize("shape", [(40, 128), (9, 1000), (3, 5, 30), (7, 7)])
@pytest.mark.parametrize("name", ["var", "std", "mean of squares"])
def test_reductions_without_the_axes_are_one_pass(name: str, shape: tuple[int, ...], cuda: emulated.Launches) -> None:
    """The mean, the distances from it, their sum and the quotient: memory is read once, whatever axes are kept."""
    functions = {"mean of squares": lambda x, xp: xp.sqrt(xp.mean(x * x, axis=-1)) + 1.0}
    function = functions.get(name, lambda x, xp: getattr(xp, name)(x, axis=-1))
    x = np.random.default_rng(0).uniform(-3, 3, shape).astype(np.float32)
    before = len(cuda.texts)
    found, truth = host(function(there(x), xt)), function(x.astype(np.float64), np)
    assert len(cuda.texts) == before + 1
    np.testing.assert_allclose(found, truth, rtol=4e-6)


@pytest.mark.parametrize("cells", [8, 36, 37])
@pytest.mark.parametrize(
    ("mask", "launches"),
    [
        ((6, 0), 1),  # queries and keys: the same for all heads
        ((3, 1, 1, 0), 1),  # which keys are padding
        ((2, 6, 1), 1),  # a number for each row of each head
        ((2, 1, 1), 1),
        ((3, 2, 1, 0), 1),
        ((3, 2, 6, 0), 1),
        ((1, 1, 1, 1), 1),
        ((3, 1, 6, 0), None),  # comes again between axes along which it does not
    ],
    ids=str,
)
def test_rows_that_come_again(mask: tuple[int, ...], launches: int | None, cells: int, cuda: emulated.Launches) -> None:
    """A softmax under a mask that repeats along some axes, 0 standing for cells."""
    rng = np.random.default_rng(0)
    x, y = rng.uniform(-3, 3, (3, 2, 6, cells)).astype(np.float32), rng.uniform(-1, 1, [n or cells for n in mask])

    def masked(x: Any, y: Any, looks: Any, xp: Any) -> Any:
        return softmax(xp.where(looks, x, -1e9) + y, xp)

    before = len(cuda.texts)
    found = host(masked(there(x), there(y.astype(np.float32)), there(y > -0.5), xt))
    assert launches is None or len(cuda.texts) == before + launches
    np.testing.assert_allclose(found, masked(x.astype(np.float64), y, y > -0.5, np), rtol=2e-5, atol=1e-7)


def test_rows_before_and_after_products_are_one_kernel(cuda: emulated.Launches) -> None:
    """Recorded products are computed before what follows is planned, and after what they read."""
    x, w = np.random.default_rng(0).uniform(-1, 1, (2, 36, 36))
    before = len(cuda.texts)
    found = host(softmax(softmax(there(x), xt) @ there(w), xt))
    assert len(cuda.texts) == before + 2
    np.testing.assert_allclose(found, softmax(softmax(x, np) @ w, np), rtol=1e-12)


def test_causal_attention_is_one_kernel_between_products(cuda: emulated.Launches) -> None:
    query, key, value = np.random.default_rng(0).standard_normal((3, 2, 3, 20, 8))
    given = [there(one) for one in (query, key, value)]
    before = len(cuda.texts)
    found = host(xt.nn.scaled_dot_product_attention(*given, is_causal=True))
    assert len(cuda.texts) == before + 3  # the scaled queries, who may look where, and the softmax of that
    wanted = xt.nn.scaled_dot_product_attention(*[xt.asarray(one) for one in (query, key, value)], is_causal=True)
    np.testing.assert_allclose(found, wanted.numpy(), rtol=1e-12, atol=1e-15)


def test_what_a_row_has_one_of_may_lie_along_cells(cuda: emulated.Launches) -> None:
    """In a square array a value of each row, read without the axes of cells, goes along the cells of every row."""
    x, y = np.random.default_rng(0).uniform(1, 3, (2, 12, 12))
    programs: list[Any] = [
        lambda x, y, xp: x - xp.mean(x, axis=1),
        lambda x, y, xp: xp.sum(x * y[0], axis=1) * 0.5 + y[0],
        lambda x, y, xp: xp.max(x, axis=1) + xp.sum(y, axis=0),
        lambda x, y, xp: xp.sum(x - xp.sum(y, axis=1), axis=1) + xp.sum(y, axis=1),
        lambda x, y, xp: xp.sum(x, axis=1, keepdims=True) * 2.0 + xp.sum(y, axis=1),
    ]
    for program in programs:
        np.testing.assert_allclose(host(program(there(x), there(y), xt)), program(x, y, np), rtol=1e-13)


def test_few_long_rows_are_shared_out_among_blocks(cuda: emulated.Launches) -> None:
    """A block for each of two rows would leave the device idle, whether the axis is kept or not."""
    x = np.random.default_rng(0).uniform(-3, 3, (2, 70_000)).astype(np.float32)
    for keepdims in (False, True):
        before = len(cuda.grids)
        found = host(xt.mean(there(x), axis=1, keepdims=keepdims))
        np.testing.assert_allclose(found, x.mean(axis=1, keepdims=keepdims, dtype=np.float64), rtol=1e-4, atol=1e-5)
        assert max(blocks * pieces for (blocks, pieces), _, _ in cuda.grids[before:]) > 8
