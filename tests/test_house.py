"""The house rules: who may import whom, how long things may be, and what must not be there."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from collections.abc import Iterator
from fnmatch import fnmatch
from functools import cache
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
HOUSE = ROOT / "xtensor"

# The floor plan: a room imports only from rooms above it. What is in a room stands in the docstring of its __init__.py,
# or of the file; README.md and docs/house.md show both, as `floor_plan` sets them out.
ROOMS = [
    "base/*",
    "storage/*",
    "devices/*",
    "graph/*",
    "plan/*",
    "codegen/*",
    "run/*",
    "tensor/*",
    "autograd/*",
    "calls/*",
    "standard/*",
    "nn/*",
    "special/*",
    "linalg.py",
    "fft.py",
    "random.py",
    "testing.py",
    "numpy/*",
    "dask.py",
    "einops.py",
    "explanation.py",
    "drawing.py",
    "explaining.py",
    "timeline.py",
    "profiler.py",
    "memory.py",
    "__init__.py",
    "doctor.py",
    "__main__.py",
]

# The exceptions: the list of devices loads the file of a device when it is asked for, and a device its own kernels,
# which are generated code.
LOADED_WHEN_ASKED = {
    ("devices/__init__.py", "devices/cpu.py"),
    ("devices/__init__.py", "devices/cuda.py"),
    ("devices/cuda_kernels.py", "codegen/cuda/library.py"),
}

OPTIONAL = {
    "llvmlite": ["codegen/cpu/compile.py"],
    "cupy": ["devices/cuda.py", "codegen/cuda/nvrtc.py"],
    "cupyx": ["devices/cuda.py", "devices/cuda_memory.py", "codegen/cuda/kernel.py"],
    "cudnn": ["nn/cudnn_plans.py"],
    "dask": ["dask.py"],
    "einops": ["einops.py"],
    "sklearn": ["__main__.py"],
    "scipy": ["__main__.py", "devices/cpu.py"],
}
NOT_AT_IMPORT = [
    *("llvmlite", "cupy", "cupyx", "cudnn", "dask", "einops", "scipy", "sklearn", "array_api_compat"),
    *("dataclasses", "logging", "pathlib", "string", "sysconfig", "tempfile"),
    *("xtensor.autograd.transforms", "xtensor.codegen.cpu.compile", "xtensor.run.native"),
]

FILE_LINES, FUNCTION_LINES, USUAL_FUNCTION_LINES, PACKAGE_LINES = 700, 60, 20, 51_080

FILES = sorted(file.relative_to(HOUSE).as_posix() for file in HOUSE.rglob("*.py"))
every_file = pytest.mark.parametrize("file", FILES)


@cache
def tree_of(file: str) -> ast.Module:
    """Return a file of the package, parsed."""
    return ast.parse((HOUSE / file).read_text(encoding="utf-8"), file)


def room_of(file: str) -> int:
    """Return the position of a file's room in the floor plan."""
    rooms = [number for number, pattern in enumerate(ROOMS) if fnmatch(file, pattern)]
    assert rooms, f"xtensor/{file} has no room: give it a line in ROOMS of tests/test_house.py"
    return rooms[0]


# The floor plan


def floor_plan() -> str:
    """Return the rooms in their order, each with the first sentence of its docstring."""
    named = [pattern.removesuffix("*") for pattern in ROOMS]
    width = max(map(len, named)) + 2
    lines = ["xtensor/"]
    for name in named:
        file = f"{name}__init__.py" if name.endswith("/") else name
        sentence = (ast.get_docstring(tree_of(file)) or "").split("\n\n")[0].replace("\n", " ")
        lines.append(f"  {name:{width}}{sentence}")
    return "\n".join(lines)


def test_readme_shows_the_floor_plan() -> None:
    """README.md, and with it docs/house.md, shows the floor plan as it is."""
    shown = (ROOT / "README.md").read_text(encoding="utf-8")
    assert f"```text\n{floor_plan()}\n```" in shown, f"put this under `## Floor plan` in README.md:\n{floor_plan()}"


# Imports


def walk_at_run_time(node: ast.AST) -> Iterator[ast.AST]:
    """Walk a tree, leaving out what stands under `if TYPE_CHECKING:`."""
    yield node
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.If) and ast.unparse(child.test).endswith("TYPE_CHECKING"):
            for other in child.orelse:
                yield from walk_at_run_time(other)
        else:
            yield from walk_at_run_time(child)


def imported_modules(file: str) -> Iterator[tuple[int, str]]:
    """Yield line and dotted name of everything a file imports; `from a import b` counts as a.b."""
    package = ("xtensor/" + file).split("/")[:-1]
    for node in walk_at_run_time(tree_of(file)):
        if isinstance(node, ast.Import):
            yield from ((node.lineno, alias.name) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            base = package[: len(package) - node.level + 1] if node.level else []
            parts = [*base, *(node.module.split(".") if node.module else [])]
            yield from ((node.lineno, ".".join([*parts, alias.name])) for alias in node.names)


def file_of(module: str) -> str | None:
    """Return the file of the package that a dotted name is found in, if it is ours."""
    first, *rest = module.split(".")
    if first != "xtensor":
        return None
    for depth in range(len(rest), -1, -1):
        stem = "/".join(rest[:depth])
        for file in (f"{stem}.py", f"{stem}/__init__.py".lstrip("/")):
            if file in FILES:
                return file
    return "__init__.py"


def own_imports(file: str) -> Iterator[tuple[int, str]]:
    """Yield line and file for every import of one of our files."""
    for line, module in imported_modules(file):
        found = file_of(module)
        if found not in (None, file) and (file, found) not in LOADED_WHEN_ASKED:
            yield line, found


@every_file
def test_imports_only_from_above(file: str) -> None:
    """A file imports from rooms above its own, or from its own room."""
    here = room_of(file)
    for line, other in own_imports(file):
        assert room_of(other) <= here, (
            f"xtensor/{file}:{line} imports xtensor/{other}, which stands below it in the floor plan: "
            "move what is shared to a room above both, or pass it in as an argument"
        )


def test_no_circles_within_a_room() -> None:
    """The files of one room do not import each other in a circle."""
    graph = {file: [other for _, other in own_imports(file)] for file in FILES}
    try:
        TopologicalSorter(graph).prepare()
    except CycleError as error:
        pytest.fail("these files import each other in a circle: " + " <- ".join(error.args[1]))


@every_file
def test_optional_dependencies_stay_in_their_files(file: str) -> None:
    """Only the files named in OPTIONAL import a library that may be absent."""
    for line, module in imported_modules(file):
        home = OPTIONAL.get(module.split(".")[0], [file])
        assert file in home, (
            f"xtensor/{file}:{line} imports {module}: only {' and '.join(home)} may, the rest asks there"
        )


def run_python(code: str) -> str:
    """Run code in a fresh interpreter and return what it prints."""
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


def test_import_loads_nothing_optional_or_slow() -> None:
    """`import xtensor` loads NumPy and what is quick to load, but neither extras nor the code generators."""
    code = f"import sys, xtensor; print(*sorted(set({NOT_AT_IMPORT}) & set(sys.modules)))"
    loaded = run_python(code)
    assert not loaded, f"`import xtensor` loads {loaded}: import it where it is first needed"


# Environment


def nodes_run_at_import(node: ast.AST) -> Iterator[ast.AST]:
    """Walk a tree without the bodies of functions; their decorators and defaults do run at import."""
    yield node
    for name, value in ast.iter_fields(node):
        if name == "body" and isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda)):
            continue
        for child in value if isinstance(value, list) else [value]:
            if isinstance(child, ast.AST):
                yield from nodes_run_at_import(child)


@every_file
def test_no_environment_variable_at_import(file: str) -> None:
    """No file reads the environment while it is imported."""
    for node in nodes_run_at_import(tree_of(file)):
        if isinstance(node, (ast.Attribute, ast.Name)) and isinstance(node.ctx, ast.Load):
            assert ast.unparse(node) not in {"os.environ", "os.getenv", "environ", "getenv"}, (
                f"xtensor/{file}:{node.lineno} reads the environment at import: read it inside a function, "
                "when the value is first needed"
            )


def test_import_reads_no_variable_of_ours() -> None:
    """The same, watched while it happens: functions called at import read none of our variables either."""
    code = """
import os, numpy
class Watched(type(os.environ)):
    def __getitem__(self, name):
        assert not name.startswith("XTENSOR"), f"{name} is read at import: read it when it is first needed"
        return super().__getitem__(name)
os.environ.__class__ = Watched
import xtensor"""
    run_python(code)


# Size


def functions_of(file: str) -> Iterator[ast.FunctionDef | ast.AsyncFunctionDef]:
    """Yield the functions and methods of a file."""
    for node in ast.walk(tree_of(file)):
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
            yield node


def docstring_lines(node: ast.AST) -> set[int]:
    """Return the numbers of the lines that the docstring of a module, class or function covers."""
    body = getattr(node, "body", None) or [None]
    first = body[0] if isinstance(body, list) else None
    value = first.value if isinstance(first, ast.Expr) else None
    text = isinstance(value, ast.Constant) and isinstance(value.value, str)
    return set(range(value.lineno, value.end_lineno + 1)) if text else set()


def length_of(function: ast.FunctionDef | ast.AsyncFunctionDef) -> int:
    """Return the lines of a function from `def` to its end, without its docstring."""
    return function.end_lineno - function.lineno + 1 - len(docstring_lines(function))


@every_file
def test_file_length(file: str) -> None:
    """No file is a warehouse."""
    lines = len((HOUSE / file).read_text(encoding="utf-8").splitlines())
    assert lines <= FILE_LINES, f"xtensor/{file} has {lines} lines, more than {FILE_LINES}: it holds two ideas"


@every_file
def test_function_length(file: str) -> None:
    """No function is longer than a screen."""
    for function in functions_of(file):
        assert length_of(function) <= FUNCTION_LINES, (
            f"xtensor/{file}:{function.lineno} {function.name} has {length_of(function)} lines without "
            f"docstring, more than {FUNCTION_LINES}: name its parts"
        )


def test_most_functions_are_short() -> None:
    """Nine functions in ten have at most twenty lines."""
    lengths = {f"{file}:{f.lineno} {f.name}": length_of(f) for file in FILES for f in functions_of(file)}
    longer = {name: length for name, length in lengths.items() if length > USUAL_FUNCTION_LINES}
    worst = "\n".join(f"  {length} {name}" for name, length in sorted(longer.items(), key=lambda x: -x[1])[:20])
    assert len(longer) <= len(lengths) / 10, (
        f"{len(longer)} of {len(lengths)} functions have more than {USUAL_FUNCTION_LINES} lines:\n{worst}"
    )


def code_lines(file: str) -> int:
    """Return the lines of a file that are neither blank nor docstring."""
    docstrings = set().union(*(docstring_lines(node) for node in ast.walk(tree_of(file))))
    lines = (HOUSE / file).read_text(encoding="utf-8").splitlines()
    return sum(bool(text.strip()) and number not in docstrings for number, text in enumerate(lines, 1))


def test_package_length() -> None:
    """The budget is defended by deleting."""
    sizes = {file: code_lines(file) for file in FILES}
    assert sum(sizes.values()) <= PACKAGE_LINES, f"{sum(sizes.values())} lines, more than {PACKAGE_LINES}: {sizes}"


# Words


@every_file
@pytest.mark.parametrize(
    ("words", "advice"),
    [
        (r"in\s+sync", "two lists that must agree: write the fact once and derive the other"),
        (r"\b(TODO|FIXME|XXX)\b", "finish it, or file an issue"),
    ],
)
def test_words_that_do_not_occur(file: str, words: str, advice: str) -> None:
    """Some words show that something is left undone or written twice."""
    for number, text in enumerate((HOUSE / file).read_text(encoding="utf-8").splitlines(), 1):
        assert not re.search(words, text), f"xtensor/{file}:{number}: {text.strip()}\n{advice}"
