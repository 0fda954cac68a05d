"""What programs covered: operations by dtypes, by layouts and by engines, as a table."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable, Mapping
from typing import Any

LAYOUTS = ("scalar", "empty", "packed", "transposed", "reversed", "repeated", "strided")
OPERATION = re.compile(r"xp\.(\w+)|(\*\*|//|<<|>>|<=|>=|==|!=|[-+*/%&|^<>~]|\babs)=?(?= ?[-(\w~])|(\] =)|(\w\[)")
VARIABLE = re.compile(r"\bv\d+\b")
HELPERS = {"asarray", "apart", "host", "force", "pick", "bool", "key"}
DTYPE = re.compile(r"u?int\d+|float\d+|complex\d+")
SPELLED = {"] =": "setitem"}


def layout_of(x: Any) -> str:
    """Return the kind of an array's layout, in one word."""
    if not x.size or not x.ndim:
        return "scalar" if x.size else "empty"
    moving = [(n, step) for n, step in zip(x.shape, x.strides, strict=True) if n > 1]
    if any(step == 0 for _, step in moving):
        return "repeated"
    if any(step < 0 for _, step in moving):
        return "reversed"
    if x.flags.c_contiguous:
        return "packed"
    return "transposed" if x.flags.f_contiguous else "strided"


def operations(line: str) -> set[str]:
    """Return the operations of a line: functions by name, operators and assignments as they are written."""
    _, equals, value = line.partition(" = ")
    found = set()
    for function, sign, write, read in OPERATION.findall(value if equals and not line.startswith("del") else line):
        name = function or sign or SPELLED.get(write) or ("getitem" if read else "")
        if name and name not in HELPERS and not DTYPE.fullmatch(name):
            found.add(name)
    if re.match(r"v\d+\[.*\] = ", line):
        found.add("setitem")
    update = re.match(r"v\d+(\[.*\])? (\*\*|//|<<|>>|[-+*/%&|^])= ", line)
    if update:
        found.add(update[2] + "=")
    return found


class Coverage:
    """What was computed on what. modes: how many programs ran in each."""

    def __init__(self) -> None:
        self.dtypes: dict[str, set[str]] = defaultdict(set)
        self.layouts: dict[str, set[str]] = defaultdict(set)
        self.times: dict[str, int] = defaultdict(int)
        self.modes: dict[str, int] = defaultdict(int)

    def note(self, line: str, variables: Mapping[str, Any]) -> None:
        """Count a line that is about to run, over these variables."""
        read = [variables[name] for name in VARIABLE.findall(line) if name in variables]
        for operation in operations(line):
            self.times[operation] += 1
            self.dtypes[operation].update(str(x.dtype) for x in read)
            self.layouts[operation].update(map(layout_of, read))

    def add(self, other: Coverage, modes: Iterable[str]) -> None:
        """Count what other programs covered, which ran in these modes."""
        for mode in modes:
            self.modes[mode] += 1
        for operation, times in other.times.items():
            self.times[operation] += times
            self.dtypes[operation] |= other.dtypes[operation]
            self.layouts[operation] |= other.layouts[operation]

    def summary(self) -> str:
        """Return it as a table: operations, how often, on how many dtypes, on which layouts; then the modes."""
        lines = [f"{'operation':18}{'lines':>9}{'dtypes':>8}  layouts"]
        for operation, times in sorted(self.times.items(), key=lambda item: -item[1]):
            lies = " ".join(one for one in LAYOUTS if one in self.layouts[operation])
            lines.append(f"{operation:18}{times:9}{len(self.dtypes[operation]):8}  {lies}")
        pairs = sum(len(d) * len(self.modes) for d in self.dtypes.values())
        places = sum(len(d) * len(self.modes) for d in self.layouts.values())
        modes = ", ".join(f"{mode} {count}" for mode, count in self.modes.items())
        lines.append(f"{pairs} of operation x dtype x mode, {places} of operation x layout x mode; programs: {modes}")
        return "\n".join(lines)
