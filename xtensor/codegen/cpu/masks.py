"""Masked stores on processors where they are slow: those of whole registers become plain ones, behind a branch.

With registers of 32 bytes a masked store is some twenty instructions of microcode on AMD's processors, and takes eight
times as long as a plain one. Most masks have all lanes: only those of the last columns and rows of a result lack some.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

_STORE = re.compile(
    r"\s*call void @llvm\.masked\.store\.\w+\.p0\((?P<vector><(?P<lanes>\d+) x \w+>) (?P<value>\S+), "
    r"ptr (align (?P<align>\d+) )?(?P<place>%[\w.]+), (i32 (?P<old>\d+), )?<\d+ x i1> (?P<mask>%[\w.]+)\)"
)
_LABEL = re.compile(r"([\w.]+):")
_INCOMING = re.compile(r"%([\w.]+)( ?\])")


def branched(text: str) -> str:
    """Return the IR with a branch at each masked store, to a plain store if the mask has all lanes."""
    lines: list[str] = []
    for number, part in enumerate(re.split(r"(?m)^(?=define )", text)):
        lines += _function(part.split("\n")) if number else [part.rstrip("\n")]
    return "\n".join(lines)


def _function(lines: list[str]) -> Iterator[str]:
    """Yield the lines of a function; a block with such stores ends in a block of another name, which phis must use."""
    ends: dict[str, str] = {}
    label, made, number = "", [], 0
    for line in lines:
        begins, store = _LABEL.match(line), _STORE.match(line)
        if begins:
            label = begins.group(1)
        if store is None:
            made.append(line)
            continue
        ends[label] = f"masked{number}.done"
        made += _either(number, line, **store.groupdict())
        number += 1
    for line in made:
        phi = " phi " in line
        yield _INCOMING.sub(lambda found: f"%{ends.get(found[1], found[1])}{found[2]}", line) if phi else line


def _either(
    number: int, line: str, vector: str, lanes: str, value: str, align: str, place: str, old: str, mask: str
) -> list[str]:
    """Return the lines of one store: a branch to a plain store, or to the masked one."""
    own = f"masked{number}"
    return [
        f"  %{own}.bits = bitcast <{lanes} x i1> {mask} to i{lanes}\n  %{own}.all = icmp eq i{lanes} %{own}.bits, -1",
        f"  br i1 %{own}.all, label %{own}.whole, label %{own}.part\n{own}.whole:",
        f"  store {vector} {value}, ptr {place}, align {align or old}\n  br label %{own}.done\n{own}.part:",
        f"{line}\n  br label %{own}.done\n{own}.done:",
    ]
