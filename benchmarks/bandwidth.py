"""What the machine's memory gives: a triad a = b + s * c over arrays much larger than its caches.

Counted are the bytes in and out that the formula needs. NumPy takes two passes for it and a plain store first reads
the line it overwrites: ways that move more than they must come out lower, and the best of all ways is the measure.
Beside it stands what comes in where nothing goes out, as in a sum: ways in and out are often apart, so that is less.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from ctypes import CFUNCTYPE, c_int64, c_void_p
from importlib import import_module
from importlib.util import find_spec
from itertools import pairwise
from typing import Any

import numpy as np

from .machine import cores, last_level_cache
from .measure import seconds_of, take_turns
from .workloads import Array

LINE, BLOCK = 64, 32  # bytes of a cache line; elements that one turn of the compiled loop handles
FACTOR = 1.5
READING = "reading alone"

# A turn is four 64-byte vectors; {hint} makes the stores non-temporal.
LOOP = """
define void @loop(i64 %begin, i64 %end, ptr noalias %a, ptr noalias %b, ptr noalias %c) {{
entry:
  br label %loop
loop:
  %i = phi i64 [ %begin, %entry ], [ %next, %loop ]
{phis}
{body}
  %next = add i64 %i, 32
  %more = icmp ult i64 %next, %end
  br i1 %more, label %loop, label %exit
exit:
{after}
  fence seq_cst
  ret void
}}
!0 = !{{i32 1}}
"""
TRIAD = """
  %i{k} = add i64 %i, {offset}
  %a{k} = getelementptr double, ptr %a, i64 %i{k}
  %b{k} = getelementptr double, ptr %b, i64 %i{k}
  %c{k} = getelementptr double, ptr %c, i64 %i{k}
  %u{k} = load <8 x double>, ptr %b{k}, align 64
  %v{k} = load <8 x double>, ptr %c{k}, align 64
  %w{k} = fmul <8 x double> %v{k}, {factor}
  %x{k} = fadd <8 x double> %u{k}, %w{k}
  store <8 x double> %x{k}, ptr %a{k}, align 64{hint}
"""

SUM = """
  %i{k} = add i64 %i, {offset}
  %b{k} = getelementptr double, ptr %b, i64 %i{k}
  %c{k} = getelementptr double, ptr %c, i64 %i{k}
  %u{k} = load <8 x double>, ptr %b{k}, align 64
  %v{k} = load <8 x double>, ptr %c{k}, align 64
  %w{k} = fadd <8 x double> %u{k}, %v{k}
  %x{k} = fadd <8 x double> %sum{k}, %w{k}
"""
SUMS = "  %sum{k} = phi <8 x double> [ zeroinitializer, %entry ], [ %x{k}, %loop ]"
KEEP = """
  %place{k} = add i64 %begin, {offset}
  %keep{k} = getelementptr double, ptr %a, i64 %place{k}
  store <8 x double> %x{k}, ptr %keep{k}, align 64
"""

Call = Callable[[], Any]


def bandwidth(quick: bool = False) -> dict[str, float]:
    """Return gigabytes per second by way of computing the triad, and of reading alone."""
    n = max(4 * last_level_cache(), 64 << 20) // 8 // (1 + quick) // BLOCK * BLOCK
    a, b, c = (aligned(n, value) for value in (0.0, 1.0, 2.0))
    with ThreadPoolExecutor(cores()) as pool:
        ways = {**numpy_ways(a, b, c), **numexpr_ways(a, b, c), **compiled_ways(a, b, c, pool)}
        ways |= reading_ways(a, b, c, pool)
        timed = {way: lambda call=call: seconds_of(call) for way, call in ways.items()}
        found = take_turns(timed, repeats=2 if quick else 10)
    moved = {way: (2 if way.startswith(READING) else 3) * a.nbytes for way in found}
    return {way: moved[way] / times.least / 1e9 for way, times in found.items()}


@contextmanager
def fastest(nbytes: int) -> Iterator[tuple[Call, int]]:
    """Give the way of computing a triad that is fastest where memory is the limit, over so many bytes in all.

    With it come the bytes that one call moves. It is timed beside what is compared with it: machines that others use
    as well give twice as much in one moment as in another.
    """
    n = nbytes // 24 // BLOCK * BLOCK
    a, b, c = (aligned(n, value) for value in (0.0, 1.0, 2.0))
    with ThreadPoolExecutor(cores()) as pool:
        ways = list({**numpy_ways(a, b, c), **compiled_ways(a, b, c, pool)}.values())
        yield ways[-1], 3 * a.nbytes  # all threads, with non-temporal stores


def aligned(n: int, value: float) -> Array:
    """Return n float64 of one value, beginning at a cache line."""
    raw = np.empty(n * 8 + LINE, dtype=np.uint8)
    start = -raw.ctypes.data % LINE
    array = raw[start : start + n * 8].view(np.float64)
    array[:] = value
    return array


def numpy_ways(a: Array, b: Array, c: Array) -> dict[str, Call]:
    """Return NumPy's way: two calls."""

    def call() -> None:
        np.multiply(c, FACTOR, out=a)
        np.add(a, b, out=a)

    return {"numpy out=": call}


def numexpr_ways(a: Array, b: Array, c: Array) -> dict[str, Call]:
    """Return numexpr's way, if it is installed."""
    if not find_spec("numexpr"):
        return {}
    evaluate, names = import_module("numexpr").evaluate, {"b": b, "c": c, "s": FACTOR}
    return {"numexpr out=": lambda: evaluate("b + s*c", names, {}, out=a)}


def compiled_ways(a: Array, b: Array, c: Array, pool: ThreadPoolExecutor) -> dict[str, Call]:
    """Return compiled loops, with and without non-temporal stores, on one thread and on all, if llvmlite is there."""
    if not find_spec("llvmlite"):
        return {}
    ways: dict[str, Call] = {}
    for stores, hint in (("", ""), (", non-temporal", ", !nontemporal !0")):
        ways |= threaded(f"compiled{stores}", compiled(triad(hint)), a, b, c, pool)
    return ways


def reading_ways(a: Array, b: Array, c: Array, pool: ThreadPoolExecutor) -> dict[str, Call]:
    """Return compiled loops that only read, if llvmlite is there."""
    if not find_spec("llvmlite"):
        return {}
    return threaded(READING, compiled(reading()), a, b, c, pool)


def threaded(name: str, loop: Any, a: Array, b: Array, c: Array, pool: ThreadPoolExecutor) -> dict[str, Call]:
    """Return a loop on one thread and on all."""
    return {
        f"{name}, {threads} thread{'s' * (threads > 1)}": shared(loop, a, b, c, threads, pool)
        for threads in sorted({1, cores()})
    }


def shared(loop: Any, a: Array, b: Array, c: Array, threads: int, pool: ThreadPoolExecutor) -> Call:
    """Return a call that lets each of some threads do its part of a loop."""
    pointers = [array.ctypes.data for array in (a, b, c)]
    bounds = [a.size * part // threads // BLOCK * BLOCK for part in range(threads + 1)]
    first, *others = pairwise(bounds)

    def call() -> None:
        waiting = [pool.submit(loop, begin, end, *pointers) for begin, end in others]
        loop(*first, *pointers)
        for one in waiting:
            one.result()

    return call


def triad(hint: str) -> str:
    """Return the loop of a triad, whose stores carry a hint."""
    factor = f"<{', '.join([f'double {FACTOR}'] * 8)}>"
    return LOOP.format(phis="", body=each(TRIAD, factor=factor, hint=hint), after="")


def reading() -> str:
    """Return a loop that reads two arrays and leaves their sums where its part of the first begins."""
    return LOOP.format(phis=each(SUMS + "\n"), body=each(SUM), after=each(KEEP))


def each(text: str, **given: str) -> str:
    """Return a text for each vector of a turn."""
    return "".join(text.format(k=k, offset=8 * k, **given) for k in range(BLOCK // 8))


def compiled(text: str) -> Any:
    """Return a loop as a function of begin, end and three addresses; ctypes runs it without the GIL."""
    import llvmlite.binding as llvm

    llvm.initialize_native_target()
    llvm.initialize_native_asmprinter()
    features = llvm.get_host_cpu_features().flatten()
    target = llvm.Target.from_default_triple()
    machine = target.create_target_machine(cpu=llvm.get_host_cpu_name(), features=features, opt=2, jit=True)
    engine = llvm.create_mcjit_compiler(llvm.parse_assembly(text), machine)
    engine.finalize_object()
    function = CFUNCTYPE(None, c_int64, c_int64, c_void_p, c_void_p, c_void_p)(engine.get_function_address("loop"))
    function.engine = engine  # type: ignore[attr-defined]  # the code lives as long as its engine
    return function
