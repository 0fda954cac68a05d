"""Mailboxes: machine code by which a caller shares the calls of a kernel with workers that watch for them.

Waking a thread through Python costs more than many a kernel takes. So a worker that has taken part stays in machine
code for a moment and watches its mailbox, one word of memory; a call that is posted there is answered at once.

A mailbox is of 8-byte words. STATE goes from AWAY (the worker is in Python) to WATCHING to POSTED (by the caller) to
TAKEN to WATCHING again, each step an atomic exchange, and from WATCHING to AWAY after LIMIT looks without a call. For a
worker that is away, and was woken, a call is LEFT; it is TAKEN when the worker comes. A caller that has done its own
share takes back calls that are still POSTED or LEFT and does them too, so it only waits for work that is under way. The
call: its function, its first argument, the number of such arguments and the bytes from one to the next. MISSED counts
the posts that were taken back. REST is the address of a function that lets other threads run: a watching worker calls
it every few looks, for threads that need the processor. As long as its caller's run is under way, HELD is the address
of a function that sleeps for some microseconds, else 0: a worker does not leave, but naps between looks, longer and
longer, and says so in NAPPING. Posts that are taken back from a worker that naps do not count as missed.
"""

from __future__ import annotations

import ctypes
import os

from ...base.threads import CALL, HELD, LIMIT, MISSED, NAPPING, REST, Machinery, provide
from .compile import handmade, host

AWAY, WATCHING, POSTED, TAKEN, LEFT = range(5)

# Looks, which take some microseconds together, after which other threads may have the processor.
LOOKS = 256

# The most microseconds of a nap: each is one microsecond longer than the one before. Linux adds 50 and more.
LONGEST_NAP = 1000


def load(name: str, base: str, word: int | str, kind: str = "i64") -> str:
    """Return the lines that load a word of memory."""
    at = f"%{name}.at"
    return f"  {at} = getelementptr i64, ptr {base}, i64 {word}\n  %{name} = load {kind}, ptr {at}, align 8\n"


def _store(name: str, base: str, word: int, value: str) -> str:
    """Return the lines that store a word of memory."""
    at = f"%{name}.to"
    return f"  {at} = getelementptr i64, ptr {base}, i64 {word}\n  store {value}, ptr {at}, align 8\n"


# Calls a function once for each of so many arguments, which lie one after the other in memory.
CALLS = """
define private void @calls(ptr %function, ptr %first, i64 %count, i64 %size) {
entry:
  br label %call
call:
  %n = phi i64 [0, %entry], [%n.next, %call]
  %offset = mul i64 %n, %size
  %argument = getelementptr i8, ptr %first, i64 %offset
  call void %function(ptr %argument)
  %n.next = add i64 %n, 1
  %more = icmp ult i64 %n.next, %count
  br i1 %more, label %call, label %done
done:
  ret void
}
"""


def _exchange(name: str, old: int, new: int, then: str, otherwise: str) -> str:
    """Return the lines that change a mailbox from one state to another, and branch by whether it was in the first."""
    return (
        f"  %{name}.pair = cmpxchg ptr %box, i64 {old}, i64 {new} acq_rel acquire\n"
        f"  %{name} = extractvalue {{i64, i1}} %{name}.pair, 1\n"
        f"  br i1 %{name}, label %{then}, label %{otherwise}\n"
    )


def _rest(function: str, after: str) -> str:
    """Return the lines that let other threads run, if there is a function for that, and branch to a label."""
    return (
        f"  %none = icmp eq ptr {function}, null\n  br i1 %none, label %{after}, label %rests\n"
        f"rests:\n  %result = call i32 {function}()\n  br label %{after}\n"
    )


def _nap() -> str:
    """Return the lines by which a worker that has reached LIMIT leaves, or naps and looks again."""
    return f"""weary:
  %held = load atomic i64, ptr %held.at monotonic, align 8
  %is.held = icmp ne i64 %held, 0
  %is.free = icmp ne i64 %limit, 0
  %stays = and i1 %is.held, %is.free
  br i1 %stays, label %napping, label %leave
napping:
  store atomic i64 1, ptr %napping.at monotonic, align 8
  %over = sub i64 %looks.next, %limit
  %most = call i64 @llvm.umin.i64(i64 %over, i64 {LONGEST_NAP})
  %micro = trunc i64 %most to i32
  %nap = inttoptr i64 %held to ptr
  %slept = call i32 %nap(i32 %micro)
  store atomic i64 0, ptr %napping.at monotonic, align 8
  br label %look
"""


def watch_source() -> str:
    """Return the code of a worker, which is given its mailbox: it does calls that are left or posted, and leaves after
    LIMIT looks, or naps if more may be posted.
    """
    return f"""{pause_source()}{CALLS}
declare i64 @llvm.umin.i64(i64, i64)
define void @kernel(ptr %box) {{
entry:
  %limit.at = getelementptr i64, ptr %box, i64 {LIMIT}
  %held.at = getelementptr i64, ptr %box, i64 {HELD}
  %napping.at = getelementptr i64, ptr %box, i64 {NAPPING}
{load("rest", "%box", REST, "ptr")}\
  br label %come
come:
{_exchange("came", AWAY, WATCHING, "look", "find")}\
find:
{_exchange("found", LEFT, TAKEN, "work", "come")}\
look:
  %looks = phi i64 [0, %come], [%looks.next, %rested], [%looks.next, %leave], [%looks.next, %napping], [%looks, %take],
    [0, %work]
  %state = load atomic i64, ptr %box monotonic, align 8
  %posted = icmp eq i64 %state, {POSTED}
  br i1 %posted, label %take, label %idle
idle:
  call void @pause()
  %looks.next = add i64 %looks, 1
  %limit = load atomic i64, ptr %limit.at monotonic, align 8
  %tired = icmp uge i64 %looks.next, %limit
  br i1 %tired, label %weary, label %lasting
lasting:
  %some = and i64 %looks.next, {LOOKS - 1}
  %is.some = icmp eq i64 %some, 0
  br i1 %is.some, label %resting, label %rested
resting:
{_rest("%rest", "rested")}\
rested:
  br label %look
{_nap()}\
leave:
{_exchange("left", WATCHING, AWAY, "done", "look")}\
take:
{_exchange("taken", POSTED, TAKEN, "work", "look")}\
work:
{load("function", "%box", CALL, "ptr")}{load("first", "%box", CALL + 1, "ptr")}\
{load("count", "%box", CALL + 2)}{load("size", "%box", CALL + 3)}\
  call void @calls(ptr %function, ptr %first, i64 %count, i64 %size)
  store atomic i64 {WATCHING}, ptr %box release, align 8
  br label %look
done:
  ret void
}}
"""


def _share() -> str:
    """Return the lines that load share %s from a caller's table."""
    return (
        "  %at = mul i64 %s, 4\n  %row = getelementptr i64, ptr %table, i64 %at\n"
        + load("box", "%row", 3, "ptr")
        + load("offset", "%row", 4)
        + load("count", "%row", 5)
        + load("size", "%row", 6)
        + "  %first = getelementptr i8, ptr %table, i64 %offset\n"
    )


def post_source() -> str:
    """Return the function that posts a share, or leaves it for a worker that is away."""
    return f"""define private void @post(ptr %table, ptr %function, i64 %s) {{
entry:
{_share()}\
{_store("function", "%box", CALL, "ptr %function")}{_store("first", "%box", CALL + 1, "ptr %first")}\
{_store("count", "%box", CALL + 2, "i64 %count")}{_store("size", "%box", CALL + 3, "i64 %size")}\
  br label %try
try:
{_exchange("watched", WATCHING, POSTED, "done", "leave")}\
leave:
{_exchange("left", AWAY, LEFT, "done", "try")}\
done:
  ret void
}}
"""


def finish_source() -> str:
    """Return the function that makes sure that a share is done: it takes it back and does it, or waits."""
    return f"""define private void @finish(ptr %table, ptr %function, ptr %yield, i64 %s) {{
entry:
{_share()}\
{_exchange("back", POSTED, WATCHING, "miss", "left")}\
miss:
{load("missed", "%box", MISSED)}{load("naps", "%box", NAPPING)}\
  %watched = sub i64 1, %naps
  %missed.next = add i64 %missed, %watched
  store i64 %missed.next, ptr %missed.at, align 8
  br label %own
left:
{_exchange("mine", LEFT, AWAY, "own", "wait")}\
own:
  call void @calls(ptr %function, ptr %first, i64 %count, i64 %size)
  ret void
wait:
  %looks = phi i64 [0, %left], [%looks.next, %again], [0, %yielding]
  %state = load atomic i64, ptr %box acquire, align 8
  %busy = icmp eq i64 %state, {TAKEN}
  br i1 %busy, label %again, label %done
again:
  call void @pause()
  %looks.next = add i64 %looks, 1
  %few = icmp ult i64 %looks.next, {LOOKS}
  br i1 %few, label %wait, label %long
long:
{_rest("%yield", "yielding")}\
yielding:
  br label %wait
done:
  ret void
}}
"""


# A short pause in a thread that looks again and again, on x86 and on ARM.
_PAUSES = {
    True: """declare void @llvm.x86.sse2.pause()
define private void @pause() alwaysinline {
  call void @llvm.x86.sse2.pause()
  ret void
}
""",
    False: """declare void @llvm.aarch64.hint(i32)
define private void @pause() alwaysinline {
  call void @llvm.aarch64.hint(i32 1)
  ret void
}
""",
}


def pause_source() -> str:
    """Return the function that pauses for a moment, for this machine."""
    machine = host()
    return _PAUSES[machine is not None and machine.triple.startswith("x86_64")]


def _machinery() -> Machinery:
    """Return the machine code; raises RuntimeError if it cannot be compiled."""
    rest = _address_of("sched_yield", on_windows="SwitchToThread")
    return Machinery(handmade(watch_source()), rest, _address_of("usleep"))  # Windows sleeps for milliseconds


provide(_machinery)


def _address_of(name: str, on_windows: str = "") -> int:
    """Return the address of a C function, which may have another name on Windows, 0 if it is not found."""
    if os.name == "nt" and not on_windows:
        return 0
    try:
        library = ctypes.CDLL("kernel32" if os.name == "nt" else None)
        function = getattr(library, on_windows if os.name == "nt" else name)
        return ctypes.cast(function, ctypes.c_void_p).value or 0
    except (OSError, AttributeError):
        return 0
