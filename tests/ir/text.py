"""LLVM IR as LLVM prints it, made into functions, blocks and instructions.

Instructions that only compute numbers in floating point are left out: no address depends on them but through a
conversion or a comparison, whose results may be anything.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import cached_property
from typing import Any, NamedTuple

import llvmlite.binding as llvm

from .values import ANY_BIT, DATA, Pointer, Range, Value, any_of_width

SIZES = {"i1": 1, "i8": 1, "i16": 2, "i32": 4, "i64": 8, "half": 2, "float": 4, "double": 8, "ptr": 8}
FLOATS = ("half", "float", "double")
TOUCHING = ("load", "store", "call")

_TYPED_EACH = ("select", "insertelement", "extractelement", "shufflevector")

_VECTOR = re.compile(r"<(\d+) x (.+)>$")
_ARRAY = re.compile(r"\[(\d+) x (.+)\]$")
_LOCAL = re.compile(r"(?:%[\w.$-]+|%\"[^\"]+\")$")
_FUNCTION = re.compile(r"define [^@]*@([\w.]+)\((.*?)\)[^{]*\{\n(.*?)\n\}", re.DOTALL)
_GLOBAL = re.compile(r"^@([\w.]+) = .*?(?:constant|global) (.*)$", re.MULTILINE)
_LABEL = re.compile(r"([\w.$-]+):")
_SILENT = re.compile(r"@llvm\.(?!masked)")
_SAID = re.compile(r"(?:align \d+|noundef|nonnull|captures\(none\)) ?")
_ON_NUMBERS = ("nuw", "nsw", "exact", "nneg", "disjoint", "samesign", "fast", "reassoc", "nnan", "nsz")
_FLAGS = {*_ON_NUMBERS, "inbounds", "nusw", "tail", "volatile", "atomic"}


class Type(NamedTuple):
    """A scalar's type and how many of them there are: 0 for what is no vector. bits: of an integer."""

    scalar: str
    lanes: int = 0

    @property
    def nbytes(self) -> int:
        """The bytes in memory."""
        return SIZES[self.scalar] * max(self.lanes, 1)

    @property
    def bits(self) -> int:
        """The bits of an integer."""
        return int(self.scalar[1:])

    @property
    def is_float(self) -> bool:
        """Whether it is one of floating point."""
        return self.scalar in FLOATS


class Instruction(NamedTuple):
    """result: the register it gives, "" for none. operands: registers, constants and names of functions or blocks, as
    keys of what a function's registers hold. extra: a comparison's word, the type that a getelementptr counts in.
    """

    result: str
    opcode: str
    type: Type | None
    operands: tuple[str, ...]
    types: tuple[Type | None, ...]
    extra: Any
    text: str


class Function(NamedTuple):
    """Its parameters, its blocks by name, the first one's name, and what its constants and left out results are."""

    name: str
    parameters: tuple[str, ...]
    blocks: dict[str, list[Instruction]]
    entry: str
    constants: dict[str, Value]


def type_of(text: str) -> Type:
    """Return a type that is written out; an array is a vector in memory, a structure one by its text."""
    text = text.strip()
    if text[0] == "{":
        return Type(text)
    found = _VECTOR.match(text) or _ARRAY.match(text)
    if not found:
        return Type(text)
    inner = type_of(found[2])
    return Type(inner.scalar, int(found[1]) * max(inner.lanes, 1))


def parts_of(text: str, sign: str = ",") -> list[str]:
    """Return what is between commas that are in no brackets."""
    found, depth, begin = [], 0, 0
    for at, one in enumerate(text):
        depth += (one in "<[({") - (one in ">])}")
        if one == sign and not depth:
            found.append(text[begin:at].strip())
            begin = at + 1
    return [*found, text[begin:].strip()] if text.strip() else []


def typed(text: str) -> tuple[Type, str]:
    """Return an operand's type and its text, without what is said of a parameter."""
    kind, *rest = parts_of(text, " ")
    return type_of(kind), _SAID.sub("", " ".join(rest))


class Module:
    """A module that LLVM has parsed and found to be well formed."""

    def __init__(self, source: str) -> None:
        module = llvm.parse_assembly(source)
        module.verify()
        self.text = str(module)

    @cached_property
    def functions(self) -> dict[str, Function]:
        """The functions that are defined here."""
        return {name: _Reader(*found).function for name, *found in self._found()}

    def _found(self) -> Iterator[tuple[str, str, str, str]]:
        for found in _FUNCTION.finditer(self.text):
            yield found[1], found[1], found[2], found[3]

    @cached_property
    def globals(self) -> dict[str, tuple[int, dict[int, Value]]]:
        """The bytes of each global constant or variable, and its integers by where they lie."""
        found = {}
        for name, rest in _GLOBAL.findall(self.text):
            kind, values, *_ = parts_of(rest.split(", align")[0], " ")
            made = type_of(kind)
            words = [] if made.is_float or values[0] != "[" else [typed(one)[1] for one in parts_of(values[1:-1])]
            size = Type(made.scalar).nbytes
            zeros = {} if made.is_float or words else dict.fromkeys(range(0, made.nbytes, size), 0)
            found[name] = made.nbytes, zeros | {size * at: _number(word) for at, word in enumerate(words)}
        return found


class _Reader:
    """Reads one function."""

    def __init__(self, name: str, parameters: str, body: str) -> None:
        self.constants: dict[str, Value] = {}
        self.comparisons: dict[str, tuple[str, tuple[str, ...]]] = {}
        blocks: dict[str, list[Instruction]] = {}
        here = blocks.setdefault("", [])
        for line in body.splitlines():
            label = _LABEL.match(line)
            if label:
                here = blocks.setdefault(label[1], [])
            elif line.strip():
                here += self.instruction(line.strip().split(", !")[0])
        names = tuple([typed(one)[1] for one in parts_of(parameters)])
        self.function = Function(name, names, blocks, next(name for name, one in blocks.items() if one), self.constants)

    def instruction(self, line: str) -> list[Instruction]:
        """Return a line as an instruction, as none where it only computes in floating point."""
        result, _, rest = line.partition(" = ") if line.startswith("%") else ("", "", line)
        words = [word for word in parts_of(rest, " ") if word not in _FLAGS]
        opcode, rest = words[0], " ".join(words[1:])
        read = getattr(self, f"_{opcode}", self._plain)
        made: Instruction = read(result, opcode, rest)._replace(text=line)
        kind = made.type
        data = opcode == "fcmp" or opcode[:2] == "fp" or (kind is not None and kind.is_float)
        silent = opcode not in TOUCHING or (opcode == "call" and _SILENT.match(made.extra))
        if data and result and silent:
            self.constants[result] = anything(made.type)
            return []
        return [made]

    def operand(self, kind: Type, text: str) -> str:
        """Return the key of an operand; what it holds if it is a constant is entered."""
        if _LOCAL.match(text):
            return text
        key = f"{kind.scalar} {kind.lanes} {text}"
        if text[:1] == "@" or kind.scalar in ("label", "metadata"):
            return text
        self.constants[key] = _constant(kind, text)
        return key

    def _operands(self, texts: list[str]) -> tuple[tuple[str, ...], tuple[Type, ...]]:
        pairs = [typed(text) for text in texts]
        return tuple([self.operand(*pair) for pair in pairs]), tuple([kind for kind, _ in pairs])

    # ---- kinds of lines

    def _plain(self, result: str, opcode: str, rest: str) -> Instruction:
        """Return what has a type and operands of it, or of types of their own."""
        if " to " in rest:
            return self._cast(result, opcode, rest)
        parts = parts_of(rest)
        kind = typed(parts[0])[0] if parts and parts[0] != "void" else None
        if kind is None:
            return Instruction(result, opcode, None, (), (), None, "")
        if opcode not in _TYPED_EACH:
            parts[1:] = [f"{_written(kind)} {one}" for one in parts[1:]]
        operands, kinds = self._operands(parts)
        given = Type(kinds[0].scalar) if opcode == "extractelement" else kinds[opcode == "select"]
        if opcode == "shufflevector":
            given = Type(kinds[0].scalar, kinds[2].lanes)
        return Instruction(result, opcode, given, operands, kinds, None, "")

    def _cast(self, result: str, opcode: str, rest: str) -> Instruction:
        given, _, to = rest.rpartition(" to ")
        operands, kinds = self._operands([given])
        return Instruction(result, opcode, type_of(to), operands, kinds, None, "")

    def _icmp(self, result: str, opcode: str, rest: str) -> Instruction:
        word, _, rest = rest.partition(" ")
        plain = self._plain(result, opcode, rest)
        assert plain.type is not None
        self.comparisons[result] = word, plain.operands
        return plain._replace(type=Type("i1", plain.type.lanes), extra=word)

    _fcmp = _icmp

    def _select(self, result: str, opcode: str, rest: str) -> Instruction:
        """Return a choice; where one of the two is what its condition compares, with what that is compared with."""
        plain = self._plain(result, opcode, rest)
        condition, *both = plain.operands
        if condition in self.comparisons:
            word, (x, y) = self.comparisons[condition]
            if x in both:
                return plain._replace(operands=(*plain.operands, y), extra=(word, both.index(x)))
        return plain

    def _getelementptr(self, result: str, opcode: str, rest: str) -> Instruction:
        counted, base, *indices = parts_of(rest)
        operands, kinds = self._operands([base, *indices])
        lanes = max(kind.lanes for kind in kinds)
        return Instruction(result, opcode, Type("ptr", lanes), operands, kinds, type_of(counted).nbytes, "")

    def _load(self, result: str, opcode: str, rest: str) -> Instruction:
        kind, place, *_ = parts_of(rest)
        operands, kinds = self._operands([" ".join(parts_of(place, " ")[:2])])
        return Instruction(result, opcode, type_of(kind), operands, kinds, None, "")

    def _store(self, result: str, opcode: str, rest: str) -> Instruction:
        operands, kinds = self._operands(parts_of(rest)[:2])
        return Instruction(result, opcode, None, operands, kinds, None, "")

    def _alloca(self, result: str, opcode: str, rest: str) -> Instruction:
        kind, *more = parts_of(rest)
        more = [one for one in more if not one.startswith("align ")]
        operands, kinds = self._operands(more)
        return Instruction(result, opcode, Type("ptr"), operands, kinds, type_of(kind).nbytes, "")

    def _br(self, result: str, opcode: str, rest: str) -> Instruction:
        parts = parts_of(rest)
        labels = tuple([one.removeprefix("label %") for one in parts[-2:]]) if len(parts) > 1 else ()
        if not labels:
            return Instruction("", opcode, None, (), (), (rest.removeprefix("label %"),), "")
        operands, kinds = self._operands(parts[:1])
        return Instruction("", opcode, None, operands, kinds, labels, "")

    def _phi(self, result: str, opcode: str, rest: str) -> Instruction:
        words = parts_of(rest, " ")
        kind = type_of(words[0])
        pairs = [parts_of(one[1:-1]) for one in parts_of(" ".join(words[1:]))]
        operands = tuple([self.operand(kind, value) for value, _ in pairs])
        labels = {block.removeprefix("%"): place for place, (_, block) in enumerate(pairs)}
        return Instruction(result, opcode, kind, operands, (kind,) * len(pairs), labels, "")

    def _call(self, result: str, opcode: str, rest: str) -> Instruction:
        while (kind := parts_of(rest, " ")[0]) in _ON_NUMBERS:  # as in arithmetic
            rest = rest[len(kind) + 1 :]
        name, _, inside = rest[len(kind) + 1 :].partition("(")
        texts = parts_of(inside[: inside.rindex(")")])
        operands, kinds = self._operands(texts)
        returned = None if kind == "void" else type_of(kind)
        return Instruction(result, opcode, returned, operands, kinds, name, "")

    def _insertvalue(self, result: str, opcode: str, rest: str) -> Instruction:
        whole, part, place = parts_of(rest)
        operands, kinds = self._operands([whole, part])
        return Instruction(result, opcode, kinds[0], operands, kinds, int(place), "")

    def _extractvalue(self, result: str, opcode: str, rest: str) -> Instruction:
        whole, place = parts_of(rest)
        operands, kinds = self._operands([whole])
        parts = parts_of(kinds[0].scalar[1:-1])
        return Instruction(result, opcode, type_of(parts[int(place)]), operands, kinds, int(place), "")

    def _ret(self, result: str, opcode: str, rest: str) -> Instruction:
        operands, kinds = self._operands([] if rest == "void" else [rest])
        return Instruction("", opcode, None, operands, kinds, None, "")


def _written(kind: Type) -> str:
    return f"<{kind.lanes} x {kind.scalar}>" if kind.lanes else kind.scalar


def anything(kind: Type | None) -> Value:
    """Return what is known of a value of a type of which nothing is known."""
    if kind is None or kind.is_float or kind.scalar == "ptr":
        return DATA
    if kind.scalar[0] == "{":
        return {}
    return ANY_BIT if kind.scalar == "i1" else any_of_width(kind.bits)


def _constant(kind: Type, text: str) -> Value:
    """Return what a constant is."""
    if kind.is_float or text in ("poison", "undef", ""):
        return anything(kind)
    if text == "null":
        return Pointer(None, 0)
    if text == "zeroinitializer":
        one: Value = Pointer(None, 0) if kind.scalar == "ptr" else 0
        return [one] * kind.lanes if kind.lanes else one
    if text.startswith("splat"):
        return [_number(typed(text[7:-1])[1])] * kind.lanes
    if text.startswith("<"):
        return [_number(typed(one)[1]) for one in parts_of(text[1:-1])]
    return _number(text)


def _number(text: str) -> Value:
    if text in ("poison", "undef"):
        return Range(0, 0)
    return {"true": 1, "false": 0}[text] if text in ("true", "false") else int(text)
