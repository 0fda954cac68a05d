"""What the interpreter of PTX finds out about kernels: accesses out of bounds, races, hangs, undefined results."""

from __future__ import annotations

from typing import Any

import numpy as np
import ptx
import pytest
import test_ptx  # skips this file where it is skipped itself
from ptx import build

SOURCE, module = test_ptx.SOURCE, test_ptx.module


def raises(error: type[Exception], words: str, module: ptx.Module, *call: Any, **more: Any) -> str:
    """Return the text of the error that a launch must raise."""
    with pytest.raises(error, match=words) as caught:
        module.run(*call, **more)
    return str(caught.value)


def test_access_beyond_a_buffer(module: ptx.Module) -> None:
    """One element too far, before the first, or into what is not registered."""
    both = np.zeros(2048, np.float32)
    x, y = both[:100], both[1000:1100]
    text = raises(
        ptx.OutOfBoundsError,
        r"400 bytes into buffer 0 of 400",
        module,
        "beyond",
        1,
        128,
        [x, y, np.int32(100)],
        memory=[x, y],
    )
    address = x.ctypes.data + 400
    line = 1 + SOURCE[: SOURCE.index("KERNEL beyond")].count("\n")
    assert f"{address:#x}" in text and "thread (99, 0, 0)" in text and f"line {line} of the CUDA source" in text
    raises(ptx.OutOfBoundsError, "4 bytes before", module, "writes_beyond", 1, 32, [y, np.int32(100)], memory=[y])
    raises(ptx.OutOfBoundsError, "4 bytes at 0x", module, "beyond", 1, 128, [x, y, np.int32(100)])
    raises(
        ptx.OutOfBoundsError,
        "shared memory, which has 128",
        module,
        "shared_beyond",
        1,
        32,
        [y, np.int32(1)],
        shared_bytes=128,
        memory=[y],
    )
    x.flags.writeable = False
    raises(
        ptx.OutOfBoundsError, "read only", module, "writes_beyond", 1, 32, [x.ctypes.data + 4, np.int32(9)], memory=[x]
    )


def test_memory_at_given_addresses(module: ptx.Module) -> None:
    """Buffers may lie where the caller says."""
    x, y = np.arange(100, dtype=np.float32), np.zeros(100, np.float32)
    module.run("beyond", 1, 64, [1 << 20, 1 << 21, np.int32(99)], memory=[(1 << 20, x), (1 << 21, y)])
    assert (y[:99] == x[1:]).all() and y[99] == 0


def test_crooked_access(module: ptx.Module) -> None:
    """An address that is no multiple of the size."""
    x, y = np.zeros(128, np.uint8), np.zeros(32, np.float32)
    raises(
        ptx.MisalignedError, "no multiple of 4.*thread \\(1, 0, 0\\)", module, "crooked", 1, 32, [x, y], memory=[x, y]
    )


def test_missing_barriers(module: ptx.Module) -> None:
    """Shared memory used by two threads with no barrier between; with one warp alone as well."""
    x, y = np.arange(64, dtype=np.int32), np.zeros(64, np.int32)
    raises(ptx.RaceError, "no barrier between", module, "no_barrier", 1, 64, [x, y], memory=[x, y])
    raises(ptx.RaceError, "no barrier between", module, "early_write", 1, 64, [x, y], memory=[x, y])
    raises(ptx.RaceError, "different values", module, "same_place", 1, 32, [y], memory=[y])


def test_meeting_in_global_memory(module: ptx.Module) -> None:
    """A byte that one thread writes and another one uses; with a barrier between, within a block, it may."""
    x, y = np.arange(65, dtype=np.int32), np.zeros(64, np.int32)
    raises(
        ptx.RaceError,
        "thread 0 of the launch reads byte 4 of buffer 0, which thread 1 writes",
        module,
        "meeting",
        1,
        64,
        [x],
        memory=[x],
    )
    raises(ptx.RaceError, "thread 0 of the launch writes byte 0", module, "all_write", 1, 64, [y], memory=[y])
    raises(ptx.RaceError, "thread 0 of the launch", module, "through_memory", 2, 32, [x, y], memory=[x, y])
    module.run("through_memory", 1, 64, [x, y], memory=[x, y])
    assert y.tolist() == list(range(63, -1, -1))


def test_waiting_for_ever(module: ptx.Module) -> None:
    """Barriers that not all reach, partners that are elsewhere, loops without end."""
    x, y = np.arange(64, dtype=np.int32), np.zeros(64, np.int32)
    raises(ptx.DeadlockError, "32 threads wait", module, "lonely", 1, 32, [y], memory=[y])
    raises(
        ptx.UndefinedError,
        "thread 20 of the warp, which is not here",
        module,
        "missing_partner",
        1,
        32,
        [x, y],
        memory=[x, y],
    )
    raises(ptx.TooLongError, "more than 20000 steps", module, "endless", 1, 1, [y], memory=[y])


def test_division_by_zero(module: ptx.Module) -> None:
    """What C++ leaves undefined, a kernel must not do."""
    x, y = np.array([1, -(2**31), 5], np.int32), np.zeros(3, np.int32)
    for divisor, words in (([1, 1, 0], "5 divided by 0"), ([1, -1, 1], "-2147483648 divided by -1")):
        z = np.array(divisor, np.int32)
        raises(ptx.UndefinedError, words, module, "quotients", 1, 3, [x, z, y], memory=[x, y, z])


def test_what_is_not_known_is_named(module: ptx.Module) -> None:
    """An opcode that is not interpreted, launches that no GPU takes, arguments that do not fit."""
    y = np.zeros(4, np.int32)
    raises(NotImplementedError, r"opcode nanosleep\.u32", module, "unknown", 1, 1, [y], memory=[y])
    raises(ValueError, "cannot be launched", module, "same_place", 1, 2048, [y])
    raises(TypeError, "takes 1 arguments, got 2", module, "same_place", 1, 4, [y, y])
    raises(TypeError, "argument 0 must have 8 bytes, got 4", module, "same_place", 1, 4, [np.int32(4)])


def test_sources_that_do_not_compile() -> None:
    """The compiler's own words."""
    with pytest.raises(RuntimeError, match='identifier "nothing" is undefined'):
        build.compiled('extern "C" __global__ void k() { nothing(); }')
