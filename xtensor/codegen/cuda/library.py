"""Hand-written kernels: sections of library.cuh and attention.cuh, completed by types and constants, and launched.

They do what CuPy's functions are slow at. If one cannot be built, its caller uses CuPy's function.
"""

from __future__ import annotations

import re
import struct
import warnings
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any

from ...base.dtypes import DType
from ...base.options import settings
from ...devices import device_of
from . import nvrtc
from .kernel import THREADS
from .math import Value, Writer, cast, helpers, loaded, memory_type, primitive, register_type

Array = Any  # a cupy.ndarray

# The bound of 32-bit indices.
REACH = 1 << 31

# The types for moving elements of so many bytes.
MOVED = {1: "u8", 2: "u16", 4: "u32", 8: "u64", 16: "uint4"}

# The kernels that could not be built, by the number of the device and their names.
_without: set[tuple[int, str]] = set()


class Length(int):
    """A length that kernels divide by."""


def launch(
    name: str,
    like: Array,
    constants: Mapping[str, Any],
    arguments: Sequence[Any],
    blocks: int,
    *,
    threads: int = THREADS,
    shared: int = 0,
    reach: int = 0,
    contract: bool = False,
    before: Sequence[str] = (),
) -> bool:
    """Start a kernel on the current stream of an array's device; return False, with nothing done, if there is none.

    constants: the names that its section uses, types and whole numbers. arguments: its struct's members in their order:
    arrays, integers and Lengths. reach: the largest index or distance in it. before: lines of text that the section
    uses.
    """
    backend: Any = device_of(like).backend
    if not blocks:
        return True
    if settings().engine in ("direct", "interpret") or (backend.number, name) in _without or blocks >= REACH:
        return False
    wide = max(reach, 2 * blocks * threads) >= REACH
    key = (name, tuple(constants.items()), wide, *before)
    try:
        function = nvrtc.function_of(key, lambda: text_of(name, constants, wide, before), backend, contract)
    except nvrtc.BuildError as error:
        _without.add((backend.number, name))
        text = f"xtensor: no {error}; the library's functions do the work"
        warnings.warn(text, RuntimeWarning, stacklevel=2)
        return False
    nvrtc.launch(function, (blocks, 1), threads, shared, (packed(arguments, wide),), int(backend.current_stream().ptr))
    return True


def blocks_of(count: int) -> int:
    """Return the blocks of a kernel with one thread for each of so many elements."""
    return -(-count // THREADS)


def names() -> list[str]:
    """Return the names of all kernels."""
    return [name for name, body in _sections().items() if "kernel(" in body]


def forget() -> None:
    """Forget which kernels could not be built, so that it is tried again."""
    _without.clear()


def most_shared(like: Array) -> int:
    """Return how many bytes of shared memory a block may have on an array's device."""
    backend: Any = device_of(like).backend
    return nvrtc.most_shared(backend.number)


# ---- text


@cache
def _sections() -> dict[str, str]:
    """Return the sections of library.cuh and attention.cuh by name."""
    files = [Path(__file__).with_name(f"{name}.cuh") for name in ("library", "attention")]
    text = "".join([file.read_text(encoding="utf-8") for file in files])
    parts = re.split(r"^// ---- (.*)\n", text, flags=re.MULTILINE)
    return dict(zip(parts[1::2], parts[2::2], strict=True))


def text_of(name: str, constants: Mapping[str, Any], wide: bool, before: Sequence[str] = ()) -> str:
    """Return the CUDA C++ of a kernel."""
    sections = _sections()
    body = sections[name]
    shared = [sections["prelude"]]
    shared += [sections["windows"]] if "Axis axes" in body else []
    shared += [sections["keys"]] if "SIGNED" in constants else []
    shared += [sections["tiles"]] if "Scores scores" in body else []
    given = [_given(*one) for one in constants.items()]
    return "\n".join([f"#define WIDE {int(wide)}", *helpers([*given, *before, body]), *given, *before, *shared, body])


def _given(name: str, value: Any) -> str:
    """Return the line that defines a name of a section as a whole number, a type, or an expression."""
    if isinstance(value, int):
        return f"const int {name} = {value};"
    return f"typedef {value} {name};" if value in _types() else f"#define {name} {value}"


@cache
def _types() -> frozenset[str]:
    complex_types = (f"xt_complex<{part}>" for part in ("float", "double"))
    own = (f"{sign}{bits}" for sign in "iu" for bits in (8, 16, 32, 64))
    return frozenset((*own, *complex_types, "float", "double", "bool", "uint4"))


def conversion(name: str, source: DType, target: DType) -> str:
    """Return a function that converts an element in memory to a value of another dtype; raises LacksError."""
    writer = Writer()
    value = cast(writer.let(loaded("x", source), source), target)
    head = f"__device__ {register_type(target)} {name}({memory_type(source)} x)"
    return f"{head} {{ {' '.join([*writer.lines, f'return {value.name};'])} }}"


def joining(name: str, combine: str, dtype: DType) -> str:
    """Return a struct whose function `of` combines two values of a dtype; raises LacksError."""
    kind, writer = register_type(dtype), Writer()
    found = primitive(combine, *(Value(writer, one, dtype) for one in "ab"))
    body = " ".join([*writer.lines, f"return {found.name};"])
    return f"struct {name} {{ static __device__ {kind} of({kind} a, {kind} b) {{ {body} }} }};"


def packed(arguments: Sequence[Any], wide: bool) -> bytes:
    """Return the bytes of a struct of 8-byte members: addresses of arrays, numbers, and lengths to divide by."""
    return b"".join([_packed(one, wide) for one in arguments])


def _packed(one: Any, wide: bool) -> bytes:
    if isinstance(one, Length):
        return struct.pack("=Q", one) if wide else struct.pack("=3I4x", *divisor(one))
    return struct.pack("=q", one) if isinstance(one, int) else struct.pack("=Q", one.data.ptr)


def divisor(n: int) -> tuple[int, int, int]:
    """Return the numbers for a division by n: n, a factor of 32 bits, a shift."""
    shift = (n - 1).bit_length()
    return n, ((1 << 32) * ((1 << shift) - n)) // n + 1, shift
