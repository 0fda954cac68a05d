"""NPBench's programs: where they are, and one version of a program run in this process.

Nothing of NPBench is here: a checkout of it is read. A program is a JSON file, a function that makes its inputs, and a
source for each library.
"""

from __future__ import annotations

import json
import os
import pickle
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property, partial
from importlib import import_module
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from statistics import median
from time import perf_counter
from types import FunctionType, ModuleType
from typing import Any, ClassVar, NamedTuple

import numpy as np

from .workloads import Array

URL = "https://github.com/spcl/npbench"
COMMIT = "f2d7f27d87ba4881991e62c18a607aa6ba52b260"

# As NPBench measures: this many calls, of which two more are not timed; fewer where they would take long. WARMING:
# seconds in which further calls are made before, until all is captured that will be.
CALLS, SECONDS, WARMING = 10, 10.0, 60.0

# What NPBench allows where a program says nothing else.
TOLERANCES = {"rtol": 1e-5, "atol": 1e-8, "norm_error": 1e-5}

# Times what NumPy's own outputs change with the last bits of its inputs, that others may differ from them.
CHAOTIC = 10.0

EXPECTED, OUTCOME = "expected.pickle", "outcome.json"


# ---- the suite


class SuiteMissingError(Exception):
    """There is no NPBench where it was looked for."""


def find(given: Path | None = None) -> Path:
    """Return the suite's folder: the given one, else $NPBENCH_DIR, else the one in the cache."""
    folder = Path(given or os.environ.get("NPBENCH_DIR") or cache_folder()).expanduser().resolve()
    if not (folder / "bench_info").is_dir():
        raise SuiteMissingError(
            f"NPBench was not found: {folder / 'bench_info'} does not exist; name its folder with --suite or "
            f"$NPBENCH_DIR, or fetch it: git clone {URL} {cache_folder()} (results are quoted for commit {COMMIT})"
        )
    return folder


def cache_folder() -> Path:
    """Return where the suite is looked for if nobody names a folder."""
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "xtensor" / "npbench"


def names(suite: Path) -> list[str]:
    """Return the names of the programs."""
    return sorted(file.stem for file in (suite / "bench_info").glob("*.json"))


@dataclass(frozen=True)
class Program:
    """A program of the suite, by the name of its JSON file."""

    suite: Path
    name: str

    @cached_property
    def info(self) -> dict[str, Any]:
        """What the JSON file says."""
        found: dict[str, Any] = json.loads((self.suite / "bench_info" / f"{self.name}.json").read_text("utf-8"))
        benchmark: dict[str, Any] = found["benchmark"]
        return benchmark

    def source(self, suffix: str) -> Path:
        """Return the file of a version; the one without a suffix makes the inputs."""
        folder: Path = self.suite / "npbench" / "benchmarks" / self.info["relative_path"]
        return folder / f"{self.info['module_name']}{suffix}.py"

    def module(self, suffix: str) -> ModuleType:
        """Run the file of a version and return it as a module."""
        spec = spec_from_file_location(f"{self.info['module_name']}{suffix}", self.source(suffix))
        if spec is None or spec.loader is None:
            raise ImportError(f"{self.source(suffix)} cannot be imported")
        module = module_from_spec(spec)
        spec.loader.exec_module(module)
        return module

    def function(self, module: ModuleType) -> Callable[..., Any]:
        """Return the function of a version that is timed."""
        found: Callable[..., Any] = getattr(module, self.info["func_name"])
        return found

    def inputs(self, preset: str) -> dict[str, Any]:
        """Return the arguments, and the parameters they were made of, by name: the same ones in each process."""
        data = dict(self.info["parameters"][preset])
        init = self.info.get("init")
        if init:
            np.random.seed(0)  # one program draws from this generator, which is another one in each process
            made = getattr(self.module(""), init["func_name"])(*(data[name] for name in init["input_args"]))
            several = len(init["output_args"]) > 1
            data.update(zip(init["output_args"], made if several else [made], strict=True))
        return data


# ---- versions


class Version:
    """A program as a library runs it; by itself, NumPy.

    name: what the tables call it. needs: the module that must be installed. suffix: of the source that is run.
    writes: whether it is NumPy's source, which returns the same and leaves the same in its arguments.
    """

    name: ClassVar[str] = "numpy"
    needs: ClassVar[str] = "numpy"
    suffix: ClassVar[str] = "_numpy"
    writes: ClassVar[bool] = True

    def function(self, program: Program) -> Callable[..., Any]:
        """Return the function that is timed."""
        return program.function(program.module(self.suffix))

    def operand(self, given: Array) -> Any:
        """Return a copy of an array as this library's own."""
        return np.copy(given)

    def wait(self, results: list[Any]) -> None:
        """Return when results and written arguments have been computed."""

    def is_warm(self) -> bool:
        """Return whether further calls are as fast as any."""
        return True


class Xtensor(Version):
    """NumPy's source with `import xtensor.numpy as np` in the place of NumPy's import."""

    name = needs = "xtensor"

    def function(self, program: Program) -> Callable[..., Any]:
        return program.function(self.module(program))

    def module(self, program: Program) -> ModuleType:
        """Return the source as a module."""
        module = program.module(self.suffix)
        vars(module)["np"] = import_module("xtensor.numpy")
        return module

    def operand(self, given: Array) -> Any:
        return import_module("xtensor").asarray(given, copy=True).evaluate()

    def wait(self, results: list[Any]) -> None:
        for result in results:
            if hasattr(result, "evaluate"):
                result.evaluate()


class XtensorFuse(Xtensor):
    """The same with every function under xt.fuse: where a whole program asks for values, its parts may be captured."""

    name = "xtensor.fuse"

    def module(self, program: Program) -> ModuleType:
        module, fuse = super().module(program), import_module("xtensor").fuse
        own = {name: one for name, one in vars(module).items() if isinstance(one, FunctionType)}
        self.long: list[str] | None = None
        self.fused = {name: fuse(one) for name, one in own.items() if one.__module__ == module.__name__}
        vars(module).update(self.fused)
        return module

    def is_warm(self) -> bool:
        """Return whether the last call has used no long function that waits for being captured."""
        explain = import_module("xtensor").explain
        lines = [line for one in self.fused.values() for line in str(explain(one)).splitlines() if "[long]" in line]
        before, self.long = self.long, lines
        return lines == before  # each says how often it was used


class Jax(Version):
    """NPBench's source for JAX, which returns what NumPy's writes into its arguments; float64 enabled."""

    name = needs = "jax"
    suffix = "_jax"
    writes = False

    def __init__(self) -> None:
        jax: Any = import_module("jax")
        jax.config.update("jax_platforms", "cpu")
        jax.config.update("jax_enable_x64", True)

    def operand(self, given: Array) -> Any:
        return import_module("jax.numpy").array(given).block_until_ready()

    def wait(self, results: list[Any]) -> None:
        import_module("jax").block_until_ready(results)


class Numba(Version):
    """NPBench's source for Numba, compiled without Python objects and on one thread."""

    name = needs = "numba"
    suffix = "_numba_n"
    writes = False


VERSIONS: dict[str, type[Version]] = {one.name: one for one in (Version, Xtensor, XtensorFuse, Jax, Numba)}


# ---- one version, in this process


class Outputs(NamedTuple):
    """What a call returned, one by one, and its array arguments after it, by name: all as NumPy's arrays."""

    returned: list[Array]
    arguments: dict[str, Array]


@dataclass(frozen=True)
class Run:
    """A program with a library and a preset; each call gets copies of the arrays."""

    program: Program
    version: Version
    preset: str

    @cached_property
    def inputs(self) -> dict[str, Any]:
        """The arguments as NumPy's arrays."""
        return self.program.inputs(self.preset)

    @cached_property
    def function(self) -> Callable[..., Any]:
        """What is timed."""
        return self.version.function(self.program)

    def sensitivity(self, outputs: Outputs) -> float:
        """Return the largest relative change of an output where each number given changes in its last bit: a chaotic
        program makes much of that.
        """
        inputs = {name: _next(value) if isinstance(value, np.ndarray) else value for name, value in self.inputs.items()}
        run = Run(self.program, self.version, self.preset)
        vars(run).update(inputs=inputs, function=self.function)
        both = zip(listed(run.call()[1]), listed(outputs), strict=True)
        return max([error_of(one, other) for one, other in both if one.shape == other.shape], default=0.0)

    def call(self) -> tuple[float, Outputs]:
        """Return the seconds of a call and what came out."""
        info, make = self.program.info, self.version.operand
        arrays = {name: make(self.inputs[name]) for name in info["array_args"]}
        arguments = [arrays[name] if name in arrays else self.inputs[name] for name in info["input_args"]]
        start = perf_counter()
        result = self.function(*arguments)
        returned = [] if result is None else list(result) if isinstance(result, (tuple, list)) else [result]
        self.version.wait([*returned, *arrays.values()])
        seconds = perf_counter() - start
        return seconds, Outputs([np.asarray(one) for one in returned], {n: np.asarray(a) for n, a in arrays.items()})

    def measured(self, calls: int) -> tuple[float, list[Outputs]]:
        """Return the median of the seconds after two calls that are not timed, as many as it takes until it is warm,
        for so many seconds, and two more; and the first and the last outputs.
        """
        _, first = self.call()
        seconds, last = self.call()
        begin, calls_before = perf_counter(), 0
        while not self.version.is_warm() and perf_counter() < begin + WARMING:
            self.call()
            calls_before = 2  # the last one has captured, the next one prepares
        for _ in range(calls_before):
            seconds, last = self.call()
        times = []
        for _ in range(max(1, min(calls, int(SECONDS / seconds)))):
            seconds, last = self.call()
            times.append(seconds)
        return median(times), [first, last]


def run(suite: str, name: str, version: str, preset: str, calls: str, folder: str) -> None:
    """Run a version of a program and leave its time in a folder, or why there is none.

    NumPy's version leaves its outputs there too, for others to be compared with.
    """
    try:
        running = Run(Program(Path(suite), name), VERSIONS[version](), preset)
        seconds, found = running.measured(int(calls))
        outcome: dict[str, Any] = {"seconds": seconds}
        expected = Path(folder, EXPECTED)
        if version == Version.name:
            expected.write_bytes(pickle.dumps((found[0], running.sensitivity(found[0]))))
        else:
            problem = compared(running, *pickle.loads(expected.read_bytes()), found)
            outcome = {"reason": problem} if problem else outcome
    except Exception as error:
        outcome = {"reason": reason_of(error)}
    Path(folder, OUTCOME).write_text(json.dumps(outcome), encoding="utf-8")


def reason_of(error: Exception) -> str:
    """Return in a line where a program stops: at a name that is missing, or at an error."""
    if isinstance(error, AttributeError) and error.name:
        return f"stops at {error.name}"
    return f"stops: {type(error).__name__}: {str(error).strip().partition(chr(10))[0]}"


def compared(run: Run, expected: Outputs, sensitivity: float, found: list[Outputs]) -> str:
    """Return what is wrong with outputs, by NPBench's measure, or nothing. sensitivity: of NumPy's own ones."""
    info, inputs = run.program.info, run.inputs
    tolerances = {name: info.get(name, usual) for name, usual in TOLERANCES.items()}
    tolerances["norm_error"] = max(tolerances["norm_error"], CHAOTIC * sensitivity)
    compare = one_by_one if run.version.writes else in_any_order
    written = [array for name, array in expected.arguments.items() if not np.array_equal(array, inputs[name])]
    wanted = listed(expected) if run.version.writes else expected.returned or written
    problems = (compare(listed(outputs), wanted, partial(difference, **tolerances)) for outputs in found)
    return next((f"wrong: {problem}" for problem in problems if problem), "")


def listed(outputs: Outputs) -> list[Array]:
    """Return all outputs: what was returned, then the arguments."""
    return [*outputs.returned, *outputs.arguments.values()]


def one_by_one(given: list[Array], wanted: list[Array], differ: Callable[[Array, Array], str]) -> str:
    """Return the first difference between outputs, or nothing."""
    if len(given) != len(wanted):
        return f"{len(given)} outputs, not {len(wanted)}"
    return next(filter(None, map(differ, given, wanted)), "")


def in_any_order(given: list[Array], wanted: list[Array], differ: Callable[[Array, Array], str]) -> str:
    """Return nothing if each wanted output is among those given: NPBench's other versions return as they like."""
    for one in wanted:
        problems = [differ(other, one) for other in given]
        if all(problems):
            return min(problems, key=lambda text: text.startswith("shape"), default="no outputs")
    return ""


def difference(found: Array, expected: Array, rtol: float, atol: float, norm_error: float) -> str:
    """Return how an output differs from NumPy's: in shape, or by more than is allowed, by element and as a whole."""
    if found.shape != expected.shape:
        return f"shape {found.shape}, not {expected.shape}"
    if np.allclose(expected, found, rtol=rtol, atol=atol, equal_nan=True):
        return ""
    error = error_of(found, expected)
    return "" if error < norm_error else f"relative error {error:.1e}"


def error_of(found: Array, expected: Array) -> float:
    """Return the norm of what differs over that of what is expected; 0 where all is equal."""
    if np.array_equal(found, expected, equal_nan=expected.dtype.kind in "fc"):
        return 0.0
    return float(np.linalg.norm(np.ravel(expected - found)) / np.linalg.norm(np.ravel(expected)))


def _next(array: Array) -> Array:
    """Return the floating-point numbers behind those of an array; of any other, a copy."""
    return np.nextafter(array, np.inf).astype(array.dtype) if array.dtype.kind == "f" else array.copy()
