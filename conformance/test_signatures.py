"""Every signature beside the standard's: the same names, kinds and defaults, in the same order.

xtensor may have more keyword-only parameters, if they have defaults. The stubs are parsed, not imported.
"""

from __future__ import annotations

import ast
import inspect
from collections.abc import Iterator
from inspect import Parameter
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import suite as conformance_suite

NO_DEFAULT = Parameter.empty


class Param(NamedTuple):
    """One parameter, as far as callers can tell."""

    name: str
    kind: Any
    default: Any = NO_DEFAULT

    def __repr__(self) -> str:
        default = "" if self.default is NO_DEFAULT else f"={self.default!r}"
        return f"{self.name}{default} ({self.kind.description})"

    def same_as(self, other: Param) -> bool:
        """Whether two parameters agree; 0, 0.0 and False are three different defaults."""
        return repr(self) == repr(other)


def stub_params(function: ast.FunctionDef) -> list[Param]:
    """Return the parameters of a parsed stub, without self."""
    given = function.args
    positional = [(arg, Parameter.POSITIONAL_ONLY) for arg in given.posonlyargs]
    positional += [(arg, Parameter.POSITIONAL_OR_KEYWORD) for arg in given.args]
    required = len(positional) - len(given.defaults)
    defaults = [None] * required + list(given.defaults)
    params = [Param(arg.arg, kind, value_of(d)) for (arg, kind), d in zip(positional, defaults, strict=True)]
    if given.vararg:
        params.append(Param(given.vararg.arg, Parameter.VAR_POSITIONAL))
    for arg, default in zip(given.kwonlyargs, given.kw_defaults, strict=True):
        params.append(Param(arg.arg, Parameter.KEYWORD_ONLY, value_of(default)))
    return [param for param in params if param.name != "self"]


def value_of(default: ast.expr | None) -> Any:
    """Return the value of a default; all of the standard's are literals."""
    return NO_DEFAULT if default is None else ast.literal_eval(default)


def our_params(function: Any) -> list[Param]:
    """Return the parameters of one of our functions, without self."""
    found = inspect.signature(function).parameters.values()
    return [Param(p.name, p.kind, p.default) for p in found if p.name != "self"]


def stub_functions(file: Path) -> Iterator[ast.FunctionDef]:
    """Yield the public functions of a stub file."""
    tree = ast.parse(file.read_text(encoding="utf-8"))
    assigned = [node for node in tree.body if isinstance(node, ast.Assign)]
    public = next(ast.literal_eval(a.value) for a in assigned if ast.unparse(a.targets[0]) == "__all__")
    yield from (node for node in tree.body if isinstance(node, ast.FunctionDef) and node.name in public)


def stub_methods(file: Path) -> Iterator[ast.FunctionDef]:
    """Yield the methods of the array object's stub."""
    tree = ast.parse(file.read_text(encoding="utf-8"))
    array = next(node for node in tree.body if isinstance(node, ast.ClassDef))
    for node in array.body:
        if isinstance(node, ast.FunctionDef) and not node.decorator_list and node.name != "__init__":
            yield node


def all_stubs(stubs: Path) -> Iterator[tuple[str, ast.FunctionDef]]:
    """Yield every function of the standard with the place where a namespace has it."""
    for file in sorted(stubs.glob("*_functions.py")):
        yield from (("", function) for function in stub_functions(file))
    for extension in ("linalg", "fft"):
        yield from ((extension, function) for function in stub_functions(stubs / f"{extension}.py"))
    for function in stub_functions(stubs / "info.py"):
        yield ("" if function.name.startswith("__") else "info"), function
    yield from (("array", function) for function in stub_methods(stubs / "array_object.py"))


def cases() -> list[Any]:
    """Return a test case per function, or one that is skipped because there is no suite."""
    try:
        found = conformance_suite.find()
    except conformance_suite.SuiteError as error:
        return [pytest.param("", None, id="no suite", marks=pytest.mark.skip(reason=str(error)))]
    stubs = all_stubs(found.stubs)
    return [pytest.param(where, stub, id=f"{where}.{stub.name}".strip(".")) for where, stub in stubs]


def owner(where: str) -> Any:
    """Return what holds the functions of a place: the namespace, an extension, the info object, the array."""
    import xtensor

    if where == "info":
        return xtensor.__array_namespace_info__()
    if where == "array":
        return type(xtensor.asarray(0.0))
    return getattr(xtensor, where) if where else xtensor


@pytest.mark.parametrize(("where", "stub"), cases())
def test_signature(where: str, stub: ast.FunctionDef) -> None:
    """Compare one function with its stub."""
    function = getattr(owner(where), stub.name, None)
    assert function is not None, f"{stub.name} is missing"
    expected, found = stub_params(stub), our_params(function)
    names = {param.name for param in expected}
    shared = [param for param in found if param.name in names]
    extra = [param for param in found if param.name not in names]
    same = len(shared) == len(expected) and all(map(Param.same_as, shared, expected))
    assert same, f"{stub.name}: the standard has {expected}, xtensor has {found}"
    bad = [param for param in extra if param.kind != Parameter.KEYWORD_ONLY or param.default is NO_DEFAULT]
    assert not bad, f"{stub.name}: {bad} must be keyword-only with defaults, the standard has {expected}"
