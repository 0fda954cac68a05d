"""Properties of code: names that it looks up, also in strings, lists it appends to, whether it handles errors."""

from __future__ import annotations

import opcode
import re
import sys
from collections.abc import Iterable, Iterator, Sequence
from functools import lru_cache
from itertools import pairwise
from opcode import EXTENDED_ARG, opmap
from types import CodeType
from typing import Any

# Functions that look up attributes by name.
BY_NAME = frozenset(("delattr", "getattr", "hasattr", "setattr"))

# Names by which a function can find its globals as attributes of a module, or in a dict.
_NAMESPACES = frozenset(("__globals__", "__import__", "f_globals", "getmodule", "import_module", "modules"))

# The instructions of f-strings, of comparisons and look-ups, of globals, and of constants. Since Python 3.14 a look-up
# is a BINARY_OP, whose argument says so.
_FORMATS = frozenset(opmap[name] for name in ("FORMAT_VALUE", "FORMAT_SIMPLE", "FORMAT_WITH_SPEC") if name in opmap)
_COMPARES = frozenset(opmap[name] for name in ("COMPARE_OP", "CONTAINS_OP", "BINARY_SUBSCR") if name in opmap)
_LOADS_NAME = frozenset(opmap[name] for name in opmap if name.startswith("LOAD_") or name == "BINARY_SUBSCR")
_OPERATORS = [name for name, *_ in getattr(opcode, "_nb_ops", ())]
_LOOK_UP = (opmap["BINARY_OP"], _OPERATORS.index("NB_SUBSCR")) if "NB_SUBSCR" in _OPERATORS else None
_IMPORT_FROM = opmap["IMPORT_FROM"]
_GLOBALS = frozenset((_IMPORT_FROM, *(opmap[name] for name in opmap if "GLOBAL" in name or name.endswith("_NAME"))))
_CONSTANTS = frozenset(opmap[name] for name in ("LOAD_CONST", "LOAD_SMALL_INT") if name in opmap)


@lru_cache(maxsize=1024)
def attributes_of(code: CodeType) -> frozenset[str]:
    """Return the names that code mentions, with those of functions defined in it."""
    return frozenset(code.co_names).union(*[attributes_of(one) for one in code.co_consts if isinstance(one, CodeType)])


def _named_in(constant: Any, *, matches: bool) -> Iterable[str]:
    """Return the names in a constant of code: a string that is a name, or a dotted one, or has attributes in format
    fields; and the names in a tuple, if the code matches classes.
    """
    if matches and isinstance(constant, tuple):
        return [name for part in constant for name in _named_in(part, matches=matches)]
    if not isinstance(constant, str):
        return ()
    if constant.isidentifier():
        return (constant,)
    words = constant.split(".")
    if len(words) > 1 and all(map(str.isidentifier, words)):
        return words
    return re.findall(r"\.([^\W\d]\w*)(?=[^{}]*\})", constant) if "{" in constant else ()


@lru_cache(maxsize=1024)
def _steps_of(code: CodeType) -> list[tuple[int, int, Any]]:
    """Return the instructions of code, each with its number and its value: without the caches between them."""
    from dis import get_instructions

    return [(one.opcode, one.arg or 0, one.argval) for one in get_instructions(code) if one.opcode != EXTENDED_ARG]


@lru_cache(maxsize=1024)
def names_of(code: CodeType) -> frozenset[str]:
    """Return the names that code mentions, also as strings, with those of functions defined in it; "format" for code
    with f-strings; and "==" for code that compares with, or looks up by, a value that is no constant.
    """
    matches = opmap["MATCH_CLASS"] in [step for step, *_ in _steps_of(code)]
    texts = [name for one in code.co_consts for name in _named_in(one, matches=matches)]
    inner = [names_of(one) for one in code.co_consts if isinstance(one, CodeType)]
    shows = any(step in _FORMATS for step, *_ in _steps_of(code))
    compares = any(
        (one[:2] == _LOOK_UP or one[0] in _COMPARES)
        and (before[:2] == _LOOK_UP or before[0] in _LOADS_NAME - _CONSTANTS)
        for before, one in pairwise(_steps_of(code))
    )
    return frozenset([*code.co_names, *texts, *["format"] * shows, *["=="] * compares]).union(*inner)


@lru_cache(maxsize=1024)
def globals_of(code: CodeType) -> frozenset[str]:
    """Return the globals that code and functions in it look up or set, by name: all names that it mentions if it may
    reach its globals in another way.
    """
    if not _NAMESPACES.isdisjoint(names_of(code)):
        return names_of(code)
    names = frozenset([name for step, _, name in _steps_of(code) if step in _GLOBALS])
    return names.union(*[globals_of(one) for one in code.co_consts if isinstance(one, CodeType)])


@lru_cache(maxsize=1024)
def imports_from(code: CodeType) -> bool:
    """Return whether code imports names from modules, whose own names may be relative."""
    inner = [one for one in code.co_consts if isinstance(one, CodeType)]
    return _IMPORT_FROM in [step for step, *_ in _steps_of(code)] or any(map(imports_from, inner))


@lru_cache(maxsize=1024)
def logs_of(code: CodeType) -> tuple[frozenset[str], frozenset[str]]:
    """Return the names whose values code and functions in it append to, and the names used in any other way: also those
    in strings, by which attributes may be looked up.
    """
    from dis import get_instructions

    inner = [logs_of(one) for one in code.co_consts if isinstance(one, CodeType)]
    logs, otherwise = set[str](), set[str]()
    for one, following in pairwise(get_instructions(code)):
        if one.opname in ("LOAD_CLOSURE", "MAKE_CELL"):
            continue
        is_looked_up = one.opname in ("LOAD_ATTR", "LOAD_METHOD", "LOAD_GLOBAL", "LOAD_DEREF")
        if is_looked_up and _is_method(following) and following.argval == "append":
            logs.add(one.argval)
        else:
            otherwise.update(_words_in(one.argval))
    return frozenset(logs.union(*[one for one, _ in inner])), frozenset(otherwise.union(*[one for _, one in inner]))


def _is_method(instruction: Any) -> bool:
    """Return whether an instruction looks up a method to call it."""
    if sys.version_info < (3, 12):
        return bool(instruction.opname == "LOAD_METHOD")
    return bool(instruction.opname == "LOAD_ATTR" and instruction.arg & 1)


def _words_in(value: Any) -> Iterable[str]:
    """Return possible names in a string, or in strings in a tuple."""
    if isinstance(value, (tuple, frozenset)):
        return [word for part in value for word in _words_in(part)]
    return re.findall(r"\w+", value) if isinstance(value, str) else ()


def loads_of(code: CodeType) -> Iterator[tuple[str, str | None]]:
    """Yield the names that code and functions in it look up outside, each with the attribute that is taken of it: ""
    for none, None for an imported module, any attribute of which may be taken.
    """
    from dis import get_instructions  # loaded only for captured functions

    instructions, imported = [*get_instructions(code)], ""
    for one, following in zip(instructions, [*instructions[1:], None], strict=True):
        if one.opname in ("LOAD_GLOBAL", "LOAD_NAME", "LOAD_DEREF", "IMPORT_NAME"):
            taken = following is not None and following.opname in ("LOAD_ATTR", "LOAD_METHOD")
            attribute = str(following.argval) if following is not None and taken else ""
            yield one.argval, None if one.opname == "IMPORT_NAME" else attribute
        if one.opname == "IMPORT_NAME":
            imported = one.argval
        elif one.opname == "IMPORT_FROM":
            yield imported, one.argval
    for inner in code.co_consts:
        if isinstance(inner, CodeType):
            yield from loads_of(inner)


# Context managers that let errors through, and change nothing that a function finds.
_HARMLESS = frozenset(("catch_warnings", "errstate", "no_grad", "nullcontext", "options", "printoptions", "profile"))


@lru_cache(maxsize=1024)
def handles_errors(code: CodeType) -> bool:
    """Return whether code may go on after an error, or act on it: by `except` or `finally`, or in a `with` block,
    unless its context manager is known to be harmless.
    """
    if any(handles_errors(one) for one in code.co_consts if isinstance(one, CodeType)):
        return True
    if not code.co_exceptiontable:
        return False
    from dis import get_instructions

    instructions = [*get_instructions(code)]
    names = [one.opname for one in instructions]
    blocks = names.count("WITH_EXCEPT_START")
    known = sum([one.argval in _HARMLESS for one in instructions if one.opname.startswith("LOAD_")])
    return names.count("PUSH_EXC_INFO") > blocks or blocks > known


@lru_cache(maxsize=1024)
def makes_names(code: CodeType) -> bool:
    """Return whether code looks up attributes by names that are no string constants in it."""
    if any(makes_names(one) for one in code.co_consts if isinstance(one, CodeType)):
        return True
    if BY_NAME.isdisjoint(code.co_names):
        return False
    from dis import get_instructions

    instructions = [*get_instructions(code)]
    calls = [at for at, one in enumerate(instructions) if one.opname == "LOAD_GLOBAL" and one.argval in BY_NAME]
    return not all(_is_given_text(instructions[at + 1 :]) for at in calls)


def _is_given_text(instructions: Sequence[Any]) -> bool:
    """Return whether the second argument of a call is a string constant. instructions: those behind its function."""
    from dis import stack_effect

    depth, second = 0, None
    for one in instructions:
        if "CALL" in one.opname and one.arg == depth:
            return second is not None and second.opname.startswith("LOAD_CONST") and isinstance(second.argval, str)
        depth += stack_effect(one.opcode, one.arg, jump=False)
        if depth == 2:
            second = one
        if depth < 0:
            return False
    return False
