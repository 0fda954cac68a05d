"""Captured programs: the lines after those that make the arguments, as one function under `xt.fuse`.

It is called three times, with other elements each time, with numbers among its arguments five times, with others each
time; its results and what it did to its arguments must be NumPy's. Of every other program the arguments are tensors, of
the others NumPy arrays: arguments, in a list that is one, or found in a dict. In the mode "dispatched" all are tensors,
some in a list, a dict or an object, which gets the results as well; the program finds the namespace as functions of
users' do, and machine code is told of its calls as soon as it can be.
"""

from __future__ import annotations

import random
import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from functools import lru_cache
from typing import Any

import numpy as np
import pytest

import xtensor as xt
from xtensor.calls import known as known_kinds
from xtensor.codegen.cpu import compile as compile_

from .kinds import Kind
from .maker import Maker, converts
from .sides import Ours, Side, data, differs, numbers, oracle_side, quiet

MODES: dict[str, dict[str, Any]] = {
    "interpret": {"engine": "interpret", "cache_dir": ""},
    "llvm": {"engine": "llvm", "cache_dir": ""},
    "auto": {"engine": "auto", "cache_dir": ""},
    "direct": {"engine": "direct", "cache_dir": ""},
    "dispatched": {"engine": "auto", "cache_dir": ""},
}
HELPED = ("diagonal", "pick", "apart", "host", "force")
HELPERS = re.compile(rf"\bxp\.({'|'.join(HELPED)})\(")
WAYS = ("tensors", "arrays", "tensors", "in a list", "tensors", "found")
PLAIN_WAYS = ("tensors", "in a list", "in an object", "in a dict", "tensors")
CALLS = 3
NUMBERS = {"n0": "({0} * 3 + 2) % 5", "n1": "{0} * 0.5 + 1.5"}  # by the call
MOST_CALLS = 5  # of one program, by whoever calls it
MADE = re.compile(r"v\d+ = xp\.asarray\((data|numbers)\((\d+),.*\), copy=True\)$")
NAMES = re.compile(r"v\d+")
BINDING = re.compile(r"(v\d+) = (.*)")
CAST = re.compile(r"v\d+ = xp\.astype\((v\d+), xp\.(\w+),")
ASSIGNED = re.compile(r"(v\d+)\[.*\] = xp\.apart\((v\d+)\)$")
IMPURE = re.compile(r"data\(|host|full|zeros|ones|\] [^=]?=|^del|^v\d+ [^=]+= |force")


class Held:
    """An object that has the arguments of a program."""


def parted(lines: list[str]) -> tuple[list[str], list[str]]:
    """Return the lines that make the arguments of a program, and the others."""
    made = 0
    while made < len(lines) and MADE.match(lines[made]):
        made += 1
    return lines[:made], lines[made:]


def pure_part(makers: list[str], body: list[str]) -> list[str]:
    """Return what of a body one result needs, without writes and what else may keep a function from being captured."""
    found: list[str] = []
    needed = {line.partition(" ")[0] for line in (makers + body)[-5:]}
    for line in reversed(without(makers, body, {line for line in body if IMPURE.search(line)})):
        target, _, rest = line.partition(" = ")
        if target in needed:
            needed = needed if found else set()
            needed.update(NAMES.findall(rest))
            found.insert(0, line)
    return found


def without(makers: list[str], body: list[str], dropped: set[str]) -> list[str]:
    """Return a body without some lines, and without those that read what these bind or bind anew."""
    found, bound = [], {*arguments(makers)}
    for line in body:
        binding = BINDING.match(line)
        target, read = (binding[1], binding[2]) if binding else ("", line)
        if line in dropped or not bound.issuperset(NAMES.findall(read)):
            bound.discard(target)
        else:
            bound.add(target)
            found.append(line)
    return found


def with_masks(maker: Maker, seed: int) -> list[str]:
    """Return statements that change, write and reduce what masks select of a program's variables.

    Products of complex numbers are those with whole numbers alone: of others NumPy rounds some in another way.
    """
    rng, found = random.Random(seed), []
    names = [name for name, x in maker.variables().items() if x.ndim and x.flags.writeable and x.dtype.kind in "ifc"]
    hosts = {line.partition(" ")[0] for line in maker.lines if "xp.host(" in line}
    names = [name for name in names if name not in hosts]  # NumPy's own arithmetic warns, which is an error here
    new = max([int(name[1:]) for name in maker.variables()], default=0)
    for name in names[:3]:
        x = maker.get(name)
        like = [one for one in names if maker.get(one).shape == x.shape and maker.get(one).dtype.kind != "c"]
        mask = f"{name} {rng.choice(['>', '<=', '!='])} {rng.choice(['0', '1', rng.choice(like or '2')])}"
        if x.dtype.kind == "c":
            mask = f"xp.{rng.choice(['real', 'imag'])}({name}) > {rng.choice('01')}"
        same = [one for one in like if maker.get(one).dtype == x.dtype]
        found.append(f"{name}[{mask}] {rng.choice('+-*')}= {rng.choice('123')}")
        if same:
            found.append(f"{name}[{mask}] = {name}[{mask}] {rng.choice('+-*')} {rng.choice(same)}[{mask}]")
        found.append(f"{name}[{mask}] = {rng.choice('0123')}")
        exact = ["any", "all", "count_nonzero", *(["sum", "prod", "mean"] if x.dtype.kind == "i" else [])]
        found.append(f"v{new + len(found)} = xp.{rng.choice(exact)}({name}[{mask}])")
    return found


def arrays_of(lines: list[str], maker: Maker, kinds: str) -> dict[str, Any]:
    """Return the arrays of some kinds that lines bind, by name: not those of NumPy's own, whose arithmetic warns, which
    is an error here.
    """
    bound = {line.partition(" ")[0] for line in lines}
    hosts = {line.partition(" ")[0] for line in maker.lines if "xp.host(" in line}
    found = {name: x for name, x in maker.variables().items() if name in bound and x.ndim and x.dtype.kind in kinds}
    return {name: x for name, x in found.items() if name not in hosts}


def with_numbers(lines: list[str], maker: Maker, seed: int) -> list[str]:
    """Return statements that compute with, compare and write numbers that are given, and elements of variables."""
    rng, found, every = random.Random(seed), [], arrays_of(lines, maker, "ifc")
    names = [*every]
    new = max([int(name[1:]) for name in maker.variables()], default=0) + 10  # those that statements with masks bind
    for name in rng.sample(names, min(3, len(names))):
        x, number = every[name], rng.choice(["n0", "n1", "(n0 + 1)", "(n1 - n0)", "(n1 * n0)"])
        new += 1
        choice = rng.choice(["n0 > 2", "n1 < 2.5 and n0", "n0 == 0", "min(n0, n1) > 1"])
        found.append(f"v{new} = {name} {rng.choice('+-*')} {number} if {choice} else {name} * n0")
        if x.dtype.kind != "c":
            found.append(f"v{new + 50} = xp.where({name} > n0, {name}, {rng.choice(['n0', name])})")
        if x.flags.writeable:
            found.append(f"{name} {rng.choice('+-*')}= n0")
            found.append(f"{name}[{rng.choice(['...', ':1', '::2'])}] = n0")
    return found


def with_factors(lines: list[str], maker: Maker, seed: int) -> list[str]:
    """Return statements that factorise square parts of matrices, of which some can be singular."""
    rng, found = random.Random(seed), []
    bound = {line.partition(" ")[0] for line in lines}
    every = [(name, x) for name, x in maker.variables().items() if name in bound and x.ndim > 1 and x.dtype.kind == "f"]
    new = max([int(name[1:]) for name in maker.variables()], default=0) + 200  # those of other statements are below
    for name, x in rng.sample(every, min(3, len(every))):
        n = min(x.shape[-2:])
        part, unit = f"{name}[..., :{n}, :{n}]", f"xp.eye({n}, dtype={name}.dtype)"
        regular = rng.choice([part, f"({part} + 3 * {unit})", f"xp.matrix_transpose({part})"])
        way = rng.choice(["solve({0}, {1})", "inv({0})", "det({0})", "slogdet({0})[1]", "cholesky(xp.abs({2}))"])
        call = way.format(regular, rng.choice([f"{name}[..., :{n}, :]", unit]), f"{unit} * {name}[..., :{n}, :{n}]")
        new += 1
        found.append(f"v{new} = xp.linalg.{call}")
        found.append(f"v{new + 50} = v{new} {rng.choice('+-*')} 2")
    return found


def with_branches(lines: list[str], maker: Maker, seed: int) -> list[str]:
    """Return statements that do one thing or another, depending on elements of variables."""
    rng, found, every = random.Random(seed), [], arrays_of(lines, maker, "if")
    names = [*every]
    new = max([int(name[1:]) for name in maker.variables()], default=0) + 300  # those of other statements are below
    for name in rng.sample(names, min(3, len(names))):
        other, new = rng.choice(names), new + 1
        choices = ["xp.any({0} > {2})", "xp.all({0} < {2})", "xp.sum({0} > 0) > xp.sum({1} > 0)", "xp.sum({1}) > {2}"]
        choice = rng.choice(["{}", "not {}"]).format(rng.choice(choices).format(name, other, rng.choice("123")))
        found.append(f"v{new} = {name} + 1 if {choice} else {name} * 2")
        if every[name].flags.writeable:
            found.append(f"if {choice}: {name} {rng.choice('+-*')}= 2")
    return found


def undecided(makers: list[str], body: list[str]) -> set[str]:
    """Return the lines by which elements become integers in a way that is left open, in any call."""
    found: set[str] = set()
    if not any(CAST.match(line) or ASSIGNED.match(line) for line in body):
        return found
    with quiet():
        for call in range(MOST_CALLS):
            side = oracle_side()
            for line in other_elements(makers, call) + numbers_of(body, call) + body:
                if is_decided(line, side.variables()):
                    side.step(line)
                else:
                    found.add(line)
    return found


def is_decided(line: str, variables: dict[str, Any]) -> bool:
    """Return whether a line converts elements in one way only."""
    if (cast := CAST.match(line)) and cast[1] in variables:
        return converts(variables[cast[1]], cast[2])
    if (assigned := ASSIGNED.match(line)) and variables.keys() >= {*assigned.groups()}:
        return converts(variables[assigned[2]], variables[assigned[1]].dtype)
    return True


def arguments(makers: Sequence[str]) -> list[str]:
    """Return the names that are bound by the lines that make the arguments."""
    return list(dict.fromkeys([line.partition(" ")[0] for line in makers]))


def numbers_of(body: Sequence[str], call: int) -> list[str]:
    """Return the lines that make the numbers that are given to a call."""
    used = {name for line in body for name in re.findall(r"\bn\d\b", line)}
    return [f"{name} = {rule.format(call)}" for name, rule in NUMBERS.items() if name in used]


def other_elements(makers: list[str], call: int) -> list[str]:
    """Return the lines that make the arguments of a later call."""
    return [re.sub(r"(data|numbers)\((\d+)", lambda found: f"{found[1]}({int(found[2]) + call}", one) for one in makers]


def function_of(
    names: list[str],
    body: list[str],
    ending: list[str],
    first: Sequence[str] = (),
    *,
    failing: Any = None,
    is_plain: bool = False,
) -> Callable[..., Any]:
    """Return lines as a function of variables, which goes on after a line that raises (but for want of memory).

    first: lines that come before. failing: the lines that may raise, None for all: functions that handle errors are
    captured less often. is_plain: whether it finds nothing but functions and the namespace.
    """
    text = [f"def program({', '.join(names)}):", *[f"    {line}" for line in first]]
    for line in body:
        if failing is not None and line not in failing:
            text.append(f"    {line}")
            continue
        text += [
            "    try:",
            f"        {line}",
            "    except MemoryError:",
            "        raise",
            "    except Exception:",
            "        pass",
        ]
    text += [f"    {line}" for line in ending]
    spread: dict[str, Any] = {"xp": Ours(), "data": data, "numbers": numbers, "FOUND": {}}
    if is_plain:
        spread |= {"xp": xt, **{name: getattr(Ours, name) for name in HELPED}}
        text = [HELPERS.sub(r"\1(", line) for line in text]
    exec("\n".join(text), spread)
    made: Callable[..., Any] = spread["program"]
    return made


def returning(names: list[str], body: list[str]) -> list[str]:
    """Return the last lines of a function that returns the new variable with the highest number, or all of them."""
    new = f"new = {{int(name[1:]): x for name, x in locals().items() if name[0] == 'v' and name not in {names}}}"
    found = "found = [new[number] for number in sorted(new)]"
    return [new, found, "return found" if len(body) % 2 else "return found[-1:]"]


@lru_cache(MOST_CALLS)
def expected(makers: tuple[str, ...], body: tuple[str, ...], call: int) -> tuple[list[Any], list[Any]]:
    """Return what NumPy makes of the arguments of a program, and its results; once for all modes."""
    side = oracle_side()
    with quiet():
        for line in makers:
            side.step(line)
        names = arguments(makers)
        given = [side.names[name] for name in names]
        for line in numbers_of(body, call) + list(body):
            side.step(line)
    new = {int(name[1:]): x for name, x in side.variables().items() if name not in names}
    found = [new[number] for number in sorted(new)]
    return given, found if len(body) % 2 else found[-1:]


@lru_cache(8)
def failing(makers: tuple[str, ...], body: tuple[str, ...]) -> frozenset[str]:
    """Return the lines of a program that raise with NumPy, in any call."""
    found: set[str] = set()
    with quiet():
        for call in range(MOST_CALLS):
            side = oracle_side()
            for line in [*other_elements(list(makers), call), *numbers_of(body, call), *body]:
                side.step(line)
                found.update([line] if side.errors[-1] is not None else [])
    return frozenset(found)


@contextmanager
def dispatched() -> Iterator[None]:
    """A block in which machine code is told of captured calls as soon as it can be, whatever library calls cost."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(known_kinds, "DISPATCHED_AFTER", 1)
        patch.setattr(known_kinds, "AGAIN_AFTER", 1)
        patch.setattr(known_kinds.Known, "_is_small", lambda *_: False)
        patch.setattr(compile_, "HOT_CALLS", 0)
        yield


def _fused(makers: list[str], body: list[str], way: str, *, is_plain: bool) -> tuple[Any, dict[str, Any]]:
    """Return a program under `xt.fuse`, and the dict in which it finds its arguments."""
    names, told = arguments(makers), [line.partition(" ")[0] for line in numbers_of(body, 0)]
    first = {
        "in a list": [f"{', '.join(names)}, = held"],
        "in a dict": [f"{name} = held['{name}']" for name in names],
        "in an object": [f"{name} = held.{name}" for name in names],
        "found": [f"{name} = xp.asarray(FOUND['{name}'])" for name in names],
    }
    own = {"tensors": names, "arrays": names, "found": []}.get(way, ["held"])
    may_raise = failing(tuple(makers), tuple(body))
    lines = returning(names + own, body)
    if way == "in an object":
        lines.insert(-1, "held.kept = found")
    program = function_of(own + told, body, lines, first.get(way, ()), failing=may_raise, is_plain=is_plain)
    return xt.fuse(program), program.__globals__["FOUND"]


def difference(lines: list[str], mode: str) -> str | None:
    """Return what a captured program gives that NumPy does not, None where they agree."""
    makers, body = parted(lines)
    names = arguments(makers)
    if not names:
        return None
    told = [line.partition(" ")[0] for line in numbers_of(body, 0)]
    is_plain = mode == "dispatched"
    ways = PLAIN_WAYS if is_plain else WAYS
    way = ways[len(body) % len(ways)]
    held = Held()
    with xt.options(**MODES[mode]), quiet(), dispatched() if is_plain else nullcontext():
        fused, found_in = _fused(makers, body, way, is_plain=is_plain)
        for call in range(MOST_CALLS if told or is_plain else CALLS):
            given, results = expected(tuple(other_elements(makers, call)), tuple(body), call)
            mine = Side(Ours(), lambda x: x)
            for line in other_elements(makers, call) + numbers_of(body, call):
                mine.step(line)
            args = [mine.names[name] for name in names]
            args = args if is_plain or way == "tensors" else [np.array(x, copy=True) for x in args]
            found_in.update(zip(names, args, strict=True))
            vars(held).update(zip(names, args, strict=True))
            given_as = {
                "tensors": args,
                "arrays": args,
                "in a list": [list(args)],
                "in a dict": [dict(zip(names, args, strict=True))],
                "in an object": [held],
                "found": [],
            }[way]
            try:
                found = fused(*given_as, *[mine.names[name] for name in told])
            except Exception as error:
                return f"call {call}: {type(error).__name__}: {error}"
            for where, ours, theirs in (("result", found, results), ("argument", args, given)):
                if len(ours) != len(theirs):
                    return f"call {call}: {len(ours)} results, NumPy {len(theirs)}"
                for place, (one, other) in enumerate(zip(ours, theirs, strict=True)):
                    what = differs(xt.asarray(one), other) if isinstance(one, (xt.Tensor, np.ndarray)) else ""
                    if what:
                        return f"call {call}: {where} {place}: {what}"
    return None


@lru_cache(8)
def made(seed: int) -> Maker:
    """Return the program of a seed; of every other one only what one result needs."""
    maker = Maker(seed, exact=True)
    makers, body = parted(maker.lines)
    if seed % 2:
        body = pure_part(makers, body)
    elif seed % 4:
        body = body + with_masks(maker, seed)
    if seed % 3 == 0:
        body = body + with_numbers(makers + body, maker, seed)
    if seed % 5 == 0:
        body = body + with_factors(makers + body, maker, seed)
    if seed % 7 < 2:
        body = body + with_branches(makers + body, maker, seed)
    open_ones = undecided(makers, body)
    maker.lines = makers + (without(makers, body, open_ones) if open_ones else body)
    return maker


CAPTURED = Kind("captured", tuple(MODES), lambda seed, mode: made(seed), difference)
