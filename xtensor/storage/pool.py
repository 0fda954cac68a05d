"""A pool of CPU memory: blocks are reused by size class, because fresh pages cost more than the arithmetic.

The policy. A size is rounded up to one of eight classes per power of two. An idle block of that class serves it, or of
the next ones while at most a quarter of the block stays unused. Where there is none and a fresh block would carry the
pool beyond its room, idle blocks are dropped first, the largest first. The room is the most that was in use at once;
it grows when a size dropped for its sake is asked for again soon, so that a program which alternates between sizes
settles. Idle blocks beyond the limit are dropped at once, and those unused for ten seconds at the next call. A forked
child starts without any: writing to pages it shares with its parent would copy them first.
"""

from __future__ import annotations

import mmap
import os
import sys
import weakref
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from ctypes import addressof, c_char
from functools import cache, partial
from time import monotonic
from typing import Any, NamedTuple

import numpy as np

from ..base.errors import expected
from ..base.locks import fork_safe_lock, holding
from ..base.machine import memory_limit

ALIGNMENT = 64
POOLED = 1 << 16  # smaller ones come from NumPy's allocator: half the time, and few fresh pages
# Blocks begin at pages: a processor mistakes a load for one of a recent store at the same offset in its page, and large
# arrays of NumPy begin 16 bytes into a page. (Adding two arrays takes a third less time.)
PAGE = 1 << 12
HUGE_PAGE = 1 << 21  # blocks from here on are mappings: a fault of a huge page costs a twentieth of its small pages'
# glibc returns each block of 128 KiB or more to the system at once, and gets cleared pages for the next one, until it
# has freed a larger block; this is the largest size that raises its threshold (mallopt(3), M_MMAP_THRESHOLD).
LEARNT = (1 << 25) - 2 * PAGE
IDLE_SECONDS = 10.0
WAITING = 8  # returned blocks that need not be sorted in at once: mostly the next request is for the last of them
LEAST_ROOM = 1 << 24

_BYTE = np.dtype(np.uint8)
_Array = np.ndarray[Any, Any]
_array: Any = np.ndarray
_empty: Any = np.empty


class Stats(NamedTuple):
    """The pool's blocks and counters. Sizes are bytes, of whole blocks.

    in_use: blocks under some array.
    idle: blocks kept for the next request.
    peak: the most that was in use at once.
    limit: idle blocks beyond this are dropped.
    hits, misses: how many requests an idle block served, and how many took fresh memory.
    returned: idle memory given back to the system so far.
    """

    in_use: int
    idle: int
    peak: int
    limit: int
    hits: int
    misses: int
    returned: int


def size_class(nbytes: int) -> int:
    """Return the size of the block for a request: eight classes per power of two, so at most an eighth is waste."""
    step = _step(nbytes - 1)
    return -(-nbytes // step) * step


def _step(size: int) -> int:
    """Return the distance from `size` to the next class."""
    return 1 << (size.bit_length() - 4)


def aligned(make: Callable[..., Any], nbytes: int) -> Any:
    """Return bytes from `np.empty` or `np.zeros` that begin at a multiple of 64."""
    memory = make(nbytes + ALIGNMENT, _BYTE)
    start = -address_of(memory) % ALIGNMENT
    return memory[start : start + nbytes]


def address_of(memory: Any) -> int:
    """Return the address of a buffer, in a quarter of the time of `memory.ctypes.data`."""
    return addressof(c_char.from_buffer(memory))


def cut(memory: Any, address: int, nbytes: int) -> Any:
    """Return bytes at an address inside of memory, which they keep alive."""
    return _array(nbytes, _BYTE, memory, address - address_of(memory))


def _teach_malloc() -> None:
    """Make the C library keep memory that NumPy frees, as it does from a program's first large array on.

    Our blocks are mappings, whose release it does not see: temporaries of NumPy's functions would always take twice as
    long. Only glibc adapts like this; in other libraries the memory might never be returned.
    """
    with suppress(AttributeError, ValueError, OSError, MemoryError):  # where the C library is unknown
        if os.confstr("CS_GNU_LIBC_VERSION"):
            _empty(LEARNT, _BYTE)


_teach_malloc()


# ---- blocks


class Block:
    """Memory of one size class, the offset and address of its first aligned byte, and when it became idle."""

    __slots__ = ("address", "memory", "nbytes", "since", "start")

    def __init__(self, memory: Any, start: int, address: int, nbytes: int) -> None:
        self.memory, self.start, self.address, self.nbytes = memory, start, address, nbytes
        self.since = 0.0


class _Heap(_Array):
    """Memory of NumPy's allocator, in a class of its own: the base of views would skip an owner over a plain array."""

    __slots__ = ()


def _fresh_block(nbytes: int) -> Block:
    """Return a block of fresh memory; raises MemoryError."""
    try:
        return _mapping(nbytes) if nbytes >= HUGE_PAGE and hasattr(mmap, "MAP_PRIVATE") else _heap(nbytes)
    except (MemoryError, OSError, OverflowError, ValueError):  # errors of NumPy and mmap for impossible sizes
        raise MemoryError(expected("allocate", "nbytes", "fit into memory", nbytes)) from None


def _heap(nbytes: int) -> Block:
    memory = _Heap((nbytes + PAGE,), _BYTE)
    begin = address_of(memory)
    return Block(memory, -begin % PAGE, begin + -begin % PAGE, nbytes)


def _mapping(nbytes: int) -> Block:
    """Return a mapping of our own, of huge pages where they exist; dropped, it goes straight back to the system."""
    for length in (-(-nbytes // HUGE_PAGE) * HUGE_PAGE, nbytes + HUGE_PAGE):  # only old kernels need the second
        memory = mmap.mmap(-1, length, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
        begin = address_of(memory)
        start = -begin % HUGE_PAGE
        if start + nbytes <= length:
            break
    if hasattr(mmap, "MADV_HUGEPAGE"):
        with suppress(OSError):  # a kernel built without them
            memory.madvise(mmap.MADV_HUGEPAGE, start, nbytes)
    return Block(memory, start, begin + start, nbytes)


_ending = sys.is_finalizing  # called while modules are torn down, when it could no longer be looked up


class _Lent(_Array):
    """The array between a block of any pool and its views."""

    __slots__ = ("block",)
    block: Block


def is_alone(native: Any) -> bool:
    """Return whether no other array shows an array's memory, NumPy's or a pool's; others may hold the array itself."""
    if native.base is None:
        return True
    # A variable would be one more reference to the base, up to Python 3.13.
    return isinstance(getattr(native.base, "base", None), _Lent) and sys.getrefcount(native.base) == 2


def _owner_class(pool: weakref.ref[Pool]) -> Any:
    """Return the class of the arrays that stand between a block and its views.

    Every array over the memory keeps the owner as its base. When the last one is gone, the block goes back to the pool,
    or is freed if the pool no longer exists.
    """

    class Owner(_Lent):
        __slots__ = ()

        def __del__(self) -> None:
            home = pool()
            if home is not None and not _ending() and hasattr(self, "block"):  # an interrupt may have come before it
                home.take_back(self.block)

    return Owner


# ---- the pool


class Pool:
    """Blocks of memory, in use or idle. Any thread may call it, and so may a finalizer that runs inside a call."""

    def __init__(self, limit: int | None = None) -> None:
        self._limit = limit
        self._lock: Any = fork_safe_lock()
        self._busy = False  # inside a step: the same thread may try a second one from a finalizer or a signal
        self._back: deque[Block] = deque()  # given back, not yet sorted in
        self._waiting_bytes = 0  # about their total: other threads may count at the same time
        self._idle: dict[int, list[Block]] = {}  # by size, the one used last at the end
        self._in_use = self._idle_bytes = self._peak = 0
        self._hits = self._misses = self._returned = 0
        self._room = LEAST_ROOM
        self._dropped: dict[int, float] = {}  # the sizes dropped to make room, and when
        self._swept = 0.0
        this: weakref.ref[Pool] = weakref.ref(self)
        self._owner = _owner_class(this)
        if hasattr(os, "register_at_fork"):
            os.register_at_fork(after_in_child=lambda: _forget_idle(this()))

    # ---- public methods

    def allocate(self, nbytes: int) -> Any:
        """Return `nbytes` unset bytes at a multiple of 64; raises MemoryError when there is no room for them.

        They go back to the pool when the last array over them is gone.
        """
        return cut(*self.lend(nbytes), nbytes)

    def lend(self, nbytes: int) -> tuple[Any, int]:
        """Return an object that keeps such bytes alive, and their address: half the time where no array is needed."""
        if nbytes < POOLED:
            memory = _empty(nbytes + ALIGNMENT, _BYTE)
            begin = address_of(memory)
            return memory, begin + -begin % ALIGNMENT
        block, owner = self._take(nbytes), None
        try:
            owner = self._owner(block.nbytes, _BYTE, block.memory, block.start)
            owner.block = block
        except BaseException:
            if not hasattr(owner, "block"):  # else the owner gives it back
                self.take_back(block)
            raise
        return owner, block.address

    def take_back(self, block: Block) -> None:
        """Put a block among the idle ones; the finalizers of owners call it.

        It never waits: the lock may be held by the very call that this finalizer interrupts, and that call, or at the
        latest the next one, finds the block. A few blocks may wait to be sorted in, but not beyond the limit.
        """
        block.since = monotonic()
        self._back.append(block)
        self._waiting_bytes += block.nbytes
        if len(self._back) > WAITING or self._idle_bytes + self._waiting_bytes > self.limit:
            holding(self._lock, partial(self._alone, self._settle))

    def stats(self) -> Stats:
        """Return the sizes of the pool's blocks, and its counters."""
        with self._lock:
            self._alone(self._settle)
            held = (self._in_use, self._idle_bytes, self._peak, self.limit)
            return Stats(*held, self._hits, self._misses, self._returned)

    def trim(self) -> int:
        """Give all idle memory back to the system; returns how many bytes."""
        with self._lock:
            before = self._returned
            self._alone(self._drop_all)
            return self._returned - before

    @property
    def limit(self) -> int:
        """Idle blocks beyond this many bytes are dropped; None sets it to a quarter of the machine's memory."""
        return _quarter_of_memory() if self._limit is None else self._limit

    @limit.setter
    def limit(self, nbytes: int | None) -> None:
        with self._lock:
            self._limit = nbytes
            self._alone(self._settle)
            self._alone(self._drop, self._idle_bytes - self.limit)

    # ---- steps, taken under the lock

    def _alone(self, step: Callable[..., Any], *args: Any) -> Any:
        """Take a step; do nothing if this thread is inside one already."""
        if self._busy:
            return None
        self._busy = True
        try:
            return step(*args)
        finally:
            self._busy = False

    def _take(self, nbytes: int) -> Block:
        """Return a block of at least `nbytes`, counted as in use: an idle one, or a fresh one."""
        last = self._last(nbytes)
        if last is not None:
            return last
        with self._lock:
            idle: Block | None = self._alone(self._find, nbytes)
            if idle is not None:
                self._hits += 1
                return self._lend(idle)
        fresh = self._make(size_class(nbytes))
        with self._lock:
            self._misses += 1
            return self._lend(fresh)

    def _last(self, nbytes: int) -> Block | None:
        """Return the block of the size that was given back last, if it is not sorted in yet: it counts as in use."""
        with self._lock:
            if self._busy or monotonic() >= self._swept + 1:  # a sort relies on these blocks, or is due
                return None
            for _ in range(len(self._back)):
                try:
                    block = self._back.pop()
                except IndexError:
                    return None
                unused = block.nbytes - nbytes
                if unused >= 0 and 8 * unused < block.nbytes:
                    self._hits += 1
                    self._waiting_bytes -= block.nbytes
                    return block
                self._back.appendleft(block)
            return None

    def _lend(self, block: Block) -> Block:
        self._in_use += block.nbytes
        if self._in_use > self._peak:
            self._peak = self._in_use
        return block

    def _make(self, size: int) -> Block:
        """Return a fresh block; where there is no room for it, the idle ones are dropped first."""
        with suppress(MemoryError):
            return _fresh_block(size)
        self.trim()
        return _fresh_block(size)

    def _find(self, nbytes: int) -> Block | None:
        """Return an idle block of which at most a quarter would be waste, or None and room for a fresh one."""
        now = self._settle()
        size = fitting = size_class(nbytes)
        while 3 * fitting <= 4 * nbytes:
            stack = self._idle.get(fitting)
            if stack:
                self._idle_bytes -= fitting
                return stack.pop()
            fitting += _step(fitting)
        self._make_room(size, now)
        return None

    def _make_room(self, size: int, now: float) -> None:
        """Drop idle blocks so that a fresh one fits the room, or widen that if dropping this size was a mistake."""
        excess = self._in_use + self._idle_bytes + size - max(self._room, self._peak)
        if size in self._dropped:
            self._room += max(excess, 0)
        elif excess > 0:
            for lost in self._drop(excess):
                self._dropped[lost] = now

    def _settle(self) -> float:
        """Sort in returned blocks, and drop idle ones that are too many or too old; returns the time."""
        now = monotonic()
        self._waiting_bytes = 0
        for _ in range(len(self._back)):  # not those that finalizers add meanwhile, which might never end
            self._sort_in(self._back.popleft())
        if now > self._swept + 1:
            self._sweep(now)
        return now

    def _sort_in(self, block: Block) -> None:
        size = block.nbytes
        stack = self._idle.get(size)
        if stack is None:
            stack = self._idle[size] = []
        stack.append(block)
        self._in_use -= size
        self._idle_bytes += size
        if self._idle_bytes > self.limit:
            self._drop(self._idle_bytes - self.limit)

    def _drop(self, excess: int) -> list[int]:
        """Give at least `excess` idle bytes back to the system, the largest blocks first; returns their sizes."""
        lost = []
        for size in sorted(self._idle, reverse=True):
            stack = self._idle[size]
            while stack and excess > 0:
                del stack[0]
                self._gave_back(size)
                excess -= size
                lost.append(size)
        return lost

    def _drop_all(self) -> None:
        self._settle()
        self._drop(self._idle_bytes)
        self._idle.clear()
        self._dropped.clear()
        self._room = LEAST_ROOM

    def _sweep(self, now: float) -> None:
        """Drop blocks that have been idle for long, and forget sizes that were dropped long ago."""
        self._swept, oldest = now, now - IDLE_SECONDS
        for size, stack in list(self._idle.items()):
            while stack and stack[0].since < oldest:
                del stack[0]
                self._gave_back(size)
            if not stack:
                del self._idle[size]
        self._dropped = {size: when for size, when in self._dropped.items() if when >= oldest}

    def _gave_back(self, size: int) -> None:
        self._idle_bytes -= size
        self._returned += size

    def forget_idle(self) -> None:
        """Drop the blocks that were idle at a fork, whatever another thread of the parent was doing to them."""
        self._busy = False
        while self._back:
            self._in_use -= self._back.popleft().nbytes
        self._waiting_bytes = 0
        self._idle.clear()
        self._idle_bytes = 0


def _forget_idle(pool: Pool | None) -> None:
    if pool is not None:
        pool.forget_idle()


@cache
def _quarter_of_memory() -> int:
    return memory_limit() // 4


POOL = Pool()
