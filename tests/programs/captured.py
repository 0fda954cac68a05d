"""Captured programs: the lines after those that make the arguments, as one function under `xt.fuse`.

It is called three times, with other elements each time; its results and what it did to its arguments must be NumPy's.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import Any

import xtensor as xt

from .kinds import Kind
from .maker import Maker
from .sides import Ours, Side, data, differs, numbers, oracle_side, quiet

MODES: dict[str, dict[str, Any]] = {
    "interpret": {"engine": "interpret", "cache_dir": ""},
    "llvm": {"engine": "llvm", "cache_dir": ""},
}
CALLS = 3
MADE = re.compile(r"v\d+ = xp\.asarray\((data|numbers)\((\d+),.*\), copy=True\)$")
IMPURE = re.compile(r"data\(|host|full|zeros|ones|\] [^=]?=|^del|^v\d+ [^=]+= |force")


def parted(lines: list[str]) -> tuple[list[str], list[str]]:
    """Return the lines that make the arguments of a program, and the others."""
    made = 0
    while made < len(lines) and MADE.match(lines[made]):
        made += 1
    return lines[:made], lines[made:]


def pure_part(lines: list[str], body: list[str]) -> list[str]:
    """Return what of a body one result needs, without writes and what else may keep a function from being captured."""
    found: list[str] = []
    needed = {line.partition(" ")[0] for line in lines[-5:]}
    for line in reversed([line for line in body if not IMPURE.search(line)]):
        target, _, rest = line.partition(" = ")
        if target in needed:
            needed = needed if found else set()
            needed.update(re.findall(r"v\d+", rest))
            found.insert(0, line)
    return found


def arguments(makers: Sequence[str]) -> list[str]:
    """Return the names that are bound by the lines that make the arguments."""
    return list(dict.fromkeys([line.partition(" ")[0] for line in makers]))


def other_elements(makers: list[str], call: int) -> list[str]:
    """Return the lines that make the arguments of a later call."""
    return [re.sub(r"(data|numbers)\((\d+)", lambda found: f"{found[1]}({int(found[2]) + call}", one) for one in makers]


def function_of(names: list[str], body: list[str], ending: list[str]) -> Callable[..., Any]:
    """Return lines as a function of variables, which goes on after a line that raises (but for want of memory)."""
    text = [f"def program({', '.join(names)}):"]
    for line in body:
        text += [
            "    try:",
            f"        {line}",
            "    except MemoryError:",
            "        raise",
            "    except Exception:",
            "        pass",
        ]
    text += [f"    {line}" for line in ending]
    spread: dict[str, Any] = {"xp": Ours(), "data": data, "numbers": numbers}
    exec("\n".join(text), spread)
    made: Callable[..., Any] = spread["program"]
    return made


def returning(names: list[str], body: list[str]) -> list[str]:
    """Return the last lines of a function that returns the new variable with the highest number, or all of them."""
    new = f"new = {{int(name[1:]): x for name, x in locals().items() if name[0] == 'v' and name not in {names}}}"
    found = "found = [new[number] for number in sorted(new)]"
    return [new, found, "return found" if len(body) % 2 else "return found[-1:]"]


@lru_cache(CALLS)
def expected(makers: tuple[str, ...], body: tuple[str, ...]) -> tuple[list[Any], list[Any]]:
    """Return what NumPy makes of the arguments of a program, and its results; once for all modes."""
    side = oracle_side()
    with quiet():
        for line in makers:
            side.step(line)
        names = arguments(makers)
        given = [side.names[name] for name in names]
        for line in body:
            side.step(line)
    new = {int(name[1:]): x for name, x in side.variables().items() if name not in names}
    found = [new[number] for number in sorted(new)]
    return given, found if len(body) % 2 else found[-1:]


def difference(lines: list[str], mode: str) -> str | None:
    """Return what a captured program gives that NumPy does not, None where they agree."""
    makers, body = parted(lines)
    names = arguments(makers)
    if not names:
        return None
    with xt.options(**MODES[mode]):
        fused = xt.fuse(function_of(names, body, returning(names, body)))
        for call in range(CALLS):
            given, results = expected(tuple(other_elements(makers, call)), tuple(body))
            mine = Side(Ours(), lambda x: x)
            for line in other_elements(makers, call):
                mine.step(line)
            args = [mine.names[name] for name in names]
            found = fused(*args)
            for where, ours, theirs in (("result", found, results), ("argument", args, given)):
                if len(ours) != len(theirs):
                    return f"call {call}: {len(ours)} results, NumPy {len(theirs)}"
                for place, (one, other) in enumerate(zip(ours, theirs, strict=True)):
                    what = differs(one, other) if isinstance(one, xt.Tensor) else ""
                    if what:
                        return f"call {call}: {where} {place}: {what}"
    return None


@lru_cache(8)
def made(seed: int) -> Maker:
    """Return the program of a seed; of every other one only what one result needs."""
    maker = Maker(seed, exact=True)
    if seed % 2:
        makers, body = parted(maker.lines)
        maker.lines = makers + pure_part(maker.lines, body)
    return maker


CAPTURED = Kind("captured", tuple(MODES), lambda seed, mode: made(seed), difference)
