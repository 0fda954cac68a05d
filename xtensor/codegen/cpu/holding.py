"""The limit of NumPy's BLAS to one thread, while our threads share its products or tiles.

The driver sets and withdraws it for its run, in machine code: an interrupt between two of Python's lines would leave it
in force. For tiles, and where there is no compiler, a `with` block does.
"""

from __future__ import annotations

import ctypes
import os
from functools import cache

from ...base.locks import fork_safe_lock
from ...devices import blas
from .compile import Code, handmade, host
from .mailbox import load, pause_source

# The words of the limit: whether a thread is changing it, how many runs and blocks ask for it, the number of threads
# before the first of them, or 0, and the addresses of the BLAS's functions that tell and change that number.
BUSY, ASKING, BEFORE, GET, SET = range(5)


class OneThread:
    """Limits products to one thread in a `with` block; for the whole process, as the library allows no less."""

    def __init__(self) -> None:
        self.words = (ctypes.c_int64 * 5)()
        self._changing = fork_safe_lock()
        if hasattr(os, "register_at_fork"):
            os.register_at_fork(after_in_child=self._start_over)

    @property
    def address(self) -> int:
        """The address of the words, for `hold` and `release`."""
        controls = blas.controls()
        assert controls is not None
        if not self.words[SET]:
            self.words[GET], self.words[SET] = [ctypes.cast(one, ctypes.c_void_p).value or 0 for one in controls]
        return ctypes.addressof(self.words)

    def __enter__(self) -> None:
        self._change(1)

    def __exit__(self, *_: object) -> None:
        self._change(0)

    def _change(self, holds: int) -> None:
        controls = blas.controls()
        if controls is None:
            return
        code = _code()
        if code is not None:
            code.call(self.address.to_bytes(8, "little") + holds.to_bytes(8, "little"))
            return
        words = self.words
        with self._changing:
            if holds and not words[ASKING]:
                words[BEFORE] = controls.get()
                controls.set(1)
            words[ASKING] = max(words[ASKING] + (1 if holds else -1), 0)
            if not words[ASKING]:
                self._end()

    def _end(self) -> None:
        controls, before = blas.controls(), self.words[BEFORE]
        if controls is not None and before:
            controls.set(before)
            self.words[BEFORE] = 0

    def _start_over(self) -> None:
        """Withdraw the limit in a child, which lacks the threads that asked for it."""
        self._end()
        self.words[BUSY] = self.words[ASKING] = 0


one_thread = OneThread()


@cache
def _code() -> Code | None:
    """Return the machine code that sets or withdraws the limit, given its words and which of both; None without one."""
    if host() is None:
        return None
    both = load("words", "%given", 0, "ptr") + load("holds", "%given", 1)
    text = f"""{pause_source()}{holding_source()}define void @kernel(ptr %given) {{
entry:
{both}  %is.held = icmp ne i64 %holds, 0
  br i1 %is.held, label %hold, label %release
hold:
  call void @hold(ptr %words)
  ret void
release:
  call void @release(ptr %words)
  ret void
}}
"""
    try:
        return handmade(text)
    except RuntimeError:
        return None


def holding_source() -> str:
    """Return the functions that set and withdraw the limit, given its words. A child of a fork has none to withdraw."""
    return f"""
define private void @hold(ptr %words) {{
{_locked()}\
  %is.first = icmp eq i64 %asking, 0
  br i1 %is.first, label %first, label %counted
first:
{load("get", "%words", GET, "ptr")}{load("set", "%words", SET, "ptr")}\
  %number = call i32 %get()
  %before = sext i32 %number to i64
  %before.to = getelementptr i64, ptr %words, i64 {BEFORE}
  store i64 %before, ptr %before.to, align 8
  call void %set(i32 1)
  br label %counted
counted:
  %more = add i64 %asking, 1
  store i64 %more, ptr %asking.at, align 8
{_unlocked()}}}
define private void @release(ptr %words) {{
{_locked()}\
  %asked = icmp ne i64 %asking, 0
  br i1 %asked, label %counted, label %done
counted:
  %less = sub i64 %asking, 1
  store i64 %less, ptr %asking.at, align 8
  %is.last = icmp eq i64 %less, 0
  br i1 %is.last, label %last, label %done
last:
{load("before", "%words", BEFORE)}{load("set", "%words", SET, "ptr")}\
  %number = trunc i64 %before to i32
  call void %set(i32 %number)
  store i64 0, ptr %before.at, align 8
  br label %done
done:
{_unlocked()}}}
"""


def _locked() -> str:
    """Return the lines that wait until no other thread changes the limit, and read how many ask for it."""
    return f"""entry:
  br label %try
try:
  %pair = cmpxchg ptr %words, i64 0, i64 1 acq_rel acquire
  %got = extractvalue {{i64, i1}} %pair, 1
  br i1 %got, label %locked, label %wait
wait:
  call void @pause()
  br label %try
locked:
{load("asking", "%words", ASKING)}"""


def _unlocked() -> str:
    return "  store atomic i64 0, ptr %words release, align 8\n  ret void\n"
