"""What the pages are made of: their code, run as it is read, and the table of every function.

No Sphinx here: the tests use this file too.
"""

from __future__ import annotations

import ast
import io
import re
import sys
from collections.abc import Iterator
from contextlib import redirect_stdout
from inspect import Parameter, signature, unwrap
from pathlib import Path
from types import CodeType, FunctionType
from typing import Any, NamedTuple

import numpy as np

import xtensor as xt
from xtensor.numpy import names as numpys
from xtensor.special import names as specials

sys.path.append(str(Path(__file__).resolve().parent.parent / "examples"))  # pages import them

FENCE = re.compile(r"^```(?P<info>[^\n`]*)\n(?P<body>.*?)^```[ ]*$", re.MULTILINE | re.DOTALL)
OPTION = re.compile(r"^:(?P<name>\w+):[ ]*(?P<value>.*)\n", re.MULTILINE)


class Block(NamedTuple):
    """One fenced block of a page: its line, the word after the fence, the code and the exception it must raise."""

    line: int
    info: str
    code: str
    raises: str = ""


def blocks(text: str) -> Iterator[Block]:
    """Yield the fenced blocks of a Markdown page."""
    for found in FENCE.finditer(text):
        body, options = found["body"], {}
        while found["info"].startswith(("{run}", "{plot}")) and (option := OPTION.match(body)):
            options[option["name"]] = option["value"].strip()
            body = body[option.end() :]
        yield Block(text.count("\n", 0, found.start()) + 1, found["info"].strip(), body, **options)


class Session:
    """The names of one page, and the running of its blocks as the interactive interpreter runs them."""

    def __init__(self) -> None:
        self.names: dict[str, Any] = {"__name__": "page"}

    def run(self, code: str, raises: str = "") -> list[tuple[str, str]]:
        """Return the code in pieces, each ending in a statement that showed something, and what it showed.

        raises: the exception the last statement must end in; what it says is then what is shown.
        """
        lines, pieces, start = code.splitlines(), [], 0
        statements = ast.parse(code).body
        for statement in statements:
            shown = self._raised(statement, raises) if raises and statement is statements[-1] else self._show(statement)
            if shown:
                pieces.append(("\n".join(lines[start : statement.end_lineno]).strip("\n"), shown))
                start = statement.end_lineno or start
        rest = "\n".join(lines[start:]).strip("\n")
        return [*pieces, (rest, "")] if rest else pieces

    def value(self, code: str) -> Any:
        """Return the value of the expression that code ends in, after running what stands before it."""
        *before, last = ast.parse(code).body
        assert isinstance(last, ast.Expr), f"{ast.unparse(last)} is no expression"
        for statement in before:
            self._show(statement)
        return eval(compile(ast.Expression(last.value), "<page>", "eval"), self.names)

    def _show(self, statement: ast.stmt) -> str:
        """Run one statement and return what it prints, or the repr of the expression it is."""
        with redirect_stdout(io.StringIO()) as printed:
            if isinstance(statement, ast.Expr):
                value = eval(compile(ast.Expression(statement.value), "<page>", "eval"), self.names)
                if value is not None:
                    print(repr(value))
            else:
                exec(compile(ast.Module([statement], []), "<page>", "exec"), self.names)
        return printed.getvalue().rstrip()

    def _raised(self, statement: ast.stmt, name: str) -> str:
        try:
            self._show(statement)
        except Exception as error:
            if type(error).__name__ != name:
                raise
            return f"{name}: {error}"
        raise AssertionError(f"{ast.unparse(statement)} does not raise {name}")


# ---- every function of the standard

# What the namespace holds beside the standard's functions (__array_namespace_info__ is its inspection chapter).
OURS = (
    *("__array_namespace_info__", "evaluate", "explain", "fuse", "vmap", "named", "cache_info", "diag", "einsum"),
    *xt.autograd.__all__,
)

CHAPTERS = {
    "dtypes": "Data types",
    "casting": "Data types",
    "creation": "Creation",
    "elementwise": "Elementwise",
    "indexing": "Indexing",
    "linear": "Linear algebra",
    "manipulation": "Manipulation",
    "searching": "Searching",
    "sets": "Sets",
    "sorting": "Sorting",
    "statistical": "Statistics",
    "utility": "Utilities",
    "linalg": "Extension linalg",
    "fft": "Extension fft",
}


class Function(NamedTuple):
    """A function of the standard: the name users write after `xt.`, its chapter, and itself."""

    name: str
    chapter: str
    call: Any


def functions() -> list[Function]:
    """Return every function of the standard that the namespace has, chapter by chapter."""
    found = [Function(name, chapter_of(getattr(xt, name)), getattr(xt, name)) for name in names_of(xt)]
    for module in (xt.linalg, xt.fft):
        chapter = CHAPTERS[module.__name__.rpartition(".")[2]]
        prefix = module.__name__.partition(".")[2]
        found += [Function(f"{prefix}.{name}", chapter, getattr(module, name)) for name in names_of(module)]
    order = list(dict.fromkeys(CHAPTERS.values()))
    return sorted(found, key=lambda function: (order.index(function.chapter), function.name))


def names_of(module: Any) -> list[str]:
    """Return the names of a module's public functions."""
    names = getattr(module, "__all__", vars(module))
    public = [name for name in names if name[0] != "_" and isinstance(getattr(module, name), FunctionType)]
    return [name for name in public if name not in OURS]


def chapter_of(function: Any) -> str:
    """Return the chapter a function stands in: the file it is written in."""
    return CHAPTERS[function.__module__.rpartition(".")[2]]


def declared(function: Any) -> str:
    """Return how a function is written: as a row, or in plain Python, there told apart by what it does.

    view: its result shares memory with its argument; library: it runs a function of NumPy or CuPy through on().
    """
    op = getattr(function, "op", None)
    if op is not None:
        return f"row: {op.kind}"
    return "view" if is_view(function) else "library" if calls(function, "on") else "function"


def calls(function: Any, name: str) -> bool:
    """Return whether a function, or a private helper of its file that it calls, calls `name` of calls/op.py."""
    module, seen, open_ = unwrap(function).__globals__, set(), [function.__name__]
    while open_:
        called = unwrap(module.get(open_.pop(), calls))
        if isinstance(called, FunctionType) and called.__module__ == function.__module__ and called not in seen:
            seen.add(called)
            names = names_in(called.__code__)
            if name in names:
                return True
            open_ += [helper for helper in names if helper.startswith("_")]
    return False


def names_in(code: CodeType) -> list[str]:
    """Return the names that code uses, the functions inside it included."""
    inner = [names_in(constant) for constant in code.co_consts if isinstance(constant, CodeType)]
    return [*code.co_names, *(name for names in inner for name in names)]


SAMPLE = {"axis": 0, "axes": (0, 2, 1), "source": 0, "destination": 1, "shape": (1, 2, 2)}


def is_view(function: Any) -> bool:
    """Return whether the function's result shares memory with its argument, by calling it."""
    x = xt.asarray(np.ones((1, 2, 2)), copy=True)
    arguments = []
    for parameter in signature(function).parameters.values():
        if parameter.default is Parameter.empty and parameter.kind is not Parameter.KEYWORD_ONLY:
            arguments.append(SAMPLE.get(parameter.name, x))
    try:
        result = function(*arguments)
    except Exception:  # the sample does not fit: no function that makes views refuses it
        return False
    parts = result if isinstance(result, tuple) else (result,)
    return any(isinstance(part, xt.Tensor) and np.shares_memory(np.asarray(part), np.asarray(x)) for part in parts)


KINDS = {"boolean": ["bool"], "integer": ["int64", "uint8"], "real floating": ["float64"], "complex": ["complex128"]}


def accepted(function: Any) -> tuple[str, str]:
    """Return what the standard's word for a row's dtypes is, and the further kinds that it takes here.

    Both empty for a function that is not a row. The kinds are tried, not looked up.
    """
    op = getattr(function, "op", None)
    if op is None:
        return "", ""
    beyond = []
    for kind, names in KINDS.items():
        dtypes = [np.dtype(name) for name in names]
        if all(dtype not in op.accepts and takes(op, dtype) for dtype in dtypes):
            beyond.append(kind)
    return op.accepts.word, ", ".join(beyond)


def takes(op: Any, dtype: Any) -> bool:
    """Return whether a row takes a dtype in all its operands."""
    x = xt.ones(2, dtype=dtype)
    try:
        getattr(xt, op.name)(*[x] * len(op.parameters))
    except TypeError:
        return False
    return True


def gradient_of(function: Any) -> str:
    """Return whether a function has a rule for gradients, or one that says they are zero everywhere."""
    op = getattr(function, "op", None)
    rule = getattr(function, "rule", None) if op is None else op.rule
    if rule is None or not rule.pulls:
        return ""
    return "zero" if all(pull.function == 0 for pull in rule.pulls.values()) else "rule"


def coverage_table() -> str:
    """Return the table of every function of the standard, as Markdown."""
    lines = ["| function | chapter | declared as | dtypes | also takes | gradient |", "|---|---|---|---|---|---|"]
    for name, chapter, call in functions():
        word, beyond = accepted(call)
        cells = (f"{{py:func}}`{name} <xtensor.{name}>`", chapter, declared(call), word, beyond, gradient_of(call))
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines)


# The columns of the table of NumPy's names.
NUMPYS = ("native and fused", "composed", "through the library")


def numpy_table() -> str:
    """Return the table of NumPy's names, by namespace and first letter, and those left out, as Markdown."""
    groups = numpys.groups()

    def found(path: str) -> tuple[str, str]:
        return _heading(path), groups[path]

    counts = [f"**{list(groups.values()).count(how)}**" for how in NUMPYS]
    lines = [f"| | {' | '.join(NUMPYS)} |", "|---|---|---|---|", f"| together | {' | '.join(counts)} |"]
    for heading in dict.fromkeys(_heading(path) for path in sorted(groups, key=lambda path: ("." in path, path))):
        cells = [
            " ".join(f"`{path.rpartition('.')[2]}`" for path in groups if found(path) == (heading, column))
            for column in NUMPYS
        ]
        if any(cells):
            lines.append(f"| {heading} | {' | '.join(cells)} |")
    own = ", ".join(f"`{path}`" for path, how in groups.items() if how == numpys.OWN)
    left = [f"| `{path}` | {reason} |" for path, reason in sorted(numpys.LEFT_OUT.items()) if path in groups]
    lines += ["", f"NumPy's own objects, the same ones here: {own}.", "", "Left out:", ""]
    return "\n".join([*lines, "| name | why |", "|---|---|", *left])


def _heading(path: str) -> str:
    """Return what a line of the table begins with: the module, or the first letter of a name of the main one."""
    return f"`np.{path.partition('.')[0]}`" if "." in path else path[0].lower()


def special_table() -> str:
    """Return the table of special functions, by what they are and whether they have a gradient, as Markdown."""
    lines = ["| | gradient | functions |", "|---|---|---|"]
    found: dict[tuple[str, str], list[str]] = {}
    for name, columns in specials.groups().items():
        without = specials.constants(name)
        found.setdefault(columns, []).append(f"`{name}`" + (f" (not by {', '.join(without)})" if without else ""))
    order = (specials.NATIVE, specials.COMPOSED, specials.LIBRARY)
    for how, gradient in sorted(found, key=lambda columns: (order.index(columns[0]), columns[1])):
        members = found[how, gradient]
        lines.append(f"| **{how}** ({len(members)}) | {gradient} | {' '.join(members)} |")
    return "\n".join(lines)


def counts_table() -> str:
    """Return how many functions are declared in each way, as Markdown."""
    ways = [declared(function.call) for function in functions()]
    lines = ["| declared as | functions |", "|---|---|"]
    lines += [f"| {way} | {ways.count(way)} |" for way in sorted(set(ways), key=ways.count, reverse=True)]
    return "\n".join([*lines, f"| together | {len(ways)} |"])
