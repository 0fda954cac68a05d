"""The table of derivative rules: what stands in the rows, read from their source.

No Sphinx here: the tests use this file too.
"""

from __future__ import annotations

import ast
import inspect
import re
from collections.abc import Iterator
from pathlib import Path
from types import FunctionType
from typing import Any, NamedTuple

import pages

import xtensor as xt
from xtensor.autograd.rules import RULES, Pull, Rule

PACKAGE = Path(inspect.getfile(xt)).parent
MACHINERY = ("base", "storage", "devices", "graph", "run", "tensor", "autograd.tape", "calls")
SWITCHES = ("view", "elementwise")  # what `differentiable` takes beside rules


class Written(NamedTuple):
    """The rule of one argument. chapter: of the function. text: the rule, as it stands in the row.

    slope: whether it is the derivative itself. keeps: the values that it asks for.
    """

    function: str
    chapter: str
    argument: str
    text: str
    slope: bool
    keeps: tuple[str, ...]


def table() -> str:
    """Return the rules of every public function, as Markdown."""
    lines = ["| function | argument | derivative | cotangent | keeps |", "|---|---|---|---|---|"]
    for rule in written():
        cells = ("", f"`{rule.text}`") if not rule.slope else (f"`{rule.text}`", "")
        lines.append(f"| {rule.function} | `{rule.argument}` | {' | '.join(cells)} | {', '.join(rule.keeps)} |")
    return "\n".join(lines)


def written() -> list[Written]:
    """Return the rules of all public functions in the order of the chapters."""
    texts, found = sources(), []
    for shown, chapter, rule, call in ruled():
        for argument, pull in rule.pulls.items():
            text = texts.get((rule.name, argument), "")
            if not text or text == getattr(pull.function, "__name__", None):
                text = fallback(pull)
            found.append(Written(shown, chapter, argument, text, pull.slope, keeps(pull, call)))
    return found


def ruled() -> Iterator[tuple[str, str, Rule, Any]]:
    """Yield what a function with a rule is called in the table, its chapter, the rule and the function."""
    seen: set[str] = set()
    for name, chapter, call in pages.functions():
        rule = rule_of(call)
        if rule is not None and rule.name not in seen and rule.pulls:
            seen.add(rule.name)
            yield f"{{py:func}}`{name} <xtensor.{name}>`", chapter, rule, call
    for name, shown in (("getitem", "`x[key]`"), ("setitem", "`x[key] = value`")):
        if name in RULES:
            yield shown, "Indexing", RULES[name], None


def rule_of(call: Any) -> Rule | None:
    """Return the rule of a function, None where it has none."""
    op = getattr(call, "op", None)
    rule: Rule | None = getattr(call, "rule", None) if op is None else op.rule
    return rule


def keeps(pull: Pull, call: Any) -> tuple[str, ...]:
    """Return which of the names that a rule asks for are arrays: those are kept."""
    parameters = inspect.signature(call).parameters if call is not None else {}
    return tuple(
        name
        for name in pull.takes
        if name == "y" or (name in parameters and re.search("Tensor|Operand", str(parameters[name].annotation)))
    )


def fallback(pull: Pull) -> str:
    """Return a rule that is no expression in a decorator: the function's name and what it asks for."""
    if not callable(pull.function):
        return str(pull.function)
    return f"{getattr(pull.function, '__name__', 'rule')}({', '.join(pull.takes)})"


def helpers() -> dict[str, str]:
    """Return the source of the functions that rules are made of, by the file they stand in."""
    found: dict[FunctionType, None] = {}
    waiting = [pull.function for _, _, rule, _ in ruled() for pull in rule.pulls.values()]
    while waiting:
        function = waiting.pop(0)
        if not is_helper(function) or function in found:
            continue
        found[function] = None
        waiting += [function.__globals__.get(name) for name in pages.names_in(function.__code__)]
    files: dict[str, list[str]] = {}
    for function in sorted(found, key=lambda one: (one.__module__, one.__code__.co_firstlineno)):
        if function.__name__ != "<lambda>":
            name = function.__module__.replace(".", "/") + ".py"
            files.setdefault(name, []).append(inspect.getsource(function).rstrip())
    return {name: "\n\n".join(texts) for name, texts in files.items()}


def is_helper(function: Any) -> bool:
    """Return whether something is a function of rules, neither public nor of the machinery."""
    if not isinstance(function, FunctionType) or hasattr(function, "__wrapped__"):
        return False
    package, _, room = function.__module__.partition(".")
    return package == xt.__name__ and not f"{room}.".startswith(tuple(f"{name}." for name in MACHINERY))


# ---- the rows, read


def sources() -> dict[tuple[str, str], str]:
    """Return the text of every rule in the package by function and argument."""
    found: dict[tuple[str, str], str] = {}
    for file in sorted(PACKAGE.rglob("*.py")):
        text = file.read_text(encoding="utf-8")
        for node in ast.walk(ast.parse(text)):
            if isinstance(node, ast.FunctionDef):
                for argument, rule in rules_over(node):
                    found[node.name, argument] = tidy(text, rule)
    return found


def rules_over(function: ast.FunctionDef) -> Iterator[tuple[str, ast.expr]]:
    """Yield arguments and rules that stand in the decorators of a function."""
    names = [parameter.arg for parameter in (*function.args.posonlyargs, *function.args.args)]
    for call in function.decorator_list:
        if not isinstance(call, ast.Call) or not isinstance(call.func, ast.Name):
            continue
        for given in call.keywords:
            if given.arg == "derivative":
                several = given.value.elts if isinstance(given.value, ast.Tuple) else [given.value]
                yield from zip(names, several, strict=False)
            elif call.func.id == "differentiable" and given.arg and given.arg not in SWITCHES:
                yield given.arg, given.value


def tidy(text: str, rule: ast.expr) -> str:
    """Return a rule in one line: of a lambda what it returns, of a function its name and parameters."""
    shown = ast.get_source_segment(text, rule.body if isinstance(rule, ast.Lambda) else rule) or ast.unparse(rule)
    shown = re.sub(r"\bxt\.", "", re.sub(r"\s+", " ", shown)).replace("( ", "(").replace(" )", ")")
    return shown.replace("|", r"\|")
