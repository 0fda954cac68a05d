"""Run programs that were written for NumPy, as they are but for one import, and compare every value with NumPy's.

python conformance/numpy_programs.py                     what is found in the cache, beside the array API suite
python conformance/numpy_programs.py --folder F machine_learning/k_means_clust.py

Programs are the examples in docstrings of TheAlgorithms/Python (a checkout named `Algorithms`) and the answers of
rougier/numpy-100 (a checkout named `numpy-100`). Each runs twice in one process, once with `import xtensor.numpy as np`
where it has `import numpy as np`, with the same seeds. Every value that an example shows, and every variable that an
answer sets, must be equal in dtype and shape, and floating-point numbers to 9 digits.
"""

from __future__ import annotations

import argparse
import ast
import contextlib
import doctest
import io
import os
import random
import re
import signal
import sys
import warnings
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy
from suite import cache_folder

import xtensor as xt
import xtensor.numpy

SECONDS = 60  # for a program
DIGITS = "%.9g"

# Reasons why a program does something else, by what its error says; anything else is a fault.
REASONS = {
    r"hold numbers|must be a boolean, integer, floating or complex dtype": "holds text, dates, records or objects",
    r"^xtensor\.numpy has no": "uses a name that is left out",
    r"^T: x must have 2 axes": "transposes a vector by .T",
    r"^'Tensor' object is not callable": "hands tensors to pandas, which knows NumPy's arrays alone",
}


def of_xtensor(source: str) -> str:
    """Return a program with the names of NumPy's main namespace from xtensor."""
    return re.sub(r"\bimport numpy as np\b", "import xtensor.numpy as np", source)


def plain(value: Any) -> Any:
    """Return a value as it is compared: arrays and NumPy's scalars as dtype, shape and elements."""
    if isinstance(value, xt.Tensor):
        value = value.numpy()
        value = value[()] if value.ndim == 0 else value
    if isinstance(value, numpy.ndarray):
        return value.dtype.str, value.shape, [plain(one) for one in value.ravel().tolist()]
    if isinstance(value, numpy.generic):
        return value.dtype.str, plain(value.item())
    if isinstance(value, complex):
        return plain(value.real), plain(value.imag)
    if isinstance(value, float):
        return DIGITS % value
    if isinstance(value, (list, tuple)):
        return type(value).__name__, [plain(one) for one in value]
    if isinstance(value, dict):
        return [(plain(key), plain(one)) for key, one in value.items()]
    return value if isinstance(value, (int, str, bytes, type(None))) else type(value).__name__


class Outcome:
    """What a program gave: its values, and the error that ended it."""

    def __init__(self) -> None:
        self.values: list[Any] = []
        self.error: BaseException | None = None

    def run(self, work: Callable[[], Any]) -> None:
        """Do some work of it, quietly, unless an error has ended it."""
        try:
            with contextlib.redirect_stdout(io.StringIO()):
                work()
        except Exception as error:
            self.error = error

    def differs(self, theirs: Outcome) -> str:
        """Return how it differs from what NumPy gives, "" if it does not."""
        if self.error is None or theirs.error is None:
            same = self.values == theirs.values and self.error is theirs.error
        else:
            same = type(self.error) is type(theirs.error)
        if same:
            return ""
        said = str(self.error)
        found = [reason for pattern, reason in REASONS.items() if re.search(pattern, said)]
        return (found or [f"FAULT: {type(self.error).__name__} {said[:200]}" if self.error else "FAULT: other values"])[
            0
        ]


def seeded() -> None:
    random.seed(0)
    numpy.random.seed(0)
    xtensor.numpy.random.seed(0)


# ---- examples in docstrings


def module_of(path: Path, source: str) -> ModuleType:
    """Return a module made of source."""
    module = ModuleType(f"program_{abs(hash((path, source)))}")
    module.__file__ = str(path)
    sys.modules[module.__name__] = module
    exec(compile(source, str(path), "exec"), module.__dict__)
    return module


def examples_of(module: ModuleType) -> Iterator[doctest.DocTest]:
    """Yield the docstrings of a module that have examples."""
    finder = doctest.DocTestFinder(exclude_empty=True)
    yield from (test for test in finder.find(module, module.__name__, module=module) if test.examples)


def shown(test: doctest.DocTest, module: ModuleType, change: Callable[[str], str]) -> list[Outcome]:
    """Return what each example of a docstring shows."""
    names, outcomes = dict(module.__dict__), []
    seeded()
    for example in test.examples:
        outcome = Outcome()
        code = compile(change(example.source), "<example>", "single")
        show, sys.displayhook = sys.displayhook, lambda value, found=outcome: found.values.append(plain(value))
        try:
            outcome.run(lambda code=code: exec(code, names))
        finally:
            sys.displayhook = show
        outcomes.append(outcome)
    return outcomes


def compare_docstrings(path: Path) -> Iterator[tuple[str, str]]:
    """Yield each example of a file, and how it differs; raises what keeps the file from being imported with NumPy."""
    source = path.read_text(encoding="utf-8")
    theirs = module_of(path, source)
    try:
        ours = module_of(path, of_xtensor(source))
    except Exception as error:
        yield "import", f"FAULT: {error}"
        return
    for test in examples_of(theirs):
        pairs = zip(shown(test, ours, of_xtensor), shown(test, theirs, str), test.examples, strict=True)
        for mine, right, example in pairs:
            yield example.source.strip(), mine.differs(right)


# ---- answers


def compare_answers(path: Path) -> Iterator[tuple[str, str]]:
    """Yield the number of each answer that NumPy accepts, and how what it sets differs."""
    text = path.read_text(encoding="utf-8")
    for number, answer in re.findall(r"^< a(\d+)\n(.*?)(?=^< q|\Z)", text, re.MULTILINE | re.DOTALL):
        answer = re.sub(r"^(?:[%!].*|import numpy as np)$", "", answer, flags=re.MULTILINE)
        theirs, mine = set_by(answer, numpy), set_by(answer, xtensor.numpy)
        if theirs.error is None and "show_config" not in answer:
            yield number, mine.differs(theirs)


def set_by(answer: str, library: Any) -> Outcome:
    """Return the variables that an answer sets."""
    outcome, names = Outcome(), {"np": library}
    seeded()
    outcome.run(lambda: exec(compile(answer, "<answer>", "exec"), names))
    stored = sorted(n.id for n in ast.walk(ast.parse(answer)) if isinstance(n, ast.Name) and type(n.ctx) is ast.Store)
    of_values = (numpy.ndarray, numpy.generic, xt.Tensor, int, float, tuple, list)
    outcome.values = [(name, plain(names[name])) for name in stored if isinstance(names.get(name), of_values)]
    return outcome


# ---- the run


class TooLongError(BaseException):
    """A program takes too long; not an Exception, which programs may catch."""


def stopped(*_: object) -> None:
    raise TooLongError


def programs(folder: Path, only: list[str]) -> Iterator[tuple[str, Callable[[], Iterator[tuple[str, str]]]]]:
    """Yield the files that there are, by name, and what compares each."""
    answers, library = folder / "numpy-100" / "source" / "exercises100.ktx", folder / "Algorithms"
    if answers.is_file() and (not only or answers.name in only):
        yield answers.name, lambda: compare_answers(answers)
    for path in sorted(library.rglob("*.py")):
        name = path.relative_to(library).as_posix()
        if (not only or name in only) and re.search(r"^import numpy as np", path.read_text("utf-8"), re.MULTILINE):
            yield name, lambda path=path: compare_docstrings(path)


def main() -> int:
    """Print a table of what was run and each difference; return 1 where one has no known reason."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("files", nargs="*", metavar="FILE", help="some programs, by their names")
    parser.add_argument("--folder", type=Path, default=cache_folder().parent, help="where the checkouts are")
    given = parser.parse_args()
    os.environ["MPLBACKEND"] = "agg"
    os.chdir(given.folder)
    sys.path.insert(0, str(given.folder / "Algorithms"))
    warnings.simplefilter("ignore")
    signal.signal(signal.SIGALRM, stopped)
    tally: Counter[str] = Counter()
    for name, compare in programs(given.folder, given.files):
        tally.update(run(name, compare))
    for said, count in tally.most_common():
        print(f"{count:6}  {said}")
    return 1 if not tally or any(said.startswith("FAULT") for said in tally) else 0


def run(name: str, compare: Callable[[], Iterator[tuple[str, str]]]) -> Iterator[str]:
    """Compare one file, print how it differs, and yield what is counted of it."""
    signal.alarm(SECONDS)
    try:
        for example, difference in compare():
            if difference:
                print(f"{name}: {example[:80]!r}: {difference}")
            yield difference or "examples as NumPy's"
    except TooLongError:
        yield "programs that take longer than a minute"
    except Exception as error:
        yield f"programs that need what is not there ({type(error).__name__})"
    finally:
        signal.alarm(0)


if __name__ == "__main__":
    sys.exit(main())
