"""How far xtensor's vector mathematics is from the truth, and how fast it is: compiled here, held against mpmath.

The results stand in docs/accuracy.md. The tests take their points, references and compiled functions from here.
"""

from __future__ import annotations

import ctypes
import itertools
import math
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from functools import cache, partial
from multiprocessing import get_context
from pathlib import Path
from time import perf_counter
from typing import Any, NamedTuple

import numpy as np

from xtensor.codegen.cpu.math import FUNCTIONS
from xtensor.codegen.cpu.vector import SCALARS, Vector, Writer

Array = np.ndarray[Any, Any]

PAGE = Path(__file__).resolve().parent.parent / "docs" / "accuracy.md"
EVERY = 100_000  # points, with which functions of one float32 are asked for every one, too
BINARY = ("atan2", "pow", "hypot", "logaddexp")
DTYPES = ("float32", "float64")
COMPLEX_DTYPES = ("complex64", "complex128")

NUMPY = {f"a{name}": f"arc{name}" for name in ("sin", "cos", "tan", "sinh", "cosh", "tanh")} | {
    "atan2": "arctan2",
    "pow": "power",
}


# Compiling


_libraries = itertools.count()


class Compiled:
    """A function of vecmath over arrays: called with arrays, as NumPy's would be."""

    def __init__(self, name: str, dtype: Any, lanes: int = 0, opt: int = 2, flags: str = "") -> None:
        import llvmlite.binding as llvm

        self.dtype = np.dtype(dtype)
        self.lanes = lanes or 64 // self.dtype.itemsize
        self.text = module_text(name, self.dtype, self.lanes, flags)
        self.engine = llvm.create_lljit_compiler(target_machine(opt))
        builder = llvm.JITLibraryBuilder().add_ir(self.text).export_symbol("kernel")
        self.library = builder.link(self.engine, f"accuracy{next(_libraries)}")
        pointers = [ctypes.c_void_p] * (arity(name) + 1)
        self.kernel = ctypes.CFUNCTYPE(None, ctypes.c_int64, *pointers)(self.library["kernel"])

    def __call__(self, *arguments: Array) -> Array:
        size = arguments[0].size
        padding = -size % self.lanes
        given = [np.concatenate([x.astype(self.dtype), np.ones(padding, self.dtype)]) for x in arguments]
        result = np.empty(size + padding, self.dtype)
        self.run(*given, result)
        return result[:size]

    def run(self, *arrays: Array) -> None:
        """Compute arguments and result as they are: whole vectors of the dtype."""
        self.bound(*arrays)()

    def bound(self, *arrays: Array) -> Callable[[], None]:
        """Return a call of the kernel on arrays that have to live as long as it."""
        return partial(self.kernel, arrays[-1].size, *(x.ctypes.data for x in arrays))


compiled = cache(Compiled)


def arity(name: str) -> int:
    """Return how many arguments a function takes."""
    return 2 if name in BINARY else 1


def target_machine(opt: int) -> Any:
    """Return LLVM's code generator for this processor."""
    import llvmlite.binding as llvm

    llvm.initialize_native_target()
    llvm.initialize_native_asmprinter()
    target = llvm.Target.from_triple(llvm.get_default_triple())
    features = llvm.get_host_cpu_features().flatten()
    return target.create_target_machine(cpu=llvm.get_host_cpu_name(), features=features, opt=opt, reloc="pic")


def module_text(name: str, dtype: np.dtype[Any], lanes: int, flags: str = "") -> str:
    """Return a module with one loop over whole vectors."""
    writer = Writer(lanes, "loop")
    writer.flags = flags
    count, scalar = arity(name), SCALARS[dtype]
    vector = f"<{lanes} x {scalar}>"
    result = FUNCTIONS[name](*(Vector(writer, f"%x{k}", dtype) for k in range(count)))
    loads = []
    for k in range(count):
        loads.append(f"%from{k} = getelementptr {scalar}, ptr %in{k}, i64 %i")
        loads.append(f"%x{k} = load {vector}, ptr %from{k}, align {dtype.itemsize}")
    return "\n".join(
        [
            *sorted(writer.declarations),
            *writer.globals.values(),
            f"define void @kernel(i64 %n, {', '.join(f'ptr %in{k}' for k in range(count))}, ptr %out) {{",
            "entry:",
            "br label %loop",
            "loop:",
            f"%i = phi i64 [ 0, %entry ], [ %next, %{writer.block} ]",
            *loads,
            *writer.lines,
            f"%to = getelementptr {scalar}, ptr %out, i64 %i",
            f"store {vector} {result.name}, ptr %to, align {dtype.itemsize}",
            f"%next = add i64 %i, {lanes}",
            "%more = icmp ult i64 %next, %n",
            "br i1 %more, label %loop, label %end",
            "end:",
            "ret void",
            "}",
        ]
    )


# The truth


def true_value(name: str, *arguments: float) -> Any:
    """Return the value in mpmath, to 140 bits and more where parts cancel."""
    from mpmath import mp

    with mp.workprec(140):
        numbers = [mp.mpf(x) for x in arguments]
        return mp.mpf(truth(name)(*numbers))


@cache
def truth(name: str) -> Callable[..., Any]:
    """Return mpmath's function of a name of vecmath."""
    from mpmath import mp

    others = {
        "log2": lambda x: mp.log(x, 2),
        "log10": lambda x: mp.log(x, 10),
        "exp2": lambda x: mp.power(2, x),
        "pow": mp.power,
        "logaddexp": logaddexp,
        "acosh": lambda x: mp.log1p(x - 1 + mp.sqrt(mp.fmul(x - 1, x + 1, exact=True))),
    }
    found: Callable[..., Any] = others.get(name) or getattr(mp, name)
    return found


def logaddexp(x: Any, y: Any) -> Any:
    """log(e^x + e^y) in mpmath."""
    from mpmath import mp

    with mp.workprec(400):
        return mp.fadd(max(x, y), mp.log1p(mp.exp(-abs(mp.fsub(x, y, exact=True)))))


def ulps(dtype: np.dtype[Any], found: float, true: Any) -> float:
    """Return the error in units of the true value's last place; an overflow is right where rounding overflows."""
    from mpmath import mp

    info = np.finfo(dtype)
    if math.isinf(found):
        bound = mp.mpf(float(info.max)) * (1 + mp.mpf(2) ** -(info.nmant + 2))
        return 0.0 if abs(true) >= bound and (true > 0) == (found > 0) else math.inf
    exponent = max(int(mp.frexp(true)[1]) - 1, info.minexp) if true else info.minexp
    return float(abs(mp.mpf(found) - true) * mp.mpf(2) ** (info.nmant - exponent))


# Points


def points(name: str, dtype: Any, count: int, seed: int = 1) -> tuple[Array, ...]:
    """Return count arguments with finite values: bit patterns, the usual range, and where the function is difficult."""
    random = np.random.default_rng([seed, *name.encode()])
    dtype = np.dtype(dtype)
    parts = []
    with np.errstate(all="ignore"):
        for part in sets_of_points(name, dtype, count, random):
            columns = np.stack([column.astype(dtype) for column in part])
            value = reference(name)(*columns.astype(np.longdouble))
            valid = np.isfinite(columns).all(axis=0) & np.isfinite(value) & (np.abs(value) <= np.finfo(dtype).max)
            parts.append(columns[:, valid])
    share = count // len(parts)
    while (
        share < count > sum(min(part.shape[1], share) for part in parts)
    ):  # others stand in for a part with few valid ones
        share += count // 20 + 1
    return tuple(np.concatenate([part[:, :share] for part in parts], axis=1)[:, :count])


def sets_of_points(name: str, dtype: np.dtype[Any], count: int, random: Any) -> Iterator[tuple[Array, ...]]:
    """Yield sets of arguments, each of at least count."""
    info = np.finfo(dtype)
    columns = range(arity(name))

    def patterns() -> Array:
        return np.frombuffer(random.bytes(count * dtype.itemsize), dtype)

    def uniform(low: float, high: float) -> Array:
        found: Array = random.uniform(low, high, count).astype(dtype)
        return found

    def powers(low: float, high: float) -> Array:
        """Both signs, evenly spread exponents."""
        return np.exp2(uniform(low, high)) * random.choice([-1.0, 1.0], count)

    largest = math.log(float(info.max))
    yield tuple(patterns() for _ in columns)
    yield tuple(uniform(-4, 4) for _ in columns)
    yield tuple(powers(-2 * info.nmant, 4) for _ in columns)
    if name in ("exp", "expm1", "sinh", "cosh", "exp2"):
        end = largest / math.log(2) if name == "exp2" else largest
        yield (uniform(-end * 1.05, end),)
    if name.startswith("log") and name != "logaddexp":
        yield (np.abs(patterns()),)
        yield ((name != "log1p") + powers(-info.nmant, -1),)
        yield (uniform(0, 2),)
    if name in ("sin", "cos", "tan"):
        multiples = random.integers(1, 10**6, count) * (np.pi / 2)
        yield (multiples,)
        yield (powers(0, info.maxexp - 1),)
        yield (uniform(-100, 100),)
    if name in ("asin", "acos", "atanh"):
        yield (uniform(-1, 1),)
        yield (np.copysign(1 - np.exp2(uniform(-info.nmant, -1)), uniform(-1, 1)),)
    if name in ("asinh", "acosh", "erf"):
        yield (1 + np.exp2(uniform(-info.nmant, 3)),)
    if name == "pow":
        yield np.abs(patterns()), uniform(-4, 4)
        base = uniform(0.1, 10)
        yield base, uniform(-1, 1) * largest / np.log(base)
        near = 1 + powers(-info.nmant, -4)
        yield near, uniform(-1, 1) * largest / np.abs(np.log(near))
        yield uniform(-10, 10), random.integers(-20, 20, count)
    if name == "logaddexp":
        yield (first := uniform(-0.69, 0)), partner(first) + powers(-8, -1)
        yield (first := uniform(-1, 0)), first + np.log(np.expm1(-first * uniform(0.6, 1.4)))
        for first in (uniform(-0.69, 0), -np.exp2(uniform(info.minexp - info.nmant, -0.6))):
            yield first, partner(first)
            yield first, partner(first) * (1 + powers(-info.nmant - 1, -1))
        yield uniform(-50, 50), uniform(-50, 50)
    if name in ("hypot", "atan2"):
        first = patterns()
        yield first, first * uniform(0.1, 10)


def partner(x: Array) -> Array:
    """Return y with e^x + e^y = 1: logaddexp is 0 there, and nearly so at the number nearest to it."""
    with np.errstate(divide="ignore"):
        found: Array = np.log(-np.expm1(x.astype(np.float64)))
    return found


def reference(name: str) -> Callable[..., Any]:
    """Return NumPy's function; erf from the standard library, a number at a time."""
    if name == "erf":
        return np.vectorize(math.erf, otypes=[float])
    return getattr(np, NUMPY.get(name, name))  # type: ignore[no-any-return]


# Every float32


SYMMETRIC = frozenset(["sin", "cos", "tan", "asin", "atan", "sinh", "cosh", "tanh", "asinh", "atanh", "erf"])


def largest_of_all(name: str, step: int = 1) -> tuple[float, float]:
    """Return the largest error of a function of one float32, over every step-th bit pattern, and where it is.

    The truth is NumPy's float64 function (of erf our own), whose error is 10^-8 of these units. Odd and even functions
    are asked on one side; tests/test_vecmath.py holds the other against it.
    """
    true = reference(name) if name != "erf" else compiled(name, "float64")
    block = step << 18
    largest, place = 0.0, 0.0
    for side in (0,) if name in SYMMETRIC else (0, 1 << 31):
        for start in range(side, side + 0x7F800000, block):
            end = min(start + block, side + 0x7F800000)
            x = np.arange(start, end, step, dtype=np.uint32).view(np.float32)
            with np.errstate(all="ignore"):
                errors = float32_ulps(compiled(name, "float32")(x), true(x.astype(np.float64)))
            worst = int(np.argmax(errors))
            if errors[worst] > largest:
                largest, place = float(errors[worst]), float(x[worst])
    return largest, place


def float32_ulps(found: Array, true: Array) -> Array:
    """Return what ulps() does for float32, of arrays, with the truth in float64; NaN is right for NaN."""
    exponent = np.maximum((true.view(np.int64) >> 52 & 0x7FF) - 1023, -126)
    errors: Array = np.abs(found - true) * (1023 + 23 - exponent << 52).view(np.float64)
    beyond = np.abs(true) >= float(np.finfo(np.float32).max) * (1 + 2.0**-25)
    right = np.where(beyond, found == np.copysign(np.inf, true), np.isnan(true) & np.isnan(found)) | (found == true)
    return np.where(right, 0.0, np.where(np.isfinite(errors), errors, np.inf))


# The table


class Row(NamedTuple):
    """What is known of a function for one dtype."""

    name: str
    dtype: str
    count: int
    largest: float
    place: tuple[float, ...]
    mean: float
    wrong: float  # share of results that are not the correctly rounded ones
    seconds: float  # per element
    numpy: float


def measured(task: tuple[str, str, int]) -> Row:
    """Return a function's row: errors against mpmath, times in the first-level cache."""
    name, dtype, count = task
    arguments = points(name, dtype, count)
    found = compiled(name, dtype)(*arguments)
    errors = np.empty(found.size)
    wrong = 0
    for k, (value, *given) in enumerate(zip(found, *arguments, strict=True)):
        true = true_value(name, *map(float, given))
        errors[k] = ulps(np.dtype(dtype), float(value), true)
        wrong += errors[k] > 0.5
    worst = int(np.argmax(errors))
    largest, place = float(errors[worst]), tuple(float(x[worst]) for x in arguments)
    if dtype == "float32" and arity(name) == 1:
        more, where = largest_of_all(name, 1 if count >= EVERY else 4096)
        largest, place = max((largest, place), (more, (where,)))
    times = timed(name, np.dtype(dtype))
    return Row(name, dtype, found.size, largest, place, errors.mean(), wrong / found.size, *times)


def timed(name: str, dtype: np.dtype[Any]) -> tuple[float, float]:
    """Return seconds per element of ours and of NumPy's, in turns, the least of many."""
    size = 16384 // dtype.itemsize // (arity(name) + 1) // 16 * 16
    random = np.random.default_rng(1)
    low, high = (1.0, 3.0) if name == "acosh" else (0.1, 0.9)
    given = [random.uniform(low, high, size).astype(dtype) for _ in range(arity(name))]
    out = np.empty(size, dtype)
    ours, theirs = compiled(name, dtype).bound(*given, out), reference(name)
    least = [math.inf, math.inf]
    for _ in range(200):
        start = perf_counter()
        for _ in range(10):
            ours()
        middle = perf_counter()
        if name != "erf":
            for _ in range(10):
                theirs(*given, out=out)
        end = perf_counter()
        least = [min(least[0], middle - start), min(least[1], end - middle)]
    return least[0] / 10 / size, least[1] / 10 / size if name != "erf" else math.nan


def main(quick: bool = False) -> None:
    """Print the table, and write docs/accuracy.md unless quick."""
    count = 500 if quick else EVERY
    tasks = [(name, dtype, count) for name in FUNCTIONS for dtype in DTYPES]
    rows, others = [], []
    with ProcessPoolExecutor(2, mp_context=get_context("spawn")) as pool:
        for row in pool.map(measured, tasks):
            print(line(row), flush=True)
            rows.append(row)
        for text in pool.map(
            complex_line, [(name, dtype, count // 20) for name in COMPLEX for dtype in COMPLEX_DTYPES]
        ):
            print(text, flush=True)
            others.append(text)
    if not quick:
        PAGE.write_text(page(rows, others), encoding="utf-8")


# Complex functions


COMPLEX = (
    *("exp", "expm1", "log", "log1p", "log2", "log10", "sqrt", "sin", "cos", "tan", "asin", "acos", "atan"),
    *("sinh", "cosh", "tanh", "asinh", "acosh", "atanh", "square", "reciprocal", "abs", "multiply", "divide", "pow"),
)


def complex_line(task: tuple[str, str, int]) -> str:
    """Return a row of the table of complex functions: the largest error beside the magnitude of the true value."""
    import xtensor as xt

    name, dtype, count = task
    binary = name in ("multiply", "divide", "pow")
    arguments = [complex_points(dtype, count, seed) for seed in range(1 + binary)]
    with xt.options(lazy="always", engine="llvm"):
        found = np.asarray(getattr(xt, name)(*map(xt.asarray, arguments)))
    largest, place, beyond = 0.0, (0j,), 0
    for value, *given in zip(found, *arguments, strict=True):
        error = norm_error(name, complex(value), *map(complex, given)) / float(np.finfo(dtype).eps)
        beyond += error > 4
        if error > largest:
            largest, place = error, tuple(map(complex, given))
    where = ", ".join(f"{z:.9g}" for z in place)
    return f"| {name} | {dtype} | {largest:.3g} | {beyond / found.size:.2%} | {where} |"


def complex_points(dtype: str, count: int, seed: int) -> Array:
    """Return numbers of a square, of many sizes, and near the unit circle."""
    random = np.random.default_rng(seed)
    third = count // 3
    square = random.uniform(-4, 4, third) + 1j * random.uniform(-4, 4, third)
    sizes = [np.exp2(random.uniform(-30, 6, third)) * random.choice([-1, 1], third) for _ in range(2)]
    radius = 1 + random.choice([-1, 1], third) * np.exp2(random.uniform(-40, -2, third))
    circle = radius * np.exp(1j * random.uniform(0, 2 * np.pi, third))
    return np.concatenate([square, sizes[0] + 1j * sizes[1], circle]).astype(dtype)


def norm_error(name: str, found: complex, *arguments: complex) -> float:
    """Return the magnitude of the error by that of the true value; 0 where one of the two is not finite."""
    from mpmath import mp

    others: dict[str, Callable[..., Any]] = {
        "log1p": lambda z: mp.log(mp.fadd(1, z, exact=True)),
        "square": lambda z: z * z,
        "reciprocal": lambda z: 1 / z,
        "abs": abs,
        "multiply": lambda a, b: a * b,
        "divide": lambda a, b: a / b,
    }
    with mp.workprec(160):
        true = (others.get(name) or truth(name))(*map(mp.mpc, arguments))
        if true == 0 or not (mp.isfinite(true) and np.isfinite(found)):
            return 0.0
        return float(abs(mp.mpc(found) - true) / abs(true))


def line(row: Row) -> str:
    """Return a row of the table, as Markdown."""
    place = ", ".join(f"{x:.9g}" if row.dtype == "float32" else f"{x:.17g}" for x in row.place)
    numpy = "" if math.isnan(row.numpy) else f"{row.numpy * 1e9:.2f}"
    return (
        f"| {row.name} | {row.dtype} | {row.largest:.3f} | {row.mean:.3f} | {row.wrong:.2%} | {place} "
        f"| {row.seconds * 1e9:.2f} | {numpy} |"
    )


def page(rows: list[Row], others: list[str]) -> str:
    """Return docs/accuracy.md."""
    count = rows[0].count
    return "\n".join(
        [
            "# Accuracy of the mathematical functions",
            "",
            "This page compares the generated code of `exp`, `sin` and the others with mpmath at 140 bits and more.",
            "Errors are in units in the last place of the true value (ulp): a correctly rounded result has at most",
            "0.5. The points are random bit patterns, the usual range, and the difficult ranges of each function:",
            f"near its zeros, near its bounds, subnormal, huge; {count:,} per line. Functions of a single float32 are",
            "evaluated at every float32, and compared with NumPy's function in float64, so their largest error is the",
            "true maximum; for the others it is the largest found, not a proof.",
            "",
            "`not rounded` is the share of results that differ from the correctly rounded ones. Times are nanoseconds",
            "per element on arrays in the first-level cache, with one thread, for xtensor and for NumPy on the machine",
            "that produced this page. They show how the two compare there, and nothing more.",
            "",
            "This page is written by `python -m benchmarks accuracy`.",
            "",
            "| function | dtype | max ulp | mean ulp | not rounded | where the maximum is | ns | NumPy ns |",
            "|---|---|--:|--:|--:|---|--:|--:|",
            *map(line, rows),
            "",
            "## Complex functions",
            "",
            "The functions that docs/engine.md names are generated code. The others, and all functions in small calls,",
            "are NumPy's, with the repairs in `xtensor/devices/cpu.py`. Errors are magnitudes, relative to that of the",
            "true value, in units of the dtype's `eps`, at numbers of the square from -4 - 4i to 4 + 4i, of sizes from",
            f"2^-30 to 2^6, and near the unit circle: {count // 20:,} of them.",
            "All but `pow` are within 4 `eps`; its error grows with the exponent's magnitude times the logarithm's.",
            "",
            "| function | dtype | max error | share beyond 4 eps | where the maximum is |",
            "|---|---|--:|--:|---|",
            *others,
            "",
        ]
    )
