"""`xt.options(reproducible=True)`: the same bits on every processor, fused or not, on any number of threads.

The bits themselves are recorded, as digests, in samples/reproducible.json, so that every machine that runs this is held
against the one that wrote it: `python tests/test_reproducible.py` writes it again.
"""

from __future__ import annotations

import hashlib
import json
import math
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import xtensor as xt
from xtensor.calls.op import REGISTRY
from xtensor.codegen.cpu.compile import host

if __name__ != "__main__" and host() is None:
    pytest.skip("there is no llvmlite, or this processor has no fused multiply-add", allow_module_level=True)

HERE = Path(__file__).resolve().parent
SAMPLES = HERE / "samples" / "reproducible.json"
DTYPES = ("float32", "float64")
UNSUITED = {"argmax", "argmin", "all", "any", "count_nonzero"}  # of which the bits are no question


def reproducible(**others: Any) -> xt.options:
    """Return the option, whatever engine the environment asks for."""
    return xt.options(**({"reproducible": True, "engine": "llvm", "lazy": "always"} | others))


def numbers(shape: tuple[int, ...], dtype: str, seed: int = 1) -> Any:
    """Return numbers between -4 and 4, by arithmetic that is exact."""
    size = int(np.prod(shape))
    mixed = (np.arange(seed, size + seed, dtype=np.uint64) * np.uint64(0x9E3779B97F4A7C15)) >> np.uint64(42)
    return (mixed.astype(np.float64) * 2.0**-19 - 4.0).astype(dtype).reshape(shape)


def digest(x: Any) -> str:
    """Return a digest of the bits of a tensor, one NaN being like another."""
    array = np.array(x)
    array[np.isnan(array)] = np.nan
    return hashlib.sha256(array.tobytes()).hexdigest()[:16]


def functions(dtype: str) -> dict[str, Callable[[], Any]]:
    """Return calls of every elementwise function of floats that rounds, and of their reductions over every layout."""
    x, y = (xt.asarray(numbers((1003,), dtype, seed)) for seed in (1, 5000))
    found: dict[str, Callable[[], Any]] = {}
    for name, op in REGISTRY.items():
        function: Any = getattr(xt, name, None)
        if function is None or name in UNSUITED or np.dtype(dtype) not in op.accepts:
            continue
        if op.kind == "elementwise" and len(op.parameters) <= 2:
            given = (x, y)[: len(op.parameters)]
            found[name] = lambda function=function, given=given: function(*given)
        elif op.kind == "reduction":
            for shape, axis in (((40_009,), None), ((37, 1003), -1), ((1003, 37), 0), ((5, 700, 3), (0, 2))):
                a = xt.asarray(numbers(shape, dtype)) * (2.0**-2 if name == "prod" else 1.0)
                found[f"{name} of {shape}, {axis}"] = lambda function=function, a=a, axis=axis: function(a, axis=axis)
    wide = xt.asarray(numbers((300, 1003), dtype))
    found["softmax"] = lambda: xt.nn.softmax(wide, axis=-1)
    found["centred"] = lambda: wide - xt.mean(wide, axis=0)
    found["mixed"] = lambda: xt.sum(xt.tanh(wide) * xt.astype(wide, xt.float64))
    found["strided"] = lambda: xt.sum(xt.exp(wide[::3, ::-2]), axis=1)
    return found


def recorded() -> dict[str, str]:
    """Return the digests of all results."""
    found = {}
    for dtype in DTYPES:
        with reproducible(cache_dir=""):
            for name, call in functions(dtype).items():
                found[f"{name}, {dtype}"] = digest(call())
    return found


def check(found: dict[str, str]) -> None:
    expected = json.loads(SAMPLES.read_text(encoding="utf-8"))
    assert found.keys() == expected.keys()
    assert [name for name in found if found[name] != expected[name]] == []


def test_the_bits_are_those_recorded() -> None:
    """On this processor, whichever it is."""
    check(recorded())


@pytest.mark.parametrize("name", ["avx512", "avx2"])
def test_other_processors(name: str) -> None:
    """Likewise in a process whose generated code is made for another processor of this kind."""
    environment = os.environ | {"XTENSOR_TEST_PROCESSOR": name, "XTENSOR_NUM_THREADS": "3"}
    command = [sys.executable, str(HERE / "test_reproducible.py"), "--print"]
    done = subprocess.run(command, env=environment, capture_output=True, text=True)
    if "this processor has no" in done.stderr:
        pytest.skip(done.stderr.strip().splitlines()[-1])
    assert done.returncode == 0, done.stderr
    check(json.loads(done.stdout))


@pytest.mark.parametrize("dtype", DTYPES)
def test_threads_and_fusion_do_not_matter(dtype: str) -> None:
    """Large sums by one thread and by five, in the loop that makes their terms and after it."""
    x = xt.asarray(numbers((1_500_011,), dtype))
    found = set()
    with reproducible():
        for threads in (1, 5):
            with xt.options(threads=threads):
                terms = xt.exp(x)
                for total in (xt.sum(xt.exp(x)), xt.sum(terms.evaluate()), xt.sum(terms * 1.0)):
                    found.add(float(total))
                found.add(float(xt.sum(xt.reshape(terms, (1, -1)), axis=1)[0]))
    assert len(found) == 1


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("name", ["max", "min"])
def test_zeros_of_both_signs(name: str, dtype: str) -> None:
    """The larger of two zeros at the end of a row is the positive one, whichever comes first."""
    for first in range(2):
        zeros = np.zeros(32, dtype)
        zeros[np.arange(32) // 16 == first] = -0.0
        with reproducible():
            found = float(getattr(xt, name)(xt.asarray(zeros)))
        assert str(found) == ("0.0" if name == "max" else "-0.0")


def test_small_operands_are_not_the_librarys() -> None:
    """Calls of every size, operators in place among them, give the bits of the same call on large operands."""
    large = numbers((100_000,), "float64") ** 2 + 0.5
    with reproducible():
        powers = np.asarray(xt.asarray(large) ** 0.3)
        small = xt.asarray(large[:5], copy=True)
        small **= 0.3
        shared = large[:5].copy()
        view = xt.asarray(shared, copy=False)
        view **= 0.3
        scalars = [float(xt.asarray(float(one)) ** 0.3) for one in large[:5]]
        looked = [float((xt.asarray(large) ** 0.3)[k]) for k in range(5)]
    assert np.asarray(small).tolist() == shared.tolist() == scalars == looked == powers[:5].tolist()


def test_what_cannot_be_kept_is_refused() -> None:
    """Work that only a library does, and options that contradict."""
    of_half = [xt.exp, xt.sum, xt.mean, xt.negative, lambda x: x * 2.0, lambda x: xt.astype(x, xt.bool) | (x == x)]
    for x, calls in ((xt.asarray([1 + 2j, 3j]), [xt.tan, xt.var]), (xt.asarray(np.ones(2, np.float16)), of_half)):
        told = f"options: reproducible must be False for this work, as there is no .*{x.dtype} in generated code"
        for call in calls:
            for _ in range(2):  # also where the same was recorded before
                with reproducible(), pytest.raises(NotImplementedError, match=told):
                    call(x)
                with xt.options(lazy="always"):
                    call(x)
        with reproducible(), pytest.raises(NotImplementedError, match=told):
            x **= 3
        with reproducible():  # what every library does alike
            assert xt.astype(x[:1], xt.complex128).numpy().tolist() == [complex(x[0])]
            assert np.asarray(xt.sum(x[:0])) == 0
    with reproducible():
        assert float(xt.remainder(xt.exp(xt.asarray(2.0)), 2.0)) == float(xt.exp(xt.asarray(2.0))) % 2.0
    for name, value in (("lazy", "never"), ("engine", "interpret"), ("fast_math", True)):
        with pytest.raises(ValueError, match=f"options: {name} must be .* where reproducible=True, got "):
            reproducible(**{name: value})
    with pytest.raises(TypeError, match="options: reproducible must be True or False, got 1"):
        xt.options(reproducible=1)


# ---- how far sums are from the truth


def roundings(n: int, is_last: bool, itemsize: int) -> int:
    """Return how often a term is rounded at most in a sum of so many: what docs/engine.md says."""
    if not is_last:
        return n // 4 + 5 if n <= 4096 else n // 512 + 133
    accumulators = 256 // itemsize
    levels = -(-min(n, 16384) // accumulators) + accumulators.bit_length() - 1
    return levels if n <= 16384 else levels + roundings(-(-n // 16384), True, itemsize)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize(("shape", "axis"), [((3_000_017,), 0), ((7, 20_011), 1), ((20_011, 7), 0), ((3001, 300), 0)])
def test_the_error_of_sums_is_bounded(shape: tuple[int, ...], axis: int, dtype: str) -> None:
    """Terms of one sign, whose roundings drift: the exact sum is the standard library's."""
    array = (0.1 + numbers(shape, "float64") * 2.0**-10).astype(dtype)
    with xt.options(engine="llvm", lazy="always"):
        found = np.asarray(xt.sum(xt.asarray(array), axis=axis)).reshape(-1)
    often = roundings(shape[axis], axis == len(shape) - 1, array.itemsize)
    for column, value in zip(np.moveaxis(array, axis, -1).reshape(-1, shape[axis])[:3], found, strict=False):
        unit = 2**-24 if dtype == "float32" else 2**-53
        exact = math.fsum(column.tolist())  # rounded once
        assert abs(float(value) - exact) <= (often + 1) * unit * exact


if __name__ == "__main__":
    if wanted := os.environ.get("XTENSOR_TEST_PROCESSOR"):
        import processors

        processors.become(wanted)
    text = json.dumps(recorded(), indent=0)
    if sys.argv[1:] == ["--print"]:
        print(text)
    else:
        SAMPLES.write_text(text + "\n", encoding="utf-8")
