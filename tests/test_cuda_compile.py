"""Every kernel of the expression set, compiled for four architectures by every release of NVRTC that is installed.

The extra test-cuda brings the oldest and the newest that the others allow. Nothing runs here: no GPU is needed.
Compiled only; what the kernels compute is not tested in this file.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import numpy as np
import pytest
from ptx.build import missing
from releases import releases

import xtensor as xt
import xtensor.nn
from xtensor.base.dtypes import ALL, DType
from xtensor.calls.op import REGISTRY, Op
from xtensor.codegen.cpu.moves import PACKED, SAME, STRIDED
from xtensor.codegen.cpu.vector import LacksError
from xtensor.codegen.cuda import kernel as cuda
from xtensor.codegen.cuda import library
from xtensor.codegen.cuda import nvrtc as cuda_build
from xtensor.codegen.cuda.kernel import COLUMN, MAP, ROW, THREADS, Form, lanes_of
from xtensor.graph.node import pending_below
from xtensor.plan.fusion import plan_of
from xtensor.plan.program import Kernel, Named, Plan, Program, Reduction, Step, loop_of, program
from xtensor.plan.trace import Trace
from xtensor.run import cuda as cuda_run
from xtensor.run import cuda_rows

ARCHITECTURES = ("sm_75", "sm_80", "sm_90", "sm_100")

ELEMENTWISE = {name: op for name, op in REGISTRY.items() if op.kind == "elementwise"}
REDUCTIONS = {name: op for name, op in REGISTRY.items() if op.kind == "reduction" and op.composed is None}

# What generated code lacks, by name: the kinds of dtypes, or their names. The library's functions do it.
LACKING = {
    "pow": ("b", "i", "u"),  # is never recorded: its errors depend on the values
    "reciprocal": ("b", "i", "u"),
    **{name: "biuc" for name, op in ELEMENTWISE.items() if ".nn." in op.stub.__module__},  # formulas of floats
    "nextafter": ("float16",),  # of bool, int8 and uint8
    **dict.fromkeys(
        ("greater", "greater_equal", "less", "less_equal", "maximum", "minimum"), "c"
    ),  # not the standard's
}


class Compiler(NamedTuple):
    """A release of NVRTC, and one of the architectures that it builds for."""

    version: tuple[int, int]
    architecture: str

    def __str__(self) -> str:
        return f"{self.architecture} by {self.version[0]}.{self.version[1]}"


def compilers() -> Iterator[Compiler]:
    """Yield the newest release with every architecture, and each other one with its oldest and its newest.

    What a release refuses it refuses in its one front end, or in a code generator, of which those are two.
    """
    for version, release in releases().items():
        known = [one for one in ARCHITECTURES if int(one.removeprefix("sm_")) in release.getSupportedArchs()]
        chosen = known if version == max(releases()) else (known[0], known[-1])
        yield from (Compiler(version, one) for one in chosen)


none_here = pytest.param(None, marks=pytest.mark.skip(reason=missing()))
by_every_compiler = pytest.mark.parametrize("compiler", list(compilers()) or [none_here], ids=str)


def compiles(texts: list[str], compiler: Compiler, *, contract: bool = False) -> None:
    """Compile kernels as one text: each in a namespace of its own, under a name of its own."""
    assert texts
    parts = []
    for number, text in enumerate(texts):
        own = text.replace(" kernel(const", f" kernel{number}(const").replace(
            "#define WIDE", "#undef WIDE\n#define WIDE"
        )
        parts.append(f"namespace part{number} {{\n{own}\n}}")
    whole = re.sub(r"^(#define (xt_\w+))", r"#undef \2\n\1", "\n".join(parts), flags=re.MULTILINE)
    options = cuda_build.options_of(compiler.architecture, contract)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(cuda_build, "_cuda", lambda part: {"nvrtc": releases()[compiler.version]}[part])
        assert cuda_build.built(whole, options).startswith(b"\x7fELF")


def own_part(texts: list[str], compiler: Compiler) -> list[str]:
    """Return what of many texts, which say nothing of architectures, a compiler takes: every release all of them for
    its oldest architecture, the newest for its newest too; one half of them the newest release for each of those
    between, and the others for their newest, for which the newest release takes the other half.
    """
    between = ARCHITECTURES[1:-1]
    if compiler.version == max(releases()) and compiler.architecture in between:
        return texts[between.index(compiler.architecture) :: len(between)]
    others_newest = compiler.version != max(releases()) and compiler.architecture != ARCHITECTURES[0]
    return texts[:: len(between)] if others_newest else texts


# ---- elementwise


def programs_of(op: Op) -> Iterator[tuple[DType, Program]]:
    """Yield each dtype an elementwise function takes, and the program that is the function alone."""
    count = len(op.parameters)
    for dtype in ALL.values():
        kinds = (np.dtype(bool), dtype, dtype) if op.name == "where" else (dtype,) * count
        try:
            result = op.dtype(*kinds)
        except TypeError:
            continue
        step = Step(op, (), tuple(range(count)), loop_of(op, kinds, result), result)
        yield dtype, program(kinds, (), (), (step,), (count,), ())


def contiguous(made: Program, *, by_vectors: bool = True) -> str:
    return cuda.source(made, Form(MAP, (PACKED,) * len(made.moved), lanes_of(made) if by_vectors else 1, 1))


def lacks(op: Op, made: Program) -> bool:
    kinds = {dtype.kind for step in made.steps for dtype in step.loop} | {d.name for s in made.steps for d in s.loop}
    return any(kind in LACKING.get(op.name, ()) for kind in kinds)


def test_what_generated_code_lacks() -> None:
    """Every elementwise function is there on every dtype it takes, but for those named."""
    for op in ELEMENTWISE.values():
        for dtype, made in programs_of(op):
            if lacks(op, made):
                with pytest.raises(LacksError):
                    contiguous(made)
            else:
                assert "kernel" in contiguous(made), dtype


@by_every_compiler
def test_elementwise(compiler: Compiler) -> None:
    """Every elementwise function on every dtype it takes: by vectors on the oldest, else one by one."""
    by_vectors = compiler.architecture == ARCHITECTURES[0]
    for op in ELEMENTWISE.values():
        made = [contiguous(one, by_vectors=by_vectors) for _, one in programs_of(op) if not lacks(op, one)]
        if chosen := own_part(made, compiler):
            compiles(chosen, compiler)


def casts() -> list[str]:
    """Return a conversion of every dtype to every other."""
    texts = []
    for one in ALL.values():
        for other in ALL.values():
            if one != other and (one.kind != "c" or other.kind in "cb"):
                step = Step(Named("astype"), (), (0,), (one,), other)
                texts.append(contiguous(program((one,), (), (), (step,), (1,), ())))
    return texts


@by_every_compiler
def test_conversions(compiler: Compiler) -> None:
    compiles(casts(), compiler)


# ---- forms


def expressed(expression: Callable[..., Any], *shapes: tuple[int, ...], dtype: str = "float32") -> tuple[Trace, Plan]:
    """Return the plan of an expression of arrays of these shapes."""
    with xt.options(lazy="always"):
        results = expression(*(xt.zeros(shape, dtype=dtype) for shape in shapes))
        nodes = [one.value for one in (results if isinstance(results, tuple) else (results,))]
        trace = Trace(pending_below(nodes), nodes)
        return trace, plan_of(trace)


def loop_of_two_outputs() -> Kernel:
    shape = (64, 64)
    _, plan = expressed(lambda x, y: (e := xt.exp(x) * y, e + 2.5), shape, shape)
    return plan.kernels[0]


@by_every_compiler
@pytest.mark.parametrize("wide", [False, True], ids=["32 bits", "64 bits"])
def test_forms(compiler: Compiler, wide: bool) -> None:
    """Several outputs and scalars, contiguous, broadcast, strided and of several loops, with indices of both widths."""
    made = loop_of_two_outputs().program
    lies = [(PACKED,) * 4, (PACKED, SAME, PACKED, PACKED), (STRIDED, PACKED, PACKED, STRIDED)]
    texts = [
        cuda.source(made, Form(MAP, lie, 1 if STRIDED in lie else 4, loops, 0, wide))
        for lie in lies
        for loops in (1, 2, 5)
    ]
    compiles(texts, compiler)
    compiles(texts, compiler, contract=True)


# ---- reductions


def reductions_of(op: Op, *, parts: bool) -> Iterator[Program]:
    """Yield the programs that reduce each dtype, and if `parts` those that make and join parts of results."""
    for dtype in ALL.values():
        try:
            result = op.dtype(dtype, **({"axis": 0} if op.one_axis else {"axis": (0,)}))
        except TypeError:
            continue
        if dtype.kind == "c" and op.name in ("max", "min", "argmax", "argmin"):  # NumPy's, not the standard's
            continue
        made = program((dtype,), (), (), (), (), (Reduction(op, (), 0, result),))
        yield from cuda_run._in_parts(made) if parts else (made,)


@by_every_compiler
@pytest.mark.parametrize("op", REDUCTIONS.values(), ids=REDUCTIONS.keys())
def test_reductions(compiler: Compiler, op: Op) -> None:
    """Every reduction on every dtype: rows and columns, and on the oldest parts of results and what joins them."""
    whole = list(reductions_of(op, parts=False))
    texts = [cuda.source(made, Form(ROW, (PACKED,), lanes_of(made, 8), 1, 1)) for made in whole]
    texts += [cuda.source(made, Form(COLUMN, (STRIDED,), 1, 1, 1)) for made in whole]
    for made in reductions_of(op, parts=True) if compiler.architecture == ARCHITECTURES[0] else ():
        texts.append(cuda.source(made, Form(ROW, (PACKED,), lanes_of(made, 8), 0, 1, True)))
    compiles(own_part(texts, compiler), compiler)


@by_every_compiler
def test_fused_reductions(compiler: Compiler) -> None:
    """Several reductions behind several steps, with a value that is kept, over one axis and over several."""
    shape = (8, 8, 8)
    _, plan = expressed(lambda x, y: (z := x * y - 0.5, xt.sum(z), xt.max(z), xt.count_nonzero(z)), shape, shape)
    made = plan.kernels[0].program
    assert len(made.reductions) == 3
    forms = [Form(ROW, (PACKED, SAME, PACKED), 4, 1, 2), Form(ROW, (STRIDED, PACKED, STRIDED), 1, 2, 1, True)]
    forms += [Form(COLUMN, (STRIDED,) * 3, 1, 1, 2), Form(COLUMN, (STRIDED,) * 3, 1, 2, 1, True)]
    compiles([cuda.source(made, form) for form in forms], compiler)


# ---- rows


def softmax(x: Any) -> Any:
    e = xt.exp(x - xt.max(x, axis=-1, keepdims=True))
    return e / xt.sum(e, axis=-1, keepdims=True)


def log_softmax(x: Any) -> Any:
    y = x - xt.max(x, axis=-1, keepdims=True)
    return y - xt.log(xt.sum(xt.exp(y), axis=-1, keepdims=True))


def layer_norm(x: Any, scale: Any, shift: Any) -> Any:
    distance = x - xt.mean(x, axis=-1, keepdims=True)
    variance = xt.mean(distance * distance, axis=-1, keepdims=True)
    return distance / xt.sqrt(variance + 1e-5) * scale + shift


ROWS = {"softmax": (softmax, 1), "log_softmax": (log_softmax, 1), "layer_norm": (layer_norm, 3)}


@by_every_compiler
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_row_programs(compiler: Compiler, dtype: str) -> None:
    """Rows in registers, in shared memory and outside it, by vectors and one by one, with indices of both widths."""
    texts = []
    for function, count in ROWS.values():
        trace, plan = expressed(function, *((1024, 32), (32,), (32,))[:count], dtype=dtype)
        shape = (1024, 32)
        rows, _, _ = cuda_rows._formed(plan, shape, trace.values, lambda number: 0, 0)
        for form in (
            (4, False, True),
            (1, False, True),
            (4, True, False),
            (4, False, False, 2, 3),
            (1, True, False, 8, 8),
            (4, False, False, 2, 3, (0,)),
            (1, True, True, 0, 0, (0,)),
        ):
            texts.append(cuda_rows.source(rows, cuda_rows.RowForm(*form)))
    compiles(texts, compiler)


# ---- kernels written by hand

WINDOW = {"K0": 1, "K1": 2, "K2": 3}
TILES = {"DEPTH": 64, "OUT": 64, "LOOPS": 2}
MOVES = {"ARRAYS": 2, "LOOPS": 4, "ALONG": 1}
KINDS = {name: library.memory_type(dtype) for name, dtype in ALL.items()}
SECTIONS: dict[str, list[dict[str, Any]]] = {
    "gather": [{"T": kind, **MOVES, "EACH": each} for kind in library.MOVED.values() for each in (0, 1)],
    "check": [{"ARRAYS": 2, "LAST": repeats, "FLAT": 1 - repeats} for repeats in (0, 1)],
    "classes": [{"T": kind, "IGNORED": one} for kind in ("i8", "u8", "i32", "i64", "u64") for one in (0, 1)],
    "add": [{"T": kind, "ARRAYS": 2, "LOOPS": 2, "JOINS": joins} for kind in {*KINDS.values()} for joins in (0, 1)],
    "scatter": [{"T": kind, **MOVES, "REPEATS": 1} for kind in library.MOVED.values()],
    "mark": [{}],
    "number": [{"T": "float", "K": "u32", "FLOATS": 1, "SIGNED": 0}, {"T": "i8", "K": "u32", "FLOATS": 0, "SIGNED": 1}],
    "select": [{"T": kind, "VALUES": values} for kind in library.MOVED.values() for values in (0, 1)],
    "turn": [{"T": kind, "LOOPS": 2} for kind in library.MOVED.values()],
    "sort": [
        {"T": kind, "K": "u64" if "64" in kind or kind == "double" else "u32", "ORDER": order}
        | {"FLOATS": int(kind in ("float", "double")), "SIGNED": int(kind[0] == "i")}
        for name, kind in KINDS.items()
        if "complex" not in name
        for order in (0, 1)
    ],
    "columns": [{"T": kind, "LAST": last, **WINDOW} for kind in library.MOVED.values() for last in (0, 1)],
    "direct": [{"T": kind, "LAST": 1, "BIAS": 1, **WINDOW} for kind in ("float", "double", "i8", "u64")],
    "weights": [{"T": kind, **WINDOW} for kind in ("float", "double", "i8", "u64")],
    "attention": [{**TILES, "VECTOR": one, "MASK": mask, "CAUSAL": one} for one in (1, 0) for mask in range(3)],
    "attention back": [
        {**TILES, "VECTOR": one, "MASK": 1 + one, "CAUSAL": one, "BY_KEY": by_key}
        for by_key in (1, 0)
        for one in (1, 0)
    ],
    "pool": [
        {"T": kind, "S": "i64" if wanted == 2 else kind, "LAST": 0, "WANTED": wanted, "SUM": 0, "PLACE": 2, **WINDOW}
        | {"xt_least": "0"}
        for kind in ("float", "double", "i16")
        for wanted in range(3)
    ],
    "spread": [
        {"T": kind, "S": "i32", "LAST": 1, "PLACED": placed, **WINDOW}
        for kind in ("float", "double")
        for placed in (0, 1)
    ],
}


def scans() -> list[str]:
    """Return running sums and products of every dtype, converted to each that they may have."""
    texts = []
    for one in ALL.values():
        for other in (one, np.dtype(np.int64), np.dtype(np.complex128)):
            if other.kind != "b" and (one.kind in "biu" or other.kind != "i"):
                kind = library.register_type(other)
                words = {"T": library.memory_type(one), "S": kind, "A": kind}
                words["xt_start"] = f"{kind}{{ 0, 0 }}" if other.kind == "c" else "0"
                before = [library.conversion("xt_converted", one, other), library.joining("xt_join", "multiply", other)]
                texts += [library.text_of(name, words, False, before) for name in ("scan rows", "scan columns")]
    return texts


def test_every_section_is_compiled() -> None:
    assert set(library.names()) == {*SECTIONS, "scan rows", "scan columns"}


@by_every_compiler
def test_library(compiler: Compiler) -> None:
    """Every section: on the oldest for every type that it is taken for, else for one, with indices of both widths."""
    if compiler.architecture == ARCHITECTURES[0]:
        compiles([library.text_of(name, one, False) for name, every in SECTIONS.items() for one in every], compiler)
        compiles(scans(), compiler)
    else:
        texts = [library.text_of(name, every[0], wide) for name, every in SECTIONS.items() for wide in (False, True)]
        compiles(texts + scans()[:4], compiler)


# What a processor of compute capability 9.0 has for the blocks that share it.
PROCESSOR_REGISTERS, PROCESSOR_SHARED, MOST_WARPS, MOST_BLOCKS = 65536, 228 << 10, 64, 32

# For the words of SECTIONS[...][0]: the threads of a block, the bytes of shared memory that its launch asks for (of a
# sort, rows of 8192 elements and their places), and how many warps share a processor at least.
WARPS = {
    "turn": (256, 0, 64),
    "gather": (256, 0, 64),
    "scan rows": (256, 0, 64),
    "select": (256, 0, 32),
    "sort": (1024, 8 * 8192, 64),
    "columns": (256, 0, 64),
    "direct": (256, 0, 64),
    "weights": (256, 0, 48),
    "attention": (128, 4 * 64 * 3 * 68, 12),
    "attention back": (128, 4 * 64 * 5 * 68, 8),
}


@pytest.mark.parametrize("name", WARPS)
@pytest.mark.skipif(bool(missing()), reason=missing())
def test_occupancy(name: str) -> None:
    """Nothing is spilled, and there is room for as many threads as hide the memory's delays."""
    words = SECTIONS[name][0] if name in SECTIONS else None
    float32 = np.dtype(np.float32)
    before = [library.conversion("xt_converted", float32, float32), library.joining("xt_join", "add", float32)]
    scan = {"T": "float", "S": "float", "A": "float", "xt_start": "0"}
    threads, shared, least = WARPS[name]
    assert warps(library.text_of(name, words or scan, False, () if words else before), threads, shared) >= least


# The same of row programs of float32 with rows of 1000 cells and of 8192 in registers, 8 or 32 cells a thread.
ROW_WARPS = {"softmax": (64, 32), "layer_norm": (48, 16), "var": (64, 40)}


@pytest.mark.parametrize("name", ROW_WARPS)
@pytest.mark.skipif(bool(missing()), reason=missing())
def test_occupancy_of_row_programs(name: str) -> None:
    """The rows themselves are among the registers, and nothing is spilled."""
    function, count = {**ROWS, "var": (lambda x: xt.var(x, axis=-1, keepdims=True), 1)}[name]
    for cells, least in zip((1000, 8192), ROW_WARPS[name], strict=True):
        trace, plan = expressed(function, *((1024, cells), (cells,), (cells,))[:count])
        rows, form, _ = cuda_rows._formed(plan, (1024, cells), trace.values, lambda number: 0, 0)
        assert form.held
        assert warps(cuda_rows.source(rows, form), THREADS, 0) >= least


def warps(text: str, threads: int, shared: int) -> int:
    """Return how many warps of a kernel, which spills no registers, share a processor. threads, shared: of a block."""
    release = releases()[max(releases())]
    program = release.createProgram(text, "kernel.cu", (), ())
    release.compileProgram(program, (*cuda_build.options_of("sm_90", True), "--ptxas-options=-v"))
    log = release.getProgramLog(program)
    release.destroyProgram(program)
    assert "0 bytes stack frame, 0 bytes spill stores, 0 bytes spill loads" in log
    registers = -(-int(re.search(r"Used (\d+) registers", log)[1]) // 8) * 8  # as they are given to a warp
    declared = re.search(r"(\d+) bytes smem", log)
    shared += 1024 + (int(declared[1]) if declared else 0)  # of which the system has the first 1024
    blocks = min(PROCESSOR_REGISTERS // (registers * threads), PROCESSOR_SHARED // shared, MOST_BLOCKS)
    return min(blocks * threads // 32, MOST_WARPS)
