"""Machine code: LLVM IR compiled for this machine by llvmlite, kept in memory and on disk.

Code is first compiled cheaply, and compiled well in the background once it has proved hot. Compiled objects are kept in
a folder of the user's, named by a hash of everything they depend on and sealed by a hash of their content.
"""

from __future__ import annotations

import atexit
import ctypes
import hashlib
import os
import re
import threading
from collections.abc import Callable, Hashable
from contextlib import suppress
from functools import cache, lru_cache, partial
from time import perf_counter
from typing import Any, NamedTuple

from ...base.caches import make_room
from ...base.locks import fork_safe_lock, fork_waiting_lock
from ...base.options import settings
from ...base.threads import aside
from ..disk import Disk
from .masks import branched
from .vector import LacksError

Function = Callable[[bytes], None]

# Code generation levels of LLVM: the cheap one spends a third of the time and its code runs 10 to 50 % slower.
CHEAP, GOOD = 0, 2

# Code that has run so often, or for so many seconds, is worth compiling well.
HOT_CALLS, HOT_SECONDS = 12, 0.01

ON_WINDOWS = os.name == "nt"

# Compiled kernels held in memory; the oldest go first.
CODES = 1024

# Held while LLVM works: a fork meanwhile would leave the child with LLVM's own locks held.
_compiling = fork_waiting_lock()


class CompileError(LacksError):
    """LLVM failed on a program: the interpreter runs it instead, and says so."""


class Host(NamedTuple):
    """The target of compilation. vector_bytes: of one register; streams: whether stores can bypass the caches."""

    triple: str
    cpu: str
    features: str
    version: str
    vector_bytes: int
    streams: bool


@cache
def host() -> Host | None:
    """Return this machine, or None if there is no llvmlite or no fused multiply-add."""
    return aside(_find_host)


def the_host() -> Host:
    """Return this machine, for code that is only reached if there is one to compile for."""
    machine = host()
    assert machine is not None
    return machine


def _find_host() -> Host | None:
    with _compiling:  # a fork while llvmlite is imported would leave the child with the import's lock held
        return _described_host()


def _described_host() -> Host | None:
    try:
        import llvmlite.binding as llvm

        features = llvm.get_host_cpu_features()
        triple = llvm.get_process_triple()
    except (ImportError, OSError):  # llvmlite is missing, or its library cannot be loaded
        return None
    x86 = triple.startswith("x86_64")
    if x86 and not (features.get("fma") and features.get("avx2")):
        return None
    if not x86 and (ON_WINDOWS or not triple.startswith(("aarch64", "arm64"))):  # LLVM has no whole addresses there
        return None
    wide = all(features.get(name) for name in ("avx512f", "avx512bw", "avx512dq", "avx512vl"))
    vector_bytes = (64 if wide else 32) if x86 else 16
    version = ".".join(map(str, llvm.llvm_version_info))
    return Host(triple, llvm.get_host_cpu_name(), features.flatten(), version, vector_bytes, x86)


class Code:
    """One kernel's machine code. `call(slots)` runs it; it is replaced by better code when that is ready.

    write: returns the text of the better code. entry: the address of a word in memory that holds this code's address.
    """

    __slots__ = ("_entry", "_write", "address", "cache_dir", "call", "calls", "entry", "level", "library", "seconds")

    def __init__(self, write: Callable[[], str]) -> None:
        self._write = write
        self.cache_dir = settings().cache_dir  # better code goes to the same folder
        self.calls = 0
        self.seconds = 0.0
        self.level = CHEAP
        self.library: Any = None
        self.call: Function = _no_code
        self.address = 0
        self._entry = ctypes.c_void_p()
        self.entry = ctypes.addressof(self._entry)

    def enter(self, address: int) -> None:
        """Replace the machine code by that at an address."""
        self.address = self._entry.value = address

    @property
    def text(self) -> str:
        """The LLVM IR that is compiled well."""
        return self._write()

    def used(self, seconds: float) -> None:
        """Count a use; hot code is compiled well, once, in the background."""
        self.calls += 1
        self.seconds += seconds
        if self.level == CHEAP and (self.calls >= HOT_CALLS or self.seconds > HOT_SECONDS):
            self.level = GOOD
            _improver.improve(self)


def improve(code: Code) -> None:
    """Compile code well now, as it will be called often soon; if that fails, the cheap code does the same."""
    code.level = GOOD
    with suppress(RuntimeError, MemoryError):
        aside(partial(_compile_well, code, counts), _save_all)
        counts.improved += 1


def _no_code(slots: bytes) -> None:
    raise AssertionError("code is called before it is compiled")


class Counts:
    """Statistics of the cache of kernels since the start; read by `xt.cache_info()`.

    compiled: kernels made by LLVM; improved: those made again with more care; loaded: those found on disk;
    hits: kernels asked for that were in memory; seconds: spent compiling in the foreground.
    """

    def __init__(self) -> None:
        self.compiled = self.improved = self.loaded = self.hits = 0
        self.seconds = 0.0


counts = Counts()
_codes: dict[Hashable, Code] = {}


def code_of(key: Hashable, write: Callable[[], str], write_briefly: Callable[[], str] | None = None) -> Code:
    """Return the machine code under a key; if there is none yet, it is compiled from the text that `write` returns.

    write_briefly: returns another text that computes the same and compiles faster, if there is one; it is compiled
    first. Raises LacksError if the text cannot be written, as generated code lacks a step.
    """
    found = _codes.get(key)
    if found is not None:
        counts.hits += 1
        return found
    started = perf_counter()
    code = Code(write)
    text = (write_briefly or write)()
    aside(partial(_compile, key, code, text), _save_all)
    counts.seconds += perf_counter() - started
    return code


def _compile(key: Hashable, code: Code, text: str) -> None:
    """Compile a text and remember the machine code under a key."""
    with _compiling:
        try:
            _make(code, text, CHEAP)
        except RuntimeError as error:
            raise CompileError(f"code, because compiling it failed: {error}") from error
        make_room(_codes, CODES)
        _codes[key] = code


@lru_cache(512)  # products with following steps have many kernels: callers hold the code that they run
def handmade(text: str) -> Code:
    """Return the machine code of a text with a function `kernel`; it is not among the kernels that are counted."""
    machine = host()
    slow = machine is not None and machine.streams and machine.vector_bytes < 64
    own = anywhere(branched(text) if slow else text)
    code = Code(lambda: own)
    aside(partial(_compile_well, code, Counts()), _save_all)
    return code


# Loads and stores of numbers whose alignment is left out, or said to be that of a number.
_LEFT_OUT = re.compile(r"(?m)(\b(?:load (?:float|double)|store (?:float|double) %[\w.]+), ptr %[\w.]+)$")
_OF_A_NUMBER = re.compile(r"(?m)^((?!.*\batomic\b).*\b(?:load|store)\b.*\balign )[248]\b")


def anywhere(text: str) -> str:
    """Return a text with numbers at any addresses: arrays of other libraries may begin anywhere."""
    return _OF_A_NUMBER.sub(r"\g<1>1", _LEFT_OUT.sub(r"\1, align 1", text))


def kept_for_ever(code: Code) -> tuple[Any, ...]:
    """Return all objects that handmade code needs to run, for callers that keep it even when this module is gone."""
    return code, _linkers[True]


def _compile_well(code: Code, tally: Counts) -> None:
    with _compiling:
        _make(code, code.text, GOOD, tally, stays=True)


def cached() -> int:
    """Return how many kernels are in memory."""
    return len(_codes)


def forget() -> None:
    """Drop all kernels from memory; the disk keeps its own."""
    _codes.clear()


# ---- from text to an address


def _make(code: Code, text: str, level: int, tally: Counts = counts, *, stays: bool = False) -> None:
    """Compile a text, or load what an earlier process compiled, and link it; `tally` counts it."""
    name = _file_name(text, level)
    found = _disk.load(name, code.cache_dir)
    if found is not None:
        try:
            _link(code, found, level, stays)
            tally.loaded += 1
            return
        except RuntimeError:  # not an object file, whatever its seal says
            _disk.drop(name, code.cache_dir)
    made = _object_of(text, level)
    tally.compiled += 1
    _link(code, made, level, stays)
    _unsaved.append((name, made, code.cache_dir))


def _new_machine(level: int) -> Any:
    """Return the host as LLVM generates code for it at a level."""
    import llvmlite.binding as llvm

    llvm.initialize_native_target()
    llvm.initialize_native_asmprinter()
    machine = the_host()
    return llvm.Target.from_triple(machine.triple).create_target_machine(
        cpu=machine.cpu,
        features=machine.features,
        opt=level,
        reloc="pic",
        codemodel="large" if ON_WINDOWS else "small",
        jit=True,
    )


_target_machine = cache(_new_machine)


# The linkers of machine code, with their numbers of kernels: one for kernels that come and go, one for code that stays.
# A linker frees the memory of a dropped kernel, some 20 kB, only when it is freed itself, with the last of its kernels:
# so each has few. A linker takes 2 ms and 140 kB.
_linkers: dict[bool, tuple[Any, int]] = {}
LINKED = 32


def _linker(stays: bool) -> tuple[Any, int]:
    """Return a linker, with its number of kernels. It uses JITLink, which keeps a kernel and its constants together.

    LLVM's older linker allocates them separately, and ends the process if gigabytes of arrays lie between code and what
    it finds by a distance of 32 bits. llvmlite has only that one on Windows: there code holds whole addresses.
    """
    import llvmlite.binding as llvm

    linker, count = _linkers.get(stays, (None, LINKED))
    if count == LINKED:  # a new machine, as the linker takes ownership of it
        linker, count = llvm.create_lljit_compiler(_new_machine(CHEAP), use_jit_link=not ON_WINDOWS), 0
    _linkers[stays] = linker, count + 1
    return linker, count


def _object_of(text: str, level: int) -> bytes:
    import llvmlite.binding as llvm

    machine = _target_machine(level)
    # A context of its own: in the global one each text would leave its constants and types, some 5 kB, for ever.
    module = llvm.parse_assembly(text, context=llvm.create_context())
    module.verify()  # a wrong module is an error here and a crash later
    for function in module.functions:
        function.add_function_attribute("nounwind")  # tables for exceptions, which nothing throws, would be linked too
    compiled: bytes = machine.emit_object(module)
    return compiled


def _link(code: Code, compiled: bytes, level: int, stays: bool) -> None:
    import llvmlite.binding as llvm

    linker, count = _linker(stays)
    builder = llvm.JITLibraryBuilder().add_object_img(compiled).export_symbol("kernel")
    library = builder.link(linker, f"kernel{count}")  # a unique name: LLVM never frees one for reuse
    code.enter(library["kernel"])
    function = ctypes.CFUNCTYPE(None, ctypes.c_char_p)(code.address)
    function.library = library  # type: ignore[attr-defined]  # a caller may hold nothing else
    code.library = (code.library, library)  # another thread may still be inside the old code
    code.call, code.level = function, level


# ---- better code in the background


class _Improver:
    """A thread that compiles hot kernels well, one after the other; it ends when there is nothing to do."""

    def __init__(self) -> None:
        self.waiting: list[Code] = []
        self.lock = fork_safe_lock()
        self.running = self.closed = False
        atexit.register(self._close)
        if hasattr(os, "register_at_fork"):
            os.register_at_fork(after_in_child=self._start_over)

    def _start_over(self) -> None:
        self.waiting, self.running = [], False

    def improve(self, code: Code) -> None:
        with self.lock:
            if self.closed:
                return
            self.waiting.append(code)
            if self.running:
                return
            with suppress(RuntimeError):  # no thread can be started: the cheap code does the same
                threading.Thread(target=self._work, name="xtensor-compile", daemon=True).start()
                self.running = True

    def _work(self) -> None:
        while True:
            with self.lock:
                if not self.waiting:
                    self.running = False
                    return
                code = self.waiting.pop(0)
            try:
                with _compiling:
                    if not self.closed:
                        _make(code, code.text, GOOD)
                        counts.improved += 1
            except (RuntimeError, MemoryError):
                continue  # the cheap code does the same
            _save_all()

    def _close(self) -> None:
        """At exit, start nothing more and wait for the running compilation: LLVM must not be unloaded under it."""
        with self.lock:
            self.closed = True
            self.waiting.clear()
        with _compiling:
            pass
        _save_all()

    def wait(self) -> None:
        """Wait until all code has been compiled; for benchmarks and tests."""
        while self.running:
            threading.Event().wait(0.001)


_improver = _Improver()
wait_for_better_code = _improver.wait


# ---- the disk

# Objects to be saved: names, machine code, and folders. The code is already in use: nobody waits for the disk.
_unsaved: list[tuple[str, bytes, str | None]] = []
_saving = fork_waiting_lock()


def _save_all() -> None:
    """Save all compiled code, after waiting for another thread that does so."""
    with _saving, suppress(MemoryError):
        while _unsaved:
            _disk.save(*_unsaved.pop())


def _file_name(text: str, level: int) -> str:
    machine = host()
    stamp = "\n".join([text, str(level), *map(str, machine or ())])
    return hashlib.sha256(stamp.encode()).hexdigest()[:40]


_disk = Disk(".o")
