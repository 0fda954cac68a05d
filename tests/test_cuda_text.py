"""CUDA text, its caches and launches without a GPU: kernels are neither compiled nor run, but asked for and counted.

A device stands in whose memory is NumPy's; NVRTC, loading and launching are replaced, so that what would be built and
launched is seen.
"""

from __future__ import annotations

import re
import struct
import warnings
from collections.abc import Callable, Iterator
from importlib.util import find_spec
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from emulated import as_in_another_process

import xtensor as xt
from xtensor.codegen.cpu import compile as compiling
from xtensor.codegen.cuda import library
from xtensor.codegen.cuda import nvrtc as cuda_build
from xtensor.codegen.cuda.nvrtc import BuildError, Function, LoadError
from xtensor.devices import Device
from xtensor.devices.cpu import CPUBackend
from xtensor.graph.node import pending_below
from xtensor.plan import fusion, trace
from xtensor.run import cuda as cuda_run
from xtensor.storage.blob import TBlob
from xtensor.tensor.face import face

Launches = list[tuple[Function, tuple[int, int], int, int, bytes]]


class Host(CPUBackend):
    """A device that has NumPy's memory and functions, and the engine of CUDA."""

    number = 0

    def architecture(self) -> str:
        return "sm_90"

    def current_stream(self) -> Any:
        return SimpleNamespace(ptr=7)


DEVICE = Device("cuda:0", Host())


class Stub:
    """What NVRTC and the driver are asked for. refuses: what building raises."""

    def __init__(self) -> None:
        self.texts: list[tuple[str, tuple[str, ...]]] = []
        self.launches: Launches = []
        self.refuses: Exception | None = None
        self.loads: Callable[[bytes], bool] = lambda code: True

    def built(self, text: str, options: tuple[str, ...]) -> bytes:
        if self.refuses is not None:
            raise self.refuses
        self.texts.append((text, options))
        return f"code {len(self.texts)}".encode()

    def load(self, code: bytes, number: int, text: str) -> Function:
        if not self.loads(code):
            raise LoadError("code that loads")
        return Function(len(self.texts), code, number, text)

    def launch(
        self, function: Function, grid: tuple[int, int], block: int, shared: int, arguments: Any, stream: int
    ) -> None:
        assert stream == 7
        (one,) = arguments
        self.launches.append((function, grid, block, shared, one))


@pytest.fixture
def stub(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[Stub]:
    made = Stub()
    monkeypatch.setattr(cuda_build, "built", made.built)
    monkeypatch.setattr(cuda_build, "load", made.load)
    monkeypatch.setattr(cuda_build, "launch", made.launch)
    monkeypatch.setattr(cuda_build, "version", lambda: (13, 5))
    monkeypatch.setattr(cuda_build, "architectures", lambda: (75, 80, 86, 90, 100))
    as_in_another_process()
    with xt.options(lazy="always", engine="auto", cache_dir=str(tmp_path)):
        yield made
    as_in_another_process()


def there(array: Any) -> xt.Tensor:
    """Return an array as a tensor of the device."""
    array = np.asarray(array)
    blob = TBlob.empty(array.shape, array.dtype, DEVICE)
    blob.native()[...] = array
    return face(blob)


def zeros(*shape: int, dtype: str = "float32") -> xt.Tensor:
    return there(np.zeros(shape, dtype))


# ---- one text for all sizes


def test_other_sizes_and_scalars_build_nothing(stub: Stub) -> None:
    for size, factor in ((1_000, 2.0), (1_003, 3.5), (70_000, -1.0), (1, 0.0)):
        (xt.exp(zeros(size)) * factor).evaluate()
    assert len(stub.texts) == 1
    assert [launch[1] for launch in stub.launches] == [(1, 1), (1, 1), (69, 1), (1, 1)]
    assert len({launch[4] for launch in stub.launches}) == 4


@pytest.mark.parametrize("axis", [0, 1, None])
def test_reductions_of_other_sizes_build_nothing(stub: Stub, axis: int | None) -> None:
    for shape in ((64, 100), (4_000, 128), (300, 64), (3_001, 1_000), (2_000, 128)):
        xt.sum(zeros(*shape) * 2.0, axis=axis).evaluate()
    assert len(stub.texts) == (1 if axis == 1 else 2)  # one reduces, one joins parts where results are few


def test_rows_of_other_sizes_build_nothing(stub: Stub, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of rows in registers, where as many threads take as much; of longer ones in shared memory, whatever they have."""
    monkeypatch.setattr(cuda_build, "most_shared", lambda number: 228 << 10)
    alike = [((300, 64), (100, 60)), ((64, 1024), (9, 1000)), ((5, 4096), (7, 3000))]
    alike += [((3, 12_000), (2, 14_000)), ((3, 20_000), (2, 40_000))]  # which 256 and 1024 threads share
    for built, shapes in enumerate(alike, 1):
        for rows, cells in shapes:
            x = zeros(rows, cells)
            e = xt.exp(x - xt.max(x, axis=1, keepdims=True))
            (e / xt.sum(e, axis=1, keepdims=True)).evaluate()
            assert len(stub.texts) == built
            in_registers = cells <= 8192
            assert stub.launches[-1][3] == (0 if in_registers else 4 * cells)  # one slot: e takes that of x
            assert ("extern __shared__" in stub.texts[-1][0]) != in_registers


def test_kernels_that_follow_each_other_are_built_side_by_side(stub: Stub, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each once, before the first of them is launched; what is there already is not built again."""
    built, tasks = list[int](), list[int]()
    monkeypatch.setattr(cuda_build, "run", lambda todo: tasks.append(len(todo)) or [task() for task in todo])
    launch = stub.launch
    monkeypatch.setattr(cuda_build, "launch", lambda *given: built.append(len(stub.texts)) or launch(*given))
    for size in (1000, 2000):
        x = zeros(size)
        total = xt.sum(xt.exp(x))
        ((x - total) * xt.max(xt.sin(x - total))).evaluate()
    launches = len(built) // 2
    assert launches >= 3 and built == [len(stub.texts)] * len(built)
    assert tasks == [len(stub.texts)]


def test_what_is_refused_ahead_is_refused_again(stub: Stub) -> None:
    stub.refuses = BuildError("code that NVRTC takes: error")
    x = there(np.arange(10.0))
    with pytest.warns(RuntimeWarning, match="no code that NVRTC takes"):
        z = ((x - xt.sum(x)) * xt.max(x * 2.0)).evaluate()
    assert z.blob.native().tolist() == ((np.arange(10.0) - 45.0) * 18.0).tolist()


def test_long_rows_go_outside_shared_memory(stub: Stub, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cuda_build, "most_shared", lambda number: 1024)
    for rows, launches in ((300, 1), (3, 4)):  # of few rows each is shared out: the largest and the sum in two launches
        stub.launches.clear()
        x = zeros(rows, 40_000)
        e = xt.exp(x - xt.max(x, axis=1, keepdims=True))
        (e / xt.sum(e, axis=1, keepdims=True)).evaluate()
        assert len(stub.launches) >= launches
        assert (len(stub.launches) == 1) == (rows == 300)
        assert all("extern __shared__" not in launch[0].text for launch in stub.launches)


def test_views_are_read_where_they_lie(stub: Stub) -> None:
    a = zeros(64, 48)
    (a.T * 2.0).evaluate()
    (a[::2, ::-1] * 2.0).evaluate()
    (a + zeros(48)).evaluate()
    (a + zeros(64, 1)).evaluate()
    assert len(stub.launches) == 4  # nothing was copied
    assert len({launch[0].pointer for launch in stub.launches}) == 4


def test_addresses_between_vectors_are_read_one_by_one(stub: Stub) -> None:
    memory = zeros(1_001)
    (memory[:1000] * 2.0).evaluate()
    (memory[1:] * 2.0).evaluate()
    aligned, behind = (launch[0].text for launch in stub.launches)
    assert "x0 = xt_packed<float, 4>" in aligned
    assert "x0 = xt_apart<float, 4>" in behind


def test_arguments_fill_the_struct(stub: Stub) -> None:
    """What is passed has the size and order of the text's struct: addresses, scalars in slots, numbers."""
    x, y = zeros(1_000), zeros(1_000, dtype="float64")
    z = (x * 2.5 + y).evaluate()
    function, grid, block, _, arguments = stub.launches[-1]
    members = re.search(r"struct Arguments \{\n(.*?)\};", function.text, re.DOTALL).group(1).split("\n")[:-1]  # type: ignore[union-attr]
    names = ["table;", "p0;", "p1;", "p2;", "told;", "c0;", "count;", "length;"]
    assert [member.split()[-1] for member in members] == names
    address = [one.blob.address for one in (x, y, z)]
    assert struct.unpack("=5Qf4x2i", arguments) == (0, *address, 0, 2.5, 500, 1_000)
    assert (grid, block) == ((2, 1), 256)


def test_indices_get_64_bits_where_32_do_not_reach() -> None:
    x = TBlob.empty((1 << 15, 1 << 15), np.dtype(np.float64), DEVICE)
    maker = cuda_run._Maker(double_of("float64"), (0, 0), None, False)
    strides = [x.layout.strides] * 2
    assert "#define WIDE 1" in maker.map(x.shape, strides).function.text
    assert "#define WIDE 0" in maker.map((1 << 13, 1 << 13), [(1 << 16, 8)] * 2).function.text


def double_of(dtype: str) -> Any:
    with xt.options(lazy="always"):
        node = (xt.zeros(4, dtype=dtype) * 2.0).value
    return fusion.plan_of(trace.Trace(pending_below([node]), [node])).kernels[0].program


@pytest.mark.parametrize("divisor", [1, 2, 3, 5, 7, 641, 1 << 16, (1 << 31) - 1])
def test_division_by_a_factor_is_exact(divisor: int) -> None:
    n, factor, shift = library.divisor(divisor)
    assert factor < 1 << 32
    for x in {0, 1, n - 1, n, n + 1, 2 * n - 1, 2 * n, (1 << 31) - 1, (1 << 31) - n}:
        assert x >= 1 << 31 or ((x * factor >> 32) + x) >> shift == x // n


# ---- caches


def test_the_disk_keeps_code_by_text_architecture_options_and_version(
    stub: Stub, monkeypatch: pytest.MonkeyPatch
) -> None:
    built = [cuda_build.cubin("text", "sm_90", False)]
    assert cuda_build.cubin("text", "sm_90", False) == built[0]
    assert len(stub.texts) == 1
    for text, architecture, contract in (("other", "sm_90", False), ("text", "sm_80", False), ("text", "sm_90", True)):
        built.append(cuda_build.cubin(text, architecture, contract))
    monkeypatch.setattr(cuda_build, "version", lambda: (13, 6))
    built.append(cuda_build.cubin("text", "sm_90", False))
    assert len(set(built)) == len(stub.texts) == 5


def test_what_is_built_flushes_nothing_and_contracts_only_if_asked(stub: Stub) -> None:
    x = zeros(100)
    (x * 2.0 + 1.0).evaluate()
    with xt.options(fast_math=True):
        (x * 2.0 + 1.0).evaluate()
    (strict, first), (fast, second) = stub.texts
    assert strict == fast
    assert "--fmad=false" in first
    assert "--fmad=true" in second
    assert not any("ftz" in option for option in (*first, *second))


def test_devices_newer_than_nvrtc_get_code_that_they_run(stub: Stub, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of an older minor version machine code, of an older generation PTX; what is too old NVRTC itself refuses."""
    wanted = {"90": "sm_90", "89": "sm_86", "103": "sm_100", "121": "compute_100", "70": "sm_70"}
    assert {own: cuda_build.target(f"sm_{own}") for own in wanted} == wanted
    monkeypatch.setattr(Host, "architecture", lambda self: "sm_121")
    (zeros(100) * 2.0).evaluate()
    assert stub.texts[0][1][0] == "--gpu-architecture=compute_100"


def test_another_process_finds_code_on_disk(stub: Stub, tmp_path: Path) -> None:
    (zeros(100) * 2.0).evaluate()
    assert [file.suffix for file in tmp_path.iterdir()] == [".cubin"]
    as_in_another_process()
    loaded = compiling.counts.loaded
    (zeros(100) * 2.0).evaluate()
    assert len(stub.texts) == 1
    assert compiling.counts.loaded == loaded + 1


def test_damaged_files_are_ignored(stub: Stub, tmp_path: Path) -> None:
    (zeros(100) * 2.0).evaluate()
    for damage in (b"", b"x" * 100):
        (file,) = tmp_path.iterdir()
        file.write_bytes(damage)
        as_in_another_process()
        (zeros(100) * 2.0).evaluate()
    assert len(stub.texts) == 3


@pytest.mark.skipif(not find_spec("cupy"), reason="CuPy is not installed (extra: test-cuda)")
def test_what_is_asked_of_cupy_for_a_launch_is_there() -> None:
    """The modules, by the names that CuPy gives them, and in them what builds, loads and launches."""
    asked = {
        "driver": ("launchKernel", "funcSetAttribute"),
        "runtime": ("getDevice", "memGetInfo"),
        "function": ("Module",),
        "nvrtc": ("createProgram", "compileProgram", "getCUBIN", "getPTX", "getProgramLog", "getSupportedArchs"),
        "Device": ("compute_capability", "attributes"),
    }
    for part, names in asked.items():
        assert set(names) <= set(dir(cuda_build._cuda(part))), part
    driver: Any = cuda_build._cuda("driver")
    assert cuda_build._MOST_SHARED == driver.CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES
    assert "cudaDevAttrMaxSharedMemoryPerBlockOptin" in dir(cuda_build._cuda("runtime"))


def test_code_that_does_not_load_is_built_anew_once(stub: Stub) -> None:
    (zeros(100) * 2.0).evaluate()
    as_in_another_process()
    stub.loads = lambda code: code != b"code 1"
    (zeros(100) * 2.0).evaluate()
    assert len(stub.texts) == 2


def test_memory_holds_a_bounded_number(stub: Stub, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cuda_build, "KERNELS", 4)
    for step in range(9):
        cuda_build.function_of(("key", step), lambda: "text", DEVICE.backend, False)
        assert cuda_build.cached() <= 4


def test_no_folder_means_no_files(stub: Stub, tmp_path: Path) -> None:
    with xt.options(cache_dir=""):
        (zeros(100) * 2.0).evaluate()
    assert not list(tmp_path.iterdir())


# ---- what cannot be generated


def test_what_nvrtc_refuses_the_library_computes(stub: Stub) -> None:
    stub.refuses = BuildError("code that NVRTC takes: error\nkernel.cu(1): this line")
    x = there(np.arange(10.0))
    with pytest.warns(RuntimeWarning, match="no code that NVRTC takes"):
        z = (x * 2.0 + 1.0).evaluate()
    assert z.blob.native().tolist() == (np.arange(10.0) * 2 + 1).tolist()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        again = x * 2.0 + 1.0
        assert "kernel.cu(1): this line" in str(xt.explain(again))  # asked once, the log is kept
        again.evaluate()
    assert not stub.launches


@pytest.mark.parametrize("axis", [None, 0, 1])
def test_reductions_fall_back(stub: Stub, axis: int | None) -> None:
    stub.refuses = BuildError("NVRTC: it is not there")
    a = np.random.default_rng(1).normal(size=(30, 40))
    with pytest.warns(RuntimeWarning):
        found = [xt.sum(there(a) * 2.0, axis=axis), xt.argmax(there(a), axis=axis), xt.var(there(a), axis=axis)]
        xt.evaluate(*found)
    wanted = [np.sum(a * 2.0, axis=axis), np.argmax(a, axis=axis), np.var(a, axis=axis)]
    for one, other in zip(found, wanted, strict=True):
        assert np.allclose(one.blob.native(), other, rtol=1e-14)


def test_steps_that_are_lacking_are_the_librarys(stub: Stub) -> None:
    x = there(np.array([1, 2, -1]))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        z = xt.reciprocal(x)
        assert "there is no reciprocal of int64" in str(xt.explain(z))
        assert z.blob.native().tolist() == np.reciprocal(np.array([1, 2, -1])).tolist()
    assert not stub.launches


@pytest.mark.parametrize("engine", ["direct", "interpret"])
def test_the_library_does_it_when_asked(stub: Stub, engine: Any) -> None:
    with xt.options(engine=engine):
        z = there(np.arange(5.0)) * 2.0
        assert z.blob.native().tolist() == [0.0, 2.0, 4.0, 6.0, 8.0]
    assert not stub.launches


def test_nothing_is_launched_for_no_elements(stub: Stub) -> None:
    assert xt.sum(zeros(0, 3) * 2.0, axis=0).blob.native().tolist() == [0.0, 0.0, 0.0]
    assert (zeros(0) * 2.0).blob.native().size == 0
    assert not stub.launches


# ---- explain


def test_explain_names_the_engine_and_shows_the_text(stub: Stub) -> None:
    z = xt.exp(zeros(300)) * 2.0
    assert "cuda: the device has no other engine" in str(xt.explain(z))
    text = str(xt.explain(z, ir=True))
    assert "cuda of kernel 1:\n#define WIDE 0" in text
    assert "expf(" in text
    assert not stub.texts  # nothing is built for it
    assert z.is_pending


def test_explain_says_what_goes_row_by_row(stub: Stub) -> None:
    x = zeros(300, 64)
    z = xt.exp(x - xt.max(x, axis=1, keepdims=True))
    z = z / xt.sum(z, axis=1, keepdims=True)
    text = str(xt.explain(z, ir=True))
    assert "together, row by row of 64 elements" in text
    assert text.count("__global__") == 1
