"""Bad weather: long graphs, killed processes, spoilt caches, forks, threads, no compiler, no memory, interrupts."""

from __future__ import annotations

import hashlib
import os
import resource
import shutil
import signal
import subprocess
import sys
import threading
import time
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import xtensor as xt
import xtensor.memory
from xtensor.codegen import disk
from xtensor.codegen.cpu import compile as compiling
from xtensor.storage.pool import POOL, Pool

ROOT = Path(__file__).resolve().parent.parent
ENGINES = ["direct", "interpret", "llvm"]
every_engine = pytest.mark.parametrize("engine", ENGINES)
needs_llvm = pytest.mark.skipif(compiling.host() is None, reason="there is no llvmlite")
posix = pytest.mark.skipif(not hasattr(os, "fork"), reason="the system has no fork")


def under(engine: str, **more: Any) -> Any:
    """Record every call and run what is recorded by one engine."""
    return xt.options(**{"lazy": "always", "engine": engine, "cache_dir": "", **more})


@pytest.fixture(autouse=True)
def no_warnings() -> Iterator[None]:
    with warnings.catch_warnings(), np.errstate(all="raise"):
        warnings.simplefilter("error")
        before = np.geterr()
        yield
        assert np.geterr() == before


# ---- other processes

PREAMBLE = """
import os, sys, signal, threading, time, warnings
warnings.simplefilter("error")
import numpy as np
import numpy.testing  # which NumPy would import in the middle of a fork
import xtensor as xt
from xtensor.codegen import disk
from xtensor.codegen.cpu import compile as compiling
np.seterr(all="raise")

def work(size=1000, times=1):
    "Several programs, checked against NumPy."
    for turn in range(times):
        a = np.linspace(-1.0, 1.0, size + turn)
        for dtype in (np.float32, np.float64):
            n = a.astype(dtype)
            x = xt.asarray(n, copy=True)
            with xt.options(lazy="always"):
                y = xt.abs(x * 2 + 1) - x
                z = xt.where(x > 0, x, -x) * 3
                s = xt.max(y - z)
                e = xt.exp(x) * 2
                xt.evaluate(y, z, s, e)
            np.testing.assert_array_equal(np.asarray(y), np.abs(n * 2 + 1) - n)
            np.testing.assert_array_equal(np.asarray(z), np.abs(n) * 3)
            assert float(s) == float(np.max((np.abs(n * 2 + 1) - n) - np.abs(n) * 3))
            np.testing.assert_allclose(np.asarray(e), np.exp(n) * 2, rtol=4 * np.finfo(dtype).eps)
"""


def python(code: str, *, engine: str = "llvm", cache: Any = "", user: int | None = None, **environment: str) -> Any:
    """Run a program in a process of its own, with nothing of this one's settings."""
    inherited = {name: value for name, value in os.environ.items() if not name.startswith("XTENSOR_")}
    folder = None if cache is None else str(cache)
    settings = {"PYTHONPATH": str(ROOT), "XTENSOR_ENGINE": engine, "XTENSOR_CACHE_DIR": folder} | environment
    settings = {name: value for name, value in settings.items() if value is not None}
    more = {} if user is None else {"user": user, "group": user, "extra_groups": []}
    return subprocess.run(
        [sys.executable, "-c", PREAMBLE + code],
        env=inherited | settings,
        capture_output=True,
        text=True,
        timeout=120,
        cwd="/",
        **more,
    )


def good(code: str, **settings: Any) -> str:
    """Run a program that must end well and say nothing on standard error; return what it printed."""
    done = python(code, **settings)
    assert done.returncode == 0 and not done.stderr, f"exit {done.returncode}: {done.stderr[-1500:]}"
    return str(done.stdout)


REPORT = "\nc = compiling.counts\nprint(c.compiled - c.improved, c.loaded)"


def made_and_loaded(code: str = "work()", **settings: Any) -> tuple[int, int]:
    made, loaded = good(code + REPORT, **settings).split()
    return int(made), int(loaded)


# ---- long graphs


@every_engine
def test_a_graph_built_in_a_loop(engine: str) -> None:
    """A loop that looks at nothing: work, time and memory stay those of its steps."""
    steps = 10_000
    with under(engine):
        x = y = xt.asarray(np.zeros(50), copy=True)
        started, before = time.monotonic(), resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        for step in range(steps):
            y = y + 1 if step % 2 else y * 1 - x
        assert float(y[0]) == steps // 2
    assert time.monotonic() - started < 20
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 100 * 1024


@pytest.mark.long
@pytest.mark.parametrize("size", [50, 20_000])
@every_engine
def test_a_hundred_thousand_steps(engine: str, size: int) -> None:
    """The same with the full number of steps, small and large."""
    with under(engine):
        x = y = xt.asarray(np.zeros(size), copy=True)
        held = []
        before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        for step in range(100_000):
            y = y + 1 if step % 2 else y * 1 - x
            if step % 10_000 == 0:
                held.append((step, y))
        assert float(y[0]) == 50_000 and float(y[-1]) == 50_000
        assert all(float(value[size // 2]) == step // 2 for step, value in held)
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 300 * 1024


@every_engine
def test_an_unbounded_graph_needs_no_recursion(engine: str) -> None:
    """Without a limit on steps, evaluated, and dropped unevaluated, deeper than Python's stack."""
    with under(engine, fuse_limit=1 << 60):
        for evaluated in (True, False):
            y = xt.asarray(np.zeros(3), copy=True)
            for _ in range(30_000):
                y = y + 1
            if evaluated:
                assert y.tolist() == [30_000.0] * 3
            del y


# ---- the cache on disk


@needs_llvm
def test_the_cache_serves_the_next_process(tmp_path: Path) -> None:
    """What one process compiles, the next one loads; the folder is private, the files have nothing aside."""
    made, loaded = made_and_loaded(cache=tmp_path / "a" / "b")
    assert made > 0 and loaded == 0
    assert made_and_loaded(cache=tmp_path / "a" / "b") == (0, made)
    assert (tmp_path / "a" / "b").stat().st_mode & 0o777 == 0o700
    assert {file.suffix for file in (tmp_path / "a" / "b").iterdir()} == {".o"}


@needs_llvm
def test_the_cache_can_be_switched_off(tmp_path: Path) -> None:
    """By the environment, and by the option, for the background's better code too."""
    home = tmp_path / "home"
    home.mkdir()
    hot = "work(100, 40)\ncompiling.wait_for_better_code()\nassert compiling.counts.improved"
    good(hot, cache="", HOME=str(home), XDG_CACHE_HOME="")
    assert not [*home.rglob("*.o")]
    with_option = f"with xt.options(cache_dir=''):\n    {hot.replace(chr(10), chr(10) + '    ')}"
    good(with_option, cache=None, HOME=str(home), XDG_CACHE_HOME="")
    assert not [*home.rglob("*.o")]


@needs_llvm
def test_the_folder_of_the_option_gets_everything(tmp_path: Path) -> None:
    """Cheap code and the better code made in the background go where the option says."""
    home, folder = tmp_path / "home", tmp_path / "chosen"
    home.mkdir()
    code = f"with xt.options(cache_dir={str(folder)!r}):\n    work(100, 40)\n    compiling.wait_for_better_code()"
    good(code + "\nassert compiling.counts.improved", cache=None, HOME=str(home), XDG_CACHE_HOME="")
    assert [*folder.glob("*.o")] and not [*home.rglob("*.o")]


@needs_llvm
def test_killed_while_writing(tmp_path: Path) -> None:
    """Before, in the middle of, and after writing the file, at the first and the second one."""
    for where in ("os.replace", "file.write", "tempfile.mkstemp"):
        for turn in (1, 2):
            folder = tmp_path / f"{where}{turn}"
            code = f"""
import os, tempfile, io
left = [{turn}]
def deadly(function, half=False):
    def call(*args, **params):
        left[0] -= 1
        if left[0] == 0:
            if half:
                function(args[0][: len(args[0]) // 2])
                half.flush()
            os.kill(os.getpid(), signal.SIGKILL)
        return function(*args, **params)
    return call
if {where!r} == "os.replace":
    os.replace = deadly(os.replace)
elif {where!r} == "tempfile.mkstemp":
    tempfile.mkstemp = deadly(tempfile.mkstemp)
else:
    real = os.fdopen
    class Half:
        def __init__(self, file): self.file = file
        def __enter__(self): return self
        def __exit__(self, *failure): self.file.close()
        def write(self, data): return deadly(self.file.write, self.file)(data)
    os.fdopen = lambda handle, mode: Half(real(handle, mode))
work()
"""
            assert python(code, cache=folder).returncode == -signal.SIGKILL
            made, loaded = made_and_loaded(cache=folder)
            assert made > 0 and loaded in (turn - 1, turn - 2)  # the driver is saved too, and not counted
            assert made_and_loaded(cache=folder) == (0, made + loaded)


@needs_llvm
def test_killed_at_any_time(tmp_path: Path) -> None:
    """A process killed at some moment leaves a cache that works."""
    for turn in range(5):
        timer = f"threading.Timer({0.15 * turn + 0.05}, os.kill, (os.getpid(), signal.SIGKILL)).start()"
        assert python(f"{timer}\nwork(50, 400)\ntime.sleep(5)", cache=tmp_path).returncode == -signal.SIGKILL
    good("work()", cache=tmp_path)
    assert made_and_loaded(cache=tmp_path)[0] == 0


SPOILED: dict[str, Callable[[Path], Any]] = {
    "empty": lambda file: file.write_bytes(b""),
    "shorter than a seal": lambda file: file.write_bytes(b"abc"),
    "only a seal": lambda file: file.write_bytes(file.read_bytes()[:32]),
    "truncated": lambda file: file.write_bytes(file.read_bytes()[:-100]),
    "longer": lambda file: file.write_bytes(file.read_bytes() + b"x"),
    "one bit": lambda file: file.write_bytes(
        file.read_bytes()[:200] + bytes([file.read_bytes()[200] ^ 1]) + file.read_bytes()[201:]
    ),
    "zeros": lambda file: file.write_bytes(bytes(len(file.read_bytes()))),
    "text": lambda file: file.write_text("not an object file"),
    "sealed nothing": lambda file: file.write_bytes(sealed(file, b"")),
    "sealed text": lambda file: file.write_bytes(sealed(file, b"not an object")),
    "sealed and truncated": lambda file: file.write_bytes(sealed(file, file.read_bytes()[32:-300])),
    "sealed half": lambda file: file.write_bytes(sealed(file, file.read_bytes()[32 : len(file.read_bytes()) // 2])),
    "sealed other function": lambda file: file.write_bytes(sealed(file, another_object())),
    "a folder": lambda file: (file.unlink(), file.mkdir()),
    "a dangling link": lambda file: (file.unlink(), file.symlink_to("/nowhere/at/all")),
    "unreadable": lambda file: file.chmod(0),
}


def sealed(file: Path, content: bytes) -> bytes:
    return hashlib.sha256(file.stem.encode() + content).digest() + content


def another_object() -> bytes:
    """Return a proper object file without what we look for in it."""
    return compiling._object_of("define void @stranger(ptr %p) {\nret void\n}\n", compiling.CHEAP)


def copied(filled: tuple[Path, int], folder: Path) -> int:
    """Copy a cache that was filled; return how many kernels are in it."""
    shutil.copytree(filled[0], folder, dirs_exist_ok=True)
    return filled[1]


@pytest.fixture(scope="module")
def filled(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, int]:
    """Return a cache that a process has filled, and how many kernels are in it."""
    folder = tmp_path_factory.mktemp("filled")
    return folder, made_and_loaded(cache=folder)[0]


@needs_llvm
@pytest.mark.parametrize("how", SPOILED)
def test_spoilt_files(filled: tuple[Path, int], tmp_path: Path, how: str) -> None:
    """Whatever lies where a compiled kernel should: values are right, nothing is said, and the file is mended."""
    made = copied(filled, tmp_path)
    for file in [*tmp_path.glob("*.o")]:
        SPOILED[how](file)
    again, loaded = made_and_loaded(cache=tmp_path)
    if how == "unreadable" and os.geteuid() == 0:  # root reads everything
        assert (again, loaded) == (0, made)
        return
    assert again == made
    if how != "a folder":
        assert made_and_loaded(cache=tmp_path) == (0, made)


@needs_llvm
def test_exchanged_files(filled: tuple[Path, int], tmp_path: Path) -> None:
    """A kernel under the name of another one is not taken for it, though it is whole."""
    made = copied(filled, tmp_path)
    files = sorted(tmp_path.glob("*.o"))
    contents = [file.read_bytes() for file in files]
    for file, content in zip(files, [*contents[1:], contents[0]], strict=True):
        file.write_bytes(content)
    assert made_and_loaded(cache=tmp_path) == (made, 0)
    assert made_and_loaded(cache=tmp_path) == (0, made)


def test_the_folder_is_bounded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of more bytes than there may be the files that were used longest ago go, and nothing of anybody else's."""
    monkeypatch.setattr(disk, "MOST_BYTES", 10_000)
    monkeypatch.setattr(disk, "LOOK_AGAIN", 4)
    stranger = tmp_path / "notes.o"
    stranger.write_bytes(bytes(50_000))
    names = [f"{number:040x}" for number in range(60)]
    cache, sizes = disk.Disk(".o"), []
    for age, name in zip(range(60, 0, -1), names, strict=True):
        cache.save(name, bytes(968), str(tmp_path))
        when = time.time() - (2 + age) * disk.DAY
        os.utime(tmp_path / f"{name}.o", (when, when))
        assert cache.load(names[0], str(tmp_path)) == bytes(968)  # which is in use all the time
        sizes.append(sum(file.stat().st_size for file in tmp_path.iterdir() if file != stranger))
    assert max(sizes) <= 10_000 + 4 * 1000 and sizes[-1] >= 7_000
    left = {file.stem for file in tmp_path.iterdir() if file != stranger}
    assert names[0] in left and names[-1] in left and names[1] not in left
    assert stranger.stat().st_size == 50_000


@needs_llvm
def test_strangers_in_the_folder(tmp_path: Path) -> None:
    """Other files in the folder disturb nothing and stay."""
    (tmp_path / "notes.txt").write_text("mine")
    (tmp_path / "x.o").write_bytes(b"junk")
    (tmp_path / "deadbeef.o.part").write_bytes(b"junk")
    (tmp_path / "sub").mkdir()
    tmp_path.chmod(0o700)
    made, _ = made_and_loaded(cache=tmp_path)
    assert made_and_loaded(cache=tmp_path) == (0, made)
    assert (tmp_path / "notes.txt").read_text() == "mine"


@needs_llvm
def test_folders_that_cannot_be_used(tmp_path: Path) -> None:
    """A file, something below a file, a name too long, a place where nothing can be made: it works without."""
    file = tmp_path / "file"
    file.write_text("")
    for folder in (
        file,
        file / "below",
        tmp_path / ("n" * 300),
        "/proc/xtensor",
        "/dev/null",
        "~nobody-of-that-name/x",
    ):
        made, loaded = made_and_loaded(cache=folder)
        assert made > 0 and loaded == 0
    good("work()", cache=None, HOME="/proc/nowhere", XDG_CACHE_HOME="")


@needs_llvm
@pytest.mark.skipif(not hasattr(os, "geteuid") or os.geteuid() != 0, reason="only root can become another user")
def test_folders_of_others_and_for_all(tmp_path: Path) -> None:
    """Files there are executed: a folder that others may write to is not used, nor one that is not ours."""
    open_to_all = tmp_path / "open"
    open_to_all.mkdir()
    made, _ = made_and_loaded(cache=open_to_all)
    for mode in (0o777, 0o770, 0o702, 0o1777):
        open_to_all.chmod(mode)
        assert made_and_loaded(cache=open_to_all) == (made, 0)
    open_to_all.chmod(0o755)
    assert made_and_loaded(cache=open_to_all) == (0, made)
    os.chown(open_to_all, 65534, 65534)
    assert made_and_loaded(cache=open_to_all) == (made, 0)


@needs_llvm
@pytest.mark.skipif(not hasattr(os, "geteuid") or os.geteuid() != 0, reason="only root can become another user")
def test_read_only_folder(tmp_path: Path) -> None:
    """A full cache that cannot be written serves; one that is spoilt or empty does no harm."""
    nobody = 65534
    for folder in (tmp_path, *tmp_path.parents):
        if folder.stat().st_mode & 0o005 != 0o005 and folder != Path("/"):
            folder.chmod(folder.stat().st_mode | 0o055)
    cache = tmp_path / "cache"
    cache.mkdir()
    os.chown(cache, nobody, nobody)
    try:
        if python("pass", user=nobody).returncode:
            raise PermissionError
    except PermissionError:
        pytest.skip("another user cannot run this interpreter")
    empty, _ = made_and_loaded(cache=cache, user=nobody)
    files = [*cache.glob("*.o")]
    assert len(files) == empty
    cache.chmod(0o500)
    assert made_and_loaded(cache=cache, user=nobody) == (0, empty)
    for file in files:
        file.write_bytes(sealed(file, b"not an object"))
    assert made_and_loaded(cache=cache, user=nobody) == (empty, 0)
    for file in files:
        file.unlink()
    assert made_and_loaded(cache=cache, user=nobody) == (empty, 0)
    cache.chmod(0)
    assert made_and_loaded(cache=cache, user=nobody) == (empty, 0)


@needs_llvm
def test_a_full_disk(tmp_path: Path) -> None:
    """No room for the file: nothing is said and nothing is left."""
    code = """
import errno
class Full:
    def __init__(self, handle): self.handle = handle
    def __enter__(self): return self
    def __exit__(self, *failure): os.close(self.handle)
    def write(self, data): raise OSError(errno.ENOSPC, "No space left on device")
os.fdopen = lambda handle, mode: Full(handle)
work()
"""
    good(code, cache=tmp_path)
    assert [file.name for file in tmp_path.iterdir()] == []


@needs_llvm
def test_two_processes_fill_one_cache(tmp_path: Path) -> None:
    """At the same time, with the same kernels."""
    code = "while time.time() < {start}: pass\nwork(300, 15)\ncompiling.wait_for_better_code()"
    start = time.time() + 1.5
    done: list[Any] = []
    threads = [
        threading.Thread(target=lambda: done.append(python(code.format(start=start), cache=tmp_path))) for _ in range(3)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert [(one.returncode, one.stderr) for one in done] == [(0, "")] * 3
    assert made_and_loaded(cache=tmp_path)[0] == 0
    assert {file.suffix for file in tmp_path.iterdir()} == {".o"}


@needs_llvm
def test_a_process_that_ends_while_code_is_made(tmp_path: Path) -> None:
    """Leaving with the background compiler at work is no crash."""
    for turn in range(6):
        good(f"work(100, {13 + turn % 3})\ntime.sleep({turn * 0.01})")


@needs_llvm
@pytest.mark.skipif(
    sys.platform != "linux", reason="asks Linux for memory, which takes the highest gap that is wide enough"
)
def test_memory_in_pieces() -> None:
    """Where gaps of some pages are gigabytes apart, code and its constants lie together all the same."""
    good("""
import ctypes
libc = ctypes.CDLL(None)
libc.mmap.restype = ctypes.c_void_p
libc.mmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int, ctypes.c_int, ctypes.c_int, ctypes.c_long]
libc.munmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t]

def reserve(nbytes):
    return libc.mmap(None, nbytes, 0, 0x4022, -1, 0)  # private, anonymous, reserving nothing, for nobody to use

work()
wall, taken = reserve(6 << 30), []
for size in (1 << 30, 64 << 20, 4 << 20, 256 << 10, 16 << 10, 4 << 10):
    while (at := reserve(size)) > wall:
        taken.append((at, size))
    libc.munmap(at, size)
gaps = [at for at, size in taken if size >= 16 << 10]
n = np.linspace(0.1, 1.0, 1000)
x = xt.asarray(n, copy=True)
for pages in (1, 2, 3, 4):
    for turn in range(4):
        libc.munmap(gaps.pop(), pages * 4096)
        with xt.options(lazy="always"):
            y = (xt.exp(x) * 2.0 + xt.sin(x)).native()
            for step in range(pages * 4 + turn):
                x = x + 1.0 if step % 2 else x - 1.0
            z = xt.log(xt.abs(x) + 2.0).native()
        np.testing.assert_allclose(y, np.exp(n) * 2.0 + np.sin(n), rtol=1e-14)
        x = xt.asarray(n, copy=True)
""")


@needs_llvm
def test_a_failure_in_the_background() -> None:
    """A better version that cannot be made leaves the good one, and the next one is made all the same."""
    good("""
seen = []
real = compiling._make
def failing(code, text, level, *tally, **more):
    if level == compiling.GOOD and not tally:  # not of what is written out by hand
        seen.append(code)
        raise (MemoryError if len(seen) % 2 else RuntimeError)("no better code today")
    return real(code, text, level, *tally, **more)
compiling._make = failing
threading.excepthook = lambda args: None
work(100, 30)
for _ in range(500):
    if len(seen) > 1: break
    time.sleep(0.01)
assert len(seen) > 1, seen
compiling._make = real
waiter = threading.Thread(target=compiling.wait_for_better_code, daemon=True)
waiter.start()
waiter.join(10)
assert not waiter.is_alive(), "wait_for_better_code waits for ever"
work()
""")


# ---- forks


FORKS = """
def child(function):
    pid = os.fork()
    if pid == 0:
        code = 1
        try:
            signal.alarm(10)
            function()
            code = 0
        except BaseException as error:
            import traceback
            traceback.print_exc()
        finally:
            os._exit(code)
    return pid

def end_well(pids):
    for pid in pids:
        _, status = os.waitpid(pid, 0)
        assert status == 0, f"child ended with {status}"
"""


@posix
@pytest.mark.parametrize("engine", ["direct", "interpret", "llvm", "auto"])
def test_forks_in_the_middle(engine: str) -> None:
    """With workers alive and values pending, parent and child compute on, large and small."""
    good(
        FORKS
        + """
work(400_000)
with xt.options(lazy="always", threads=3):
    base = np.linspace(0.0, 1.0, 500_000)
    x = xt.asarray(base, copy=True)
    for turn in range(6):
        pending = xt.abs(x * 2 - turn) + x
        right = np.abs(base * 2 - turn) + base
        def compute():
            np.testing.assert_array_equal(np.asarray(pending), right)
            work(300_000 + turn)
        pids = [child(compute) for _ in range(2)]
        compute()
        end_well(pids)
""",
        engine=engine,
    )


@posix
@needs_llvm
def test_forks_while_llvmlite_is_imported() -> None:
    """A child forked while another thread first uses the compiler can use it too."""
    for delay in (0.0, 0.01, 0.02, 0.04, 0.08):
        good(
            FORKS
            + f"""
thread = threading.Thread(target=work, args=(50,), daemon=True)
thread.start()
time.sleep({delay})
end_well([child(lambda: work(60))])
thread.join()
"""
        )


@posix
@needs_llvm
def test_forks_while_the_compiler_is_busy() -> None:
    """The background compiler has LLVM's locks, other threads evaluate: the child finds all of them open."""
    good(
        FORKS
        + """
work()
stop = threading.Event()
def busy(seed):
    turn = 0
    while not stop.is_set():
        turn += 1
        x = xt.asarray(np.linspace(0, 1, 50 + seed), copy=True)
        with xt.options(lazy="always"):
            y = x
            for k in range(turn % 7 + 1):
                y = (xt.exp(y) if (turn >> k) & 1 else y * 2) + seed + k
            for _ in range(14):
                (y + 1).evaluate()
threads = [threading.Thread(target=busy, args=(seed,), daemon=True) for seed in range(2)]
for thread in threads: thread.start()
ended = []
for turn in range(12):
    time.sleep(0.02)
    def compute(turn=turn):
        work(50 + turn)
        with xt.options(lazy="always"):
            x = xt.asarray(np.ones(9), copy=True)
            y = x
            for k in range(turn + 2):
                y = xt.tanh(y + k)
            y.evaluate()
        work(200, 14)
    ended.append(child(compute))
end_well(ended)
stop.set()
for thread in threads: thread.join()
work()
"""
    )


# ---- many threads


def storm(seconds: float, engine: str, failures: list[BaseException]) -> None:
    """Let eight threads compute on shared and on own tensors for so long."""
    rng = np.random.default_rng(0)
    bases = [rng.uniform(-2, 2, size) for size in (1, 17, 1000, 30_000, 300_000)]
    known = [np.abs(base * 2 + 1) for base in bases]
    end = time.monotonic() + seconds
    shared: list[xt.Tensor] = []
    fresh = threading.Barrier(8, action=lambda: renew(), timeout=60)

    def renew() -> None:
        if time.monotonic() > end:
            stop.append(True)
            return
        with under(engine):
            shared[:] = [xt.abs(xt.asarray(base, copy=True) * 2 + 1) for base in bases]

    stop: list[bool] = []

    def body(number: int) -> None:
        own = np.random.default_rng(number)
        with under(engine, threads=int(own.integers(1, 4))):
            while True:
                fresh.wait()
                if stop:
                    return
                for _ in range(4):
                    which = int(own.integers(len(bases)))
                    n = own.uniform(-1, 1, bases[which].size)
                    x = xt.asarray(n, copy=True)
                    y = xt.where(x > 0, x * shared[which], shared[which] - x)
                    total, top = xt.sum(y), xt.max(y)
                    x *= 2 - x * 3
                    right = np.where(n > 0, n * known[which], known[which] - n)
                    assert np.array_equal(np.asarray(y.native()), right)
                    assert float(top) == right.max()
                    assert abs(float(total) - right.sum()) <= 1e-12 * np.abs(right).sum()
                    assert np.array_equal(np.asarray(x.native()), n * (2 - n * 3))
                    assert np.array_equal(np.asarray(shared[which].native()), known[which])

    def guarded(number: int) -> None:
        try:
            body(number)
        except BaseException as error:
            failures.append(error)
            stop.append(True)
            fresh.abort()

    threads = [threading.Thread(target=guarded, args=(number,), daemon=True) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(seconds + 60)
    assert not any(thread.is_alive() for thread in threads), "a thread hangs"


def calm(seconds: float, engine: str) -> None:
    failures: list[BaseException] = []
    switch = sys.getswitchinterval()
    sys.setswitchinterval(1e-5)
    try:
        storm(seconds, engine, failures)
    finally:
        sys.setswitchinterval(switch)
    serious = [failure for failure in failures if not isinstance(failure, threading.BrokenBarrierError)]
    if serious:
        raise serious[0]


@pytest.mark.parametrize("engine", ["direct", "interpret", "llvm", "auto"])
def test_eight_threads(engine: str) -> None:
    calm(1.5, engine)


@pytest.mark.long
@pytest.mark.parametrize("engine", ["direct", "interpret", "llvm", "auto"])
def test_eight_threads_for_a_minute(engine: str) -> None:
    calm(60, engine)


# ---- without a compiler


@pytest.mark.parametrize("engine", ["auto", "llvm", "interpret"])
def test_without_llvmlite(engine: str) -> None:
    """Everything works and nothing is said; the interpreter has the work."""
    out = good(
        """
sys.modules["llvmlite"] = None
work(100_000)
work(10, 30)
assert compiling.host() is None
with xt.options(lazy="always"):
    x = xt.asarray(np.linspace(0, 1, 200_000), copy=True)
    x += 2 * xt.sin(x) + x
    y = (x - xt.mean(x)) / xt.std(x)
    if hasattr(xt, "explain"):
        print(xt.explain(y))
    y.evaluate()
assert "llvmlite.binding" not in sys.modules
if hasattr(xt, "cache_info"):
    xt.cache_info()
print("done")
""",
        engine=engine,
    )
    assert out.endswith("done\n")
    if len(out) > 10:
        assert "interpret" in out


def test_llvmlite_is_imported_only_when_used() -> None:
    """Small work, and the interpreter, need no compiler."""
    good("work(10)\nassert 'llvmlite' not in sys.modules", engine="interpret")
    good("x = xt.ones(10)\nfor _ in range(50): x = x + 1\nassert 'llvmlite' not in sys.modules", engine="auto")


# ---- the environment


def test_environment() -> None:
    """Every switch is read at first use."""
    names = "lazy", "engine", "threads", "fast_math", "cache_dir", "fuse_limit"
    show = f"from xtensor.base.options import settings\nprint(*(getattr(settings(), name) for name in {names}))"
    out = good(
        show,
        XTENSOR_LAZY="always",
        XTENSOR_NUM_THREADS="3",
        XTENSOR_FAST_MATH="1",
        cache="/x/y",
        XTENSOR_FUSE_LIMIT="7",
    )
    assert out == "always llvm 3 True /x/y 7\n"
    assert good(show, engine=None, cache=None) == "auto auto None False None 1024\n"
    late = "os.environ['XTENSOR_LAZY'] = 'always'\nx = xt.ones(3)\nassert (x + 1).is_pending"
    good(late)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("XTENSOR_LAZY", "sometimes"),
        ("XTENSOR_ENGINE", "turbo"),
        ("XTENSOR_NUM_THREADS", "0"),
        ("XTENSOR_NUM_THREADS", "two"),
        ("XTENSOR_FAST_MATH", "perhaps"),
        ("XTENSOR_SHOW", "everything"),
        ("XTENSOR_FUSE_LIMIT", "-1"),
        ("XTENSOR_NUM_THREADS", ""),
    ],
)
def test_wrong_environment(name: str, value: str) -> None:
    """A word that is none raises at first use, and says which; it does so again."""
    done = python(
        """
for _ in range(2):
    try:
        with xt.options(lazy="always"): pass
        (xt.ones(5) + 1).tolist()
    except ValueError as error:
        print(error)
""",
        **{name: value},
    )
    assert done.returncode == 0 and not done.stderr
    lines = done.stdout.splitlines()
    assert len(lines) == 2 and lines[0] == lines[1] and lines[0].startswith("options: ") or value == ""


@needs_llvm
def test_show() -> None:
    """XTENSOR_SHOW prints plans and code to standard error, and nothing goes wrong over it."""
    done = python("work(50)", XTENSOR_SHOW="plan,llvm")
    assert done.returncode == 0 and "define" in done.stderr and not done.stdout
    assert python("work(50)", XTENSOR_SHOW="plan", engine="interpret").returncode == 0


def test_fast_math_contracts_only_when_asked() -> None:
    """a * b + c in one rounding is opted in to, for a moment."""
    a = np.full(100, 1 + 2.0**-30)
    right = a * a - (1 + 2.0**-29)
    with under("llvm", fast_math=False):
        x = xt.asarray(a, copy=True)
        for fast in (False, True, False):
            with xt.options(fast_math=fast):
                value = float((x * x - (1 + 2.0**-29))[3])
            assert value == float(right[3]) if not fast else value in (float(right[3]), 2.0**-60)


# ---- no memory


def failing_at(monkeypatch: Any, place: int) -> list[int]:
    """Let the allocation of that number fail; the list counts those asked for."""
    count = [0]
    lend = Pool.lend

    def short(self: Pool, nbytes: int) -> Any:
        count[0] += 1
        if count[0] == place:
            raise MemoryError("no room")
        return lend(self, nbytes)

    monkeypatch.setattr(Pool, "lend", short)
    return count


@every_engine
@pytest.mark.parametrize("size", [50, 100_000])
def test_no_memory(size: int, engine: str) -> None:
    """Whichever allocation fails, the error is MemoryError, everything stays pending and right, nothing is written."""
    a, b = np.linspace(1, 2, size), np.linspace(-1, 1, size)
    failed = 0
    for place in range(1, 40):
        with under(engine):
            x, y = xt.asarray(a, copy=True), xt.asarray(b, copy=True)
            waiting = x - 1
            s = x + y
            total = xt.sum(s, axis=0, keepdims=True)
            z = s / total - xt.max(s)
            with pytest.MonkeyPatch.context() as patch:
                count = failing_at(patch, place)
                steps: list[Callable[[], Any]] = [
                    z.evaluate,
                    lambda x=x, y=y, s=s: x.__iadd__(y * 2 + s),
                    lambda y=y, s=s: y.__setitem__(..., s * 2),
                ]
                done = 0
                try:
                    for step in steps:
                        step()
                        done += 1
                except MemoryError:
                    failed += 1
            if done < 1:
                assert z.is_pending
            if done < 2:
                np.testing.assert_array_equal(np.asarray(x.native()), a)
            if done < 3:
                np.testing.assert_array_equal(np.asarray(y.native()), b)
            for step in steps[done:]:
                step()
            n = a + b
            np.testing.assert_array_equal(np.asarray(s.native()), n)
            np.testing.assert_array_equal(np.asarray(waiting.native()), a - 1)
            np.testing.assert_allclose(np.asarray(z.native()), n / n.sum() - n.max(), rtol=1e-12)
            np.testing.assert_array_equal(np.asarray(x.native()), a + (b * 2 + n))
            np.testing.assert_array_equal(np.asarray(y.native()), n * 2)
            if count[0] < place:
                break
    assert failed or engine != "llvm"


@pytest.mark.parametrize("engine", ["interpret", "llvm"])
def test_no_memory_for_scratch(engine: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nor does a failure of NumPy's own allocations, in a worker thread too, leave half a result."""
    size = 2_000_000
    a, b = np.linspace(1, 2, size), np.linspace(-1, 1, size)
    with under(engine, threads=2):
        x, y = xt.asarray(a, copy=True), xt.asarray(b, copy=True)
        empty, count = np.empty, [0]

        def short(*args: Any, **params: Any) -> Any:
            count[0] += 1
            if count[0] == place:
                raise MemoryError("no room")
            return empty(*args, **params)

        for at in range(1, 6):
            place, count[0] = at, 0
            total = xt.sum(xt.abs(x * 2 - y) + 1)
            with monkeypatch.context() as patch:
                patch.setattr(np, "empty", short)
                try:
                    total.evaluate()
                except MemoryError:
                    assert total.is_pending
            assert abs(float(total) - float((np.abs(a * 2 - b) + 1).sum())) < 1e-6
            count[0] = 0
            with monkeypatch.context() as patch:
                patch.setattr(np, "empty", short)
                try:
                    x += xt.abs(y * 2 - 1) + y * y
                    done = True
                except MemoryError:
                    done = False
            right = a + (np.abs(b * 2 - 1) + b * b) if done else a
            np.testing.assert_array_equal(np.asarray(x.native()), right)
            x[...] = xt.asarray(a, copy=True)


def test_an_allocation_larger_than_the_machine() -> None:
    """Real, not injected: the tensors stay usable."""
    for engine in ENGINES:
        with under(engine, pinned_limit=1 << 62):
            x = xt.broadcast_to(xt.asarray(np.ones(1), copy=True), (1 << 45,))
            y = x + 1
            for _ in range(2):
                with pytest.raises(MemoryError):
                    y.evaluate()
                assert y.is_pending
            assert float(y[5]) == 2.0


# ---- interrupts


def interrupted(function: Callable[[], Any], seconds: float) -> bool:
    """Run a function and interrupt it after so long; return whether that hit."""

    def interrupt(*_: Any) -> None:
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGALRM, interrupt)
    try:
        signal.setitimer(signal.ITIMER_REAL, seconds)
        try:
            with np.errstate():  # should the interrupt hit where settings are being put back
                function()
        except KeyboardInterrupt:
            return True
        finally:
            signal.setitimer(signal.ITIMER_REAL, 0)
    except KeyboardInterrupt:  # between the two lines above
        return True
    finally:
        signal.signal(signal.SIGALRM, before)
    return False


@posix
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")  # an interrupt may hit a finalizer
@every_engine
def test_interrupts(engine: str) -> None:
    """Ctrl-C at any moment: what was pending is computed when asked for again, and all is right."""
    warnings.simplefilter("ignore", pytest.PytestUnraisableExceptionWarning)
    rng = np.random.default_rng(1)
    size = 300_000
    a, b = rng.uniform(1, 2, size), rng.uniform(1, 2, size)
    hits = 0
    for _ in range(40):
        with under(engine, threads=2):
            x, y = xt.asarray(a, copy=True), xt.asarray(b, copy=True)
            s = xt.abs(x * 2 - y)
            t = xt.sum(s)
            z = (s + x) * y - xt.min(s)
            hits += interrupted(lambda z=z, t=t: xt.evaluate(z, t), float(rng.uniform(1e-5, 8e-3)))
            n = np.abs(a * 2 - b)
            np.testing.assert_array_equal(np.asarray(s.native()), n)
            np.testing.assert_array_equal(np.asarray(z.native()), (n + a) * b - n.min())
            assert abs(float(t) - n.sum()) < 1e-7
            x += s * 2
            np.testing.assert_array_equal(np.asarray(x.native()), a + n * 2)
    assert hits
    assert POOL.stats().in_use < 1 << 30


@posix
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
@every_engine
def test_interrupted_writes(engine: str) -> None:
    """A write that is interrupted has been made or not, each element for itself; readers have their old values."""
    warnings.simplefilter("ignore", pytest.PytestUnraisableExceptionWarning)
    rng = np.random.default_rng(2)
    size = 400_000
    a, b = rng.uniform(1, 2, size), rng.uniform(1, 2, size)
    for _ in range(40):
        with under(engine, threads=2):
            x, y = xt.asarray(a, copy=True), xt.asarray(b, copy=True)
            reader = x * 3
            value = xt.abs(y * 2 - 1)
            interrupted(lambda x=x, value=value: x.__iadd__(value), float(rng.uniform(1e-5, 6e-3)))
            n = np.asarray(x.native())
            assert np.all((n == a) | (n == a + np.abs(b * 2 - 1)))
            np.testing.assert_array_equal(np.asarray(reader.native()), a * 3)
            np.testing.assert_array_equal(np.asarray(value.native()), np.abs(b * 2 - 1))


# ---- the user's NumPy


@every_engine
def test_the_users_error_settings(engine: str) -> None:
    """Whatever the user asks of NumPy, xtensor gives values and no errors, and changes nothing of it; threads too."""
    a = np.array([0.0, -1.0, np.inf, -np.inf, np.nan, 1e308, -1e308, 5e-324] * 6000)
    seen: list[Any] = []

    def everything() -> None:
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            with (
                np.errstate(
                    divide="raise", over="call", invalid="raise", under="raise", call=lambda *_: seen.append(_)
                ),
                under(engine, threads=2),
            ):
                before = np.geterr(), np.geterrcall()
                x = xt.asarray(a, copy=True)
                f = xt.asarray(np.array([3e38, -3e38, np.nan, np.inf] * 9000, np.float32), copy=True)
                i = xt.asarray(np.array([-(1 << 31), 0, 1, 7] * 9000, np.int32), copy=True)
                values = [
                    xt.sum(x),
                    xt.mean(x),
                    xt.std(x),
                    xt.prod(x),
                    xt.max(x),
                    xt.sum(x * x, axis=0, keepdims=True) - x,
                    1 / x,
                    x / x,
                    xt.log(x),
                    xt.sqrt(x),
                    xt.exp(x),
                    x * 1e300,
                    x**3,
                    xt.floor_divide(x, 0.0),
                    x % 0.0,
                    f * f,
                    f * 1e39,
                    f - 1e300,
                    xt.astype(x, xt.float32),
                    xt.astype(f, xt.int32),
                    i // 0,
                    i % 0,
                    i // -1,
                    i * i,
                    xt.abs(i),
                    -i,
                    xt.sum(f),
                    xt.sum(f, axis=0),
                    xt.sum(xt.reshape(x, (-1, 6)), axis=0),
                    xt.sum(xt.reshape(x, (6, -1)), axis=1),
                    f + 1e-46,
                    f == 1e39,
                    xt.where(f > 0, f, 1e39),
                    xt.clip(f, -1e39, 1e39),
                ]
                for place in range(len(values)):
                    values[place].evaluate()
                x += 1 / x - xt.exp(x)
                f[...] = x[: f.shape[0]] * 1e300
                assert (np.geterr(), np.geterrcall()) == before

    everything()
    failures: list[BaseException] = []

    def guarded() -> None:
        try:
            everything()
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=guarded) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failures, failures[0]
    assert not seen
