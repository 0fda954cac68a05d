"""Adding an elementwise function touches one file; what is public is what the files of the chapters say."""

from __future__ import annotations

import ast
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from types import FunctionType, ModuleType

import pytest

import xtensor as xt

ROOT = Path(__file__).resolve().parent.parent

# What somebody who wants `softsign` writes: a name in the chapter's `__all__`, and a row.
ROW = '''

@elementwise(REAL_FLOATING, element=lambda a: a / (1.0 + e_maximum(a, -a)))
def softsign(x: Operand, /) -> Tensor:
    """Return x / (1 + |x|) of each element."""
    ...
'''


def add_softsign(package: Path) -> None:
    """Write a row into a copy of the package, and its name into the list above it."""
    file = package / "standard" / "elementwise.py"
    text = file.read_text(encoding="utf-8")
    assert text.count('    "sqrt",\n') == 1
    file.write_text(text.replace('    "sqrt",\n', '    "softsign",\n    "sqrt",\n') + ROW, encoding="utf-8")


@pytest.fixture(scope="module")
def copy(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder with a copy of the package to which one row was added, and of the pages."""
    folder = tmp_path_factory.mktemp("adding")
    for name in ("xtensor", "docs"):
        shutil.copytree(ROOT / name, folder / name, ignore=shutil.ignore_patterns("__pycache__", "_build"))
    add_softsign(folder / "xtensor")
    return folder


def run(folder: Path, *command: str) -> str:
    """Run Python on the copy and return what it prints."""
    environment = {name: value for name, value in os.environ.items() if not name.startswith("XTENSOR_")}
    environment |= {"PYTHONPATH": os.pathsep.join([str(folder), str(folder / "docs")])}
    environment["MYPYPATH"] = str(folder)
    done = subprocess.run(
        [sys.executable, *command], cwd=folder, env=environment, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


USE = """
import inspect
import numpy as np
import xtensor as xt
from xtensor.calls.op import REGISTRY

def expected(n):
    return n / (1.0 + np.maximum(n, -n))

for dtype in (xt.float32, xt.float64, xt.int8, xt.int32, xt.int64):
    n = np.arange(-3, 4).astype(dtype)
    x = xt.asarray(n, copy=True)
    for lazy in ("auto", "always", "never"):
        with xt.options(lazy=lazy):
            y = xt.softsign(x)
        assert y.is_pending == (lazy == "always"), (dtype, lazy)
        assert y.dtype == expected(n).dtype and y.shape == n.shape, (dtype, lazy)
        assert np.array_equal(np.asarray(y), expected(n)), (dtype, lazy)

large = xt.linspace(-2.0, 2.0, 100_000)
assert xt.softsign(large).is_pending
assert np.array_equal(np.asarray(xt.softsign(large)), expected(np.linspace(-2.0, 2.0, 100_000)))
assert inspect.signature(xt.softsign) == inspect.signature(xt.exp)
assert xt.softsign.__doc__.startswith("Return x / (1 + |x|)")
assert REGISTRY["softsign"].kind == "elementwise" and REGISTRY["softsign"].chapter == "elementwise"
"""


def test_a_new_function_is_used_like_any_other(copy: Path) -> None:
    """It works on every dtype of its category, at once and recorded, and has its signature and docstring."""
    run(copy, "-c", USE)


REFUSE = """
import xtensor as xt

for lazy in ("auto", "always", "never"):
    for wrong in (xt.ones(2, dtype=xt.complex64), "a string"):
        with xt.options(lazy=lazy):
            try:
                xt.softsign(wrong)
            except TypeError as error:
                print(error)
"""


def test_a_new_function_refuses_by_name(copy: Path) -> None:
    """Its messages are derived from its row, though no library has a function of that name."""
    refused = [
        "softsign: x must be real floating, got complex64",
        "softsign: x must be an array or a scalar, got str",
    ]
    assert run(copy, "-c", REFUSE).splitlines() == refused * 3


def test_a_new_function_stands_in_the_documentation(copy: Path) -> None:
    """The coverage table has a line more, with its category and what else it takes."""
    table = run(copy, "-c", "import pages; print(pages.coverage_table())")
    lines = [line for line in table.splitlines() if "softsign" in line]
    assert len(lines) == 1
    cells = [cell.strip() for cell in lines[0].strip("|").split("|")]
    assert cells[1:] == ["Elementwise", "row: elementwise", "real floating", "integer", ""]  # it has no derivative


@pytest.mark.skipif(find_spec("mypy") is None, reason="mypy is in the extra `dev`")
def test_a_new_function_is_seen_by_type_checkers(copy: Path) -> None:
    """mypy knows its signature, from the file alone."""
    (copy / "use.py").write_text(
        "import xtensor as xt\nreveal_type(xt.softsign)\nreveal_type(xt.softsign(xt.ones(3)))\n"
    )
    text = run(copy, "-m", "mypy", "--cache-dir", str(copy / "cache"), "--follow-imports=silent", "use.py")
    assert 'Revealed type is "def (xtensor.tensor.face.Tensor | ' in text
    assert 'Revealed type is "xtensor.tensor.face.Tensor"' in text


# ---- what is public

# Files of the room that are no chapter of the main namespace: extensions, inspection, and what chapters share.
EXTENSIONS = {"fft", "linalg"}
OTHERS = EXTENSIONS | {"__init__", "factors", "inspection", "keys", "methods", "padded", "subscripts", "told_keys"}
CHAPTERS = sorted({file.stem for file in (ROOT / "xtensor" / "standard").glob("*.py")} - OTHERS)

# Public to the other files of the package, for what operators, indexing and methods do; no functions of the namespace.
INTERNAL = {
    "elementwise": {"share"},
    "indexing": {"added", "getitem", "setitem", "subscript"},
    "linear": {"adjoint", "along", "conjugate", "dot", "on_diagonal", "update_matmul"},
    "manipulation": {"split"},
    "statistical": {"running_extremes", "size_along", "spread"},
}

STANDARD = """
e inf nan newaxis pi
bool int8 int16 int32 int64 uint8 uint16 uint32 uint64 float32 float64 complex64 complex128
__array_namespace_info__
"""

# The 174 functions of the standard 2025.12, chapter by chapter.
FUNCTIONS = """
arange asarray empty empty_like eye from_dlpack full full_like linspace meshgrid ones ones_like tril triu zeros
zeros_like

astype can_cast finfo iinfo isdtype result_type

abs acos acosh add asin asinh atan atan2 atanh bitwise_and bitwise_left_shift bitwise_invert bitwise_or
bitwise_right_shift bitwise_xor ceil clip conj copysign cos cosh divide equal exp expm1 floor floor_divide greater
greater_equal hypot imag isfinite isinf isnan less less_equal log log1p log2 log10 logaddexp logical_and logical_not
logical_or logical_xor maximum minimum multiply negative nextafter not_equal positive pow real reciprocal remainder
round sign signbit sin sinh square sqrt subtract tan tanh trunc

fft.fft fft.ifft fft.fftn fft.ifftn fft.rfft fft.irfft fft.rfftn fft.irfftn fft.hfft fft.ihfft fft.fftfreq
fft.rfftfreq fft.fftshift fft.ifftshift

take take_along_axis

linalg.cholesky linalg.cross linalg.det linalg.diagonal linalg.eigh linalg.eigvalsh linalg.eig linalg.eigvals
linalg.inv linalg.matmul linalg.matrix_norm linalg.matrix_power linalg.matrix_rank linalg.matrix_transpose
linalg.outer linalg.pinv linalg.qr linalg.slogdet linalg.solve linalg.svd linalg.svdvals linalg.tensordot
linalg.trace linalg.vecdot linalg.vector_norm

matmul matrix_transpose tensordot vecdot

broadcast_arrays broadcast_shapes broadcast_to concat expand_dims flip moveaxis permute_dims repeat reshape roll
squeeze stack tile unstack

argmax argmin count_nonzero nonzero searchsorted where

isin unique_all unique_counts unique_inverse unique_values

argsort sort

cumulative_prod cumulative_sum max mean min prod std sum var

all any diff
"""

# Names beyond the standard: classes, and functions that existing array code leans on.
OURS = {"Device", "Tensor", "cache_info", "evaluate", "explain", "fuse", "named", "options", "profile", "vmap"}


@pytest.mark.parametrize("chapter", CHAPTERS)
def test_a_chapter_names_its_functions(chapter: str) -> None:
    """`__all__` of a file is its public functions, in order, each once."""
    module = import_module(f"xtensor.standard.{chapter}")
    assert set(module.__all__) == set(public_functions(module)) - INTERNAL.get(chapter, set())
    assert module.__all__ == sorted(set(module.__all__))


def public_functions(module: ModuleType) -> Iterator[str]:
    """Yield the names of the functions that are written in a module and do not begin with an underscore."""
    for name, value in vars(module).items():
        if name[0] != "_" and isinstance(value, FunctionType) and value.__module__ == module.__name__:
            yield name


def test_no_chapter_is_forgotten() -> None:
    """`__init__.py` takes every chapter, and names no function itself."""
    source = (ROOT / "xtensor" / "__init__.py").read_text(encoding="utf-8")
    imports = [node for node in ast.parse(source).body if isinstance(node, ast.ImportFrom) and node.module]
    starred = {node.module.rpartition(".")[2] for node in imports if node.names[0].name == "*"}
    assert starred == {*CHAPTERS, "dtypes"}


def test_every_function_of_the_standard_is_there() -> None:
    """The namespace has the 174 functions, the constants, the dtypes and the inspection function."""
    functions = FUNCTIONS.split()
    assert len(functions) == len(set(functions)) == 174
    for name in functions:
        module = getattr(xt, name.split(".")[0]) if "." in name else xt
        assert name.split(".")[-1] in dir(module), name
        assert isinstance(getattr(module, name.split(".")[-1]), FunctionType), name
    assert set(STANDARD.split()) <= set(dir(xt))


def test_nothing_else_is_public() -> None:
    """What is public beyond the standard is said by a chapter, or is a file of the package."""
    said = {name for chapter in CHAPTERS for name in import_module(f"xtensor.standard.{chapter}").__all__}
    public = {name for name, value in vars(xt).items() if name[0] != "_" and not isinstance(value, ModuleType)}
    public |= {name for name, home in xt._HOMES.items() if home != ".numpy"}
    assert (
        public
        == said
        | set(STANDARD.split()) - {"__array_namespace_info__"}
        | set(xt.base.dtypes.__all__)
        | set(xt.autograd.__all__)
        | OURS
    )


@pytest.mark.parametrize("module", [xt.linalg, xt.fft], ids=lambda module: module.__name__)
def test_extensions_hold_the_standard(module: ModuleType) -> None:
    """The extension modules say what is theirs, and that is the standard's list."""
    prefix = module.__name__.removeprefix("xtensor")[1:] + "."
    assert module.__all__ == sorted(name.removeprefix(prefix) for name in FUNCTIONS.split() if name.startswith(prefix))
