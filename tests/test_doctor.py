"""`python -m xtensor doctor`: each finding is made where its cause is simulated, and is not made without it."""

from __future__ import annotations

import os
import re
import stat
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import xtensor as xt
from xtensor import __main__ as program
from xtensor import doctor
from xtensor.codegen.cpu.compile import Host
from xtensor.devices import blas
from xtensor.doctor import Finding

ROOT = Path(__file__).resolve().parent.parent
REAL = blas.core_name(), blas.thread_count()  # before tests say something else
ENVIRONMENT = dict(os.environ)  # which BLAS was loaded in; tests change it
FAST = Host("x86_64-unknown-linux-gnu", "a new one", "", "20.1", 64, True)


@pytest.fixture(autouse=True)
def healthy(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[None]:
    """A machine on which nothing is slow: each test makes one thing so."""
    for name in (*doctor.HOLDS_BACK, *doctor.LIMITS, "PYTHONMALLOC"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(doctor, "host", lambda: FAST)
    monkeypatch.setattr(doctor, "installed", lambda *names: "1.0" if "llvmlite" in names else "not installed")
    monkeypatch.setattr(doctor, "_blas_built_in", lambda: "scipy-openblas")
    monkeypatch.setattr(blas, "core_name", lambda: "SkylakeX")
    monkeypatch.setattr(blas, "thread_count", lambda: 8)
    monkeypatch.setattr(doctor.threads, "count", lambda: 8)
    monkeypatch.setattr(os, "cpu_count", lambda: 8)
    monkeypatch.setattr(os, "getloadavg", lambda: (0.5, 0.5, 0.5), raising=False)
    monkeypatch.setattr(sys, "dont_write_bytecode", False)
    monkeypatch.setattr(sys, "gettrace", lambda: None)
    monkeypatch.setattr(doctor, "devices", lambda: ["cpu"])
    monkeypatch.setattr(doctor, "_has_nvidia", lambda: False)
    folder = tmp_path / "kernels"
    folder.mkdir(mode=0o700)
    with xt.options(lazy="auto", engine="auto", gradients="asked", show="", cache_dir=str(folder)):
        yield


def found() -> Finding:
    """Return the one finding."""
    (finding,) = doctor.findings()
    assert all(finding)
    return finding


def test_nothing_is_slow(capsys: pytest.CaptureFixture[str]) -> None:
    """It says so, after what is installed."""
    assert doctor.findings() == []
    assert program.main(["doctor"]) == 0
    out = capsys.readouterr().out
    assert out.endswith("\nNothing was found that makes xtensor slow here.\n")
    assert re.search(r"^BLAS +scipy-openblas, kernels for SkylakeX, 8 threads$", out, re.MULTILINE)
    assert re.search(r"^machine code +for a new one, vectors of 64 bytes$", out, re.MULTILINE)
    assert re.search(r"^processors +8, of which xtensor uses 8$", out, re.MULTILINE)


def test_findings_are_numbered_with_what_to_do(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """In the order of the checks; the status is 0 all the same."""
    monkeypatch.setattr(doctor, "host", lambda: None)
    monkeypatch.setenv("OPENBLAS_CORETYPE", "Prescott")
    assert program.main(["doctor"]) == 0
    out = capsys.readouterr().out
    assert "\n2 findings\n" in out
    assert re.search(r"^1\. llvmlite is .*\n   why  .*(\n {8}.*)*\n   do   ", out, re.MULTILINE)
    assert re.search(r"^2\. OPENBLAS_CORETYPE=Prescott is set$", out, re.MULTILINE)


def test_no_llvmlite(monkeypatch: pytest.MonkeyPatch) -> None:
    """The extra brings it."""
    monkeypatch.setattr(doctor, "host", lambda: None)
    monkeypatch.setattr(doctor, "installed", lambda *names: "not installed")
    assert found().what == "llvmlite is not installed" and "xtensor[jit]" in found().do


def test_llvmlite_without_use(monkeypatch: pytest.MonkeyPatch) -> None:
    """It is there, and cannot be loaded, or the processor lacks something."""
    monkeypatch.setattr(doctor, "host", lambda: None)
    assert "cannot be used" in found().what and "AVX2" in found().do


def test_narrow_vectors(monkeypatch: pytest.MonkeyPatch) -> None:
    """On x86 alone: other machines have no wider ones."""
    monkeypatch.setattr(doctor, "host", lambda: FAST._replace(vector_bytes=32))
    assert "32 bytes" in found().what and "AVX-512" in found().why
    monkeypatch.setattr(doctor, "host", lambda: FAST._replace(vector_bytes=16, triple="aarch64-unknown-linux-gnu"))
    assert doctor.findings() == []


@pytest.mark.parametrize("name", doctor.HOLDS_BACK)
def test_a_variable_holds_a_library_back(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is named with its value, and is to be unset."""
    monkeypatch.setenv(name, "value")
    assert found().what == f"{name}=value is set" and found().do == f"unset {name}"


def test_old_kernels_of_blas(monkeypatch: pytest.MonkeyPatch) -> None:
    """Chosen by OpenBLAS itself; where a variable asked for them, that is the finding."""
    monkeypatch.setattr(blas, "core_name", lambda: "Nehalem")
    assert "Nehalem" in found().what
    monkeypatch.setenv("OPENBLAS_CORETYPE", "Nehalem")
    assert found().what == "OPENBLAS_CORETYPE=Nehalem is set"


def test_a_plain_blas(monkeypatch: pytest.MonkeyPatch) -> None:
    """NumPy was built with the reference implementation, of which nothing can be asked."""
    monkeypatch.setattr(doctor, "_blas_built_in", lambda: "netlib")
    monkeypatch.setattr(blas, "core_name", lambda: None)
    monkeypatch.setattr(blas, "thread_count", lambda: None)
    monkeypatch.setattr(blas, "has_function", lambda *names: False)
    assert "netlib" in found().what and ("BLAS", "netlib") in doctor.facts()
    monkeypatch.setattr(blas, "has_function", lambda *names: True)  # MKL or BLIS under its name
    assert doctor.findings() == []


@pytest.mark.parametrize("name", doctor.LIMITS)
def test_a_variable_limits_threads(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Those of xtensor or those of products."""
    monkeypatch.setenv(name, "1")
    monkeypatch.setattr(doctor.threads, "count", lambda: 1 if name in ("XTENSOR_NUM_THREADS", "OMP_NUM_THREADS") else 8)
    monkeypatch.setattr(blas, "thread_count", lambda: 1)
    assert f"{name}=1" in found().why and f"unset {name}" in found().do
    assert re.fullmatch(r"xtensor computes on [18] of 8 processors, matrix products on 1", found().what)


def test_a_container_limits_threads(monkeypatch: pytest.MonkeyPatch) -> None:
    """No variable does."""
    monkeypatch.setattr(doctor.threads, "count", lambda: 2)
    assert "xtensor computes on 2 of 8 processors" in found().what and "quota" in found().why


def test_one_processor(monkeypatch: pytest.MonkeyPatch) -> None:
    """It is a finding, though nothing can be done."""
    monkeypatch.setattr(os, "cpu_count", lambda: 1)
    monkeypatch.setattr(doctor.threads, "count", lambda: 1)
    assert found().what == "there is one processor"


def test_kernels_that_cannot_be_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """No folder, a folder that others may write to, and one on a disk that takes nothing."""
    file = tmp_path / "a file"
    file.touch()
    shared = tmp_path / "shared"
    shared.mkdir()
    shared.chmod(stat.S_IRWXU | stat.S_IRWXG)
    for given in (file / "below", shared) if hasattr(os, "getuid") else (file / "below",):
        with xt.options(cache_dir=str(given)):
            assert str(given) in found().what and "XTENSOR_CACHE_DIR" in found().do
            assert ("compiled kernels", "not kept") in doctor.facts()
    with xt.options(cache_dir=""):
        assert "cache_dir is empty" in found().what

    def refuse(**given: Any) -> None:
        raise PermissionError("read-only file system")

    monkeypatch.setattr(doctor, "TemporaryFile", refuse)
    assert "cannot be kept" in found().what


def test_no_bytecode(monkeypatch: pytest.MonkeyPatch) -> None:
    """Python writes none, and has none."""
    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    monkeypatch.setattr(doctor, "_has_bytecode", lambda: True)
    assert doctor.findings() == []
    monkeypatch.setattr(doctor, "_has_bytecode", lambda: False)
    assert "PYTHONDONTWRITEBYTECODE" in found().what and "compileall" in found().do


def test_bytecode_is_looked_for(tmp_path: Path) -> None:
    """In the folder where Python would keep it."""
    code = "from xtensor import doctor; print(doctor._has_bytecode())"
    environment = {name: text for name, text in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    environment["PYTHONPYCACHEPREFIX"] = str(tmp_path)
    for flags, there in ((["-B"], "False"), ([], "True")):
        command = [sys.executable, *flags, "-c", code]
        done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True)
        assert done.stdout.strip() == there, done.stderr


@pytest.mark.parametrize(
    ("name", "value"),
    [("lazy", "never"), ("lazy", "always"), ("engine", "direct"), ("gradients", "always"), ("show", "plan")],
)
def test_slow_settings(name: str, value: str) -> None:
    """Those that are for trying things out."""
    with xt.options(**{name: value}):
        assert found().what == f"settings: {name}={value!r}" and found().do == f"unset XTENSOR_{name.upper()}"
    with xt.options(engine="llvm"):
        assert doctor.findings() == []


def test_a_tracer(monkeypatch: pytest.MonkeyPatch) -> None:
    """And a memory allocator that checks."""
    monkeypatch.setattr(sys, "gettrace", lambda: print)
    monkeypatch.setenv("PYTHONMALLOC", "debug")
    assert found().what == "Python runs with a tracer and PYTHONMALLOC=debug"


def test_dev_mode() -> None:
    """As it is, in a process of its own, which ends well."""
    command = [sys.executable, "-X", "dev", "-m", "xtensor", "doctor"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert re.search(r"^\d+\. Python runs with -X dev", done.stdout, re.MULTILINE), done.stdout


def test_a_gpu_without_cupy(monkeypatch: pytest.MonkeyPatch) -> None:
    """The driver is there."""
    monkeypatch.setattr(doctor, "_has_nvidia", lambda: True)
    assert "CuPy is not installed" in found().what and "xtensor[cuda13]" in found().do


def test_cupy_without_a_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    """The reason is the one that asking for the device gives."""

    def refuse(device: str, function: str) -> None:
        raise ValueError("doctor: device must be 'cpu', got 'cuda': no driver")

    monkeypatch.setattr(doctor, "installed", lambda *names: "14.0")
    monkeypatch.setattr(doctor, "as_device", refuse)
    assert "no driver" in found().why
    monkeypatch.setattr(doctor, "devices", lambda: ["cpu", "cuda:0"])
    assert doctor.findings() == []


def test_a_busy_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    """More programs want processors than there are."""
    monkeypatch.setattr(os, "getloadavg", lambda: (9.5, 0.0, 0.0), raising=False)
    assert "9.5 programs want its 8 processors" in found().what
    monkeypatch.delattr(os, "getloadavg")
    assert doctor.findings() == []


def test_openblas_is_asked() -> None:
    """Its core and threads where NumPy has it, nothing elsewhere."""
    core, count = REAL
    assert (core is None) == (count is None) == (not blas.can_be_held())
    if core is not None:
        command = [
            sys.executable,
            "-c",
            "from xtensor.devices import blas; print(blas.core_name(), blas.thread_count())",
        ]
        environment = ENVIRONMENT | {"OPENBLAS_NUM_THREADS": "1"}
        done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True)
        assert done.stdout.split() == [core, "1"], done.stderr
