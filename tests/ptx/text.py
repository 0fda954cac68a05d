"""PTX text, as NVRTC writes it, made into functions of instructions with numbered registers.

The grammar is the subset that the compiler emits: tables and shared variables of a module, device functions with
parameters in `.param` space, kernels, nested scopes, labels, predicates, vectors and addresses.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np

DTYPES = {
    "pred": np.dtype(bool),
    **{
        f"{kind}{8 * size}": np.dtype(f"{code}{size}")
        for kind, code in (("s", "i"), ("u", "u"), ("b", "u"))
        for size in (1, 2, 4, 8)
    },
    "f16": np.dtype("f2"),
    "f32": np.dtype("f4"),
    "f64": np.dtype("f8"),
}
SPACES = ("global", "shared", "const", "local", "param")


class Register(NamedTuple):
    """A register of a function: its number and the type it was declared with, as unsigned bits."""

    slot: int
    bits: np.dtype


class Number(NamedTuple):
    """A literal: a Python integer, or the bits of a floating-point number with their width in bytes."""

    value: int
    float_bytes: int = 0


class Symbol(NamedTuple):
    """The address of a variable, plus a number of bytes."""

    name: str
    offset: int = 0


class Address(NamedTuple):
    """A place in memory: a register, symbol or number, plus a number of bytes."""

    base: Register | Symbol | Number
    offset: int


class Special(NamedTuple):
    """A special register such as `%tid.x`."""

    name: str


class Vector(NamedTuple):
    """Several operands in braces; None is the sink `_`."""

    items: tuple[Operand | None, ...]


class Pair(NamedTuple):
    """Two results, written `a|b`."""

    first: Operand | None
    second: Operand | None


class Negated(NamedTuple):
    """A predicate written `!p`."""

    register: Register


Operand = Register | Number | Symbol | Address | Special | Vector | Pair | Negated


class Variable(NamedTuple):
    """A declared variable: where it lies in its space, how long it is, and its initial bytes."""

    name: str
    space: str
    offset: int
    size: int
    align: int
    data: bytes | None = None


@dataclass
class Instruction:
    """One instruction; `parts` is the opcode split at its dots, `target` the counter a branch goes to."""

    parts: list[str]
    operands: list[Operand]
    guard: tuple[Register, bool] | None
    line: int
    text: str
    cuda_line: int
    label: str = ""
    callee: tuple[tuple[str, ...], str, tuple[str, ...]] | None = None
    targets: list[int] = field(default_factory=list)

    def where(self) -> str:
        """Say where the instruction stands."""
        source = f", line {self.cuda_line} of the CUDA source" if self.cuda_line else ""
        return f"line {self.line} of the PTX{source}: {self.text}"


@dataclass
class Function:
    """A kernel or a device function."""

    name: str
    entry: bool
    params: list[Variable]
    returns: list[Variable]
    most_threads: int = 0
    code: list[Instruction] = field(default_factory=list)
    variables: dict[str, Variable] = field(default_factory=dict)
    registers: list[np.dtype] = field(default_factory=list)
    local_bytes: int = 0
    shared: list[str] = field(default_factory=list)  # declarations of its shared variables
    shared_bytes: int = 0  # of a kernel: all static shared memory


def bits_of(dtype: np.dtype) -> np.dtype:
    """Return the unsigned integer type of the same width; predicates stay what they are."""
    return dtype if dtype.kind == "b" else np.dtype(f"u{dtype.itemsize}")


def aligned(offset: int, align: int) -> int:
    """Round an offset up to an alignment."""
    return -(-offset // align) * align


# Statements


def cleaned(text: str) -> str:
    """Take out comments and debugging sections, keeping the lines; end line directives with a semicolon."""
    blank = lambda match: re.sub(r"[^\n]", "", match.group())  # noqa: E731
    text = re.sub(r"//[^\n]*|/\*.*?\*/", blank, text, flags=re.DOTALL)
    text = re.sub(r"^\s*\.section[^{]*\{[^}]*\}", blank, text, flags=re.DOTALL | re.MULTILINE)
    return re.sub(r"^(\s*\.(?:version|target|address_size|file|loc)\b[^\n;]*)$", r"\1;", text, flags=re.MULTILINE)


def statements(text: str) -> Iterator[tuple[int, str, str]]:
    """Yield (line, text, what) of each statement; what is label, open, close, header or statement."""
    position, lines = 0, 1
    blank, label, end = re.compile(r"\s*"), re.compile(r"([$%\w]+)\s*:(?!:)"), re.compile(r"[;{]")
    while True:
        stop = blank.match(text, position).end()
        lines += text.count("\n", position, stop)
        position = stop
        if position == len(text):
            return
        if text[position] in "{}":
            found, what, stop = "", "open" if text[position] == "{" else "close", position + 1
        elif match := label.match(text, position):
            found, what, stop = match.group(1), "label", match.end()
        else:
            stop = end.search(text, position).start()
            what = (
                "header" if text[stop] == "{" and re.search(r"\.(entry|func)\b", text[position:stop]) else "statement"
            )
            if what == "statement":
                stop = text.index(";", position)
            found = text[position:stop]
            stop += what == "statement"
        yield lines, " ".join(found.split()), what
        lines += text.count("\n", position, stop)
        position = stop


def variable(declaration: str, space: str, offset: int) -> Variable:
    """Read a declaration such as `.align 8 .b8 name[16] = {...}`, which lies at or after an offset."""
    head, _, initial = declaration.partition("=")
    words = head.split(".ptr")[0].split()
    name, _, count = head.split()[-1].partition("[")
    dtype = next(DTYPES[word[1:]] for word in words if word[1:] in DTYPES)
    align = int(words[words.index(".align") + 1]) if ".align" in words else dtype.itemsize
    length = count.rstrip("]")
    size = dtype.itemsize * (int(length or 0) if count else 1)
    data = None
    if initial:
        numbers = [literal(word.strip()).value for word in initial.strip(" {}").split(",")]
        data = b"".join((number % 2 ** (8 * dtype.itemsize)).to_bytes(dtype.itemsize, "little") for number in numbers)
        data = data.ljust(size, b"\0")
    return Variable(name, space, aligned(offset, align), size, align, data)


def parameters(text: str) -> list[Variable]:
    """Read the declarations between the parentheses of a header; offsets are those of one block of bytes."""
    found: list[Variable] = []
    for declaration in filter(None, (part.strip() for part in text.split(","))):
        end = found[-1].offset + found[-1].size if found else 0
        found.append(variable(declaration, "param", end))
    return found


def header(text: str) -> Function:
    """Read the head of a kernel or device function."""
    match = re.search(r"\.(entry|func)\s*(?:\(([^)]*)\))?\s*([$\w]+)\s*(?:\(([^)]*)\))?(.*)$", text)
    word, returns, name, params, rest = match.groups()
    limit = re.search(r"\.maxntid ([\d, ]+)", rest)
    most = int(np.prod([int(number) for number in limit.group(1).split(",")])) if limit else 0
    return Function(name, word == "entry", parameters(params or ""), parameters(returns or ""), most)


def literal(text: str) -> Number:
    """Read a number."""
    if match := re.fullmatch(r"0[fFdD]([0-9a-fA-F]+)", text):
        return Number(int(match.group(1), 16), len(match.group(1)) // 2)
    return Number(int(text.rstrip("U"), 0))


# Functions


class Body:
    """Reads the statements of one function: scopes, declarations and instructions."""

    def __init__(self, function: Function) -> None:
        self.function = function
        self.scopes: list[dict[str, np.dtype]] = []  # the brace of the body opens the first
        self.names: list[dict[str, str]] = []  # of the scope's own variables: what they are called in the function
        self.scope_ids: list[int] = []
        self.slots: dict[tuple[int, str], Register] = {}
        self.unique = 0
        self.labels: dict[str, int] = {}
        self.latest = ""
        self.tables: dict[str, list[str]] = {}
        self.cuda_line = 0
        self.known: dict[
            str, Operand | None
        ] = {}  # operands, as long as no name is declared and no scope begins or ends

    def declare(self, text: str) -> None:
        """Enter a `.reg`, `.param`, `.local` or `.shared` declaration in the innermost scope."""
        space, rest = text[1:].split(maxsplit=1)
        self.known.clear()
        if space == "reg":
            word, names = rest.split(maxsplit=1)
            for name in names.split(","):  # `%r<19>` declares the family `%r<`
                self.scopes[-1][re.sub(r"<\d+>$", "<", name.strip())] = bits_of(DTYPES[word[1:]])
        elif space == "shared":
            self.function.shared.append(rest)
        else:
            self._place(space, rest)

    def _place(self, space: str, rest: str) -> None:
        function = self.function
        found = variable(rest, space, function.local_bytes if space == "local" else 0)
        self.unique += 1
        inner = found.name if len(self.scopes) == 1 else f"{found.name}@{self.unique}"
        self.names[-1][found.name] = inner
        function.variables[inner] = found._replace(name=inner)
        if space == "local":
            function.local_bytes = found.offset + found.size

    def name(self, name: str) -> str:
        """Return what a variable of the innermost scope that knows it is called in the function."""
        return next((names[name] for names in reversed(self.names) if name in names), name)

    def register(self, name: str) -> Register | None:
        """Return the register of a name, None if none was declared."""
        match = re.fullmatch(r"(.*?)(\d+)", name)
        family = f"{match.group(1)}<" if match else name
        for scope, number in zip(reversed(self.scopes), reversed(self.scope_ids), strict=True):
            declared = next((key for key in (name, family) if key in scope), None)
            if declared is not None:
                return self._slot(number, name, scope[declared])
        return None

    def _slot(self, scope: int, name: str, bits: np.dtype) -> Register:
        if (scope, name) not in self.slots:
            self.slots[scope, name] = Register(len(self.function.registers), bits)
            self.function.registers.append(bits)
        return self.slots[scope, name]

    def operand(self, text: str) -> Operand | None:
        """Return one operand, read before or now."""
        if text not in self.known:
            self.known[text] = self._operand(text)
        return self.known[text]

    def _operand(self, text: str) -> Operand | None:
        if text == "_":
            return None
        if text[0] == "{":
            return Vector(tuple(self.operand(part.strip()) for part in text[1:-1].split(",")))
        if text[0] == "[":
            return self._address(text[1:-1].strip())
        if "|" in text:
            return Pair(*(self.operand(part.strip()) for part in text.split("|")))
        if text[0] == "!":
            return Negated(self.register(text[1:].strip()))
        return self._simple(text)

    def _simple(self, text: str) -> Register | Number | Symbol | Special:
        if found := self.register(text):
            return found
        if text[0] in "-0123456789":
            return literal(text)
        if text[0] == "%" or text == "WARP_SZ":
            return Special(text)
        name, _, offset = text.partition("+")
        return Symbol(self.name(name.strip()), int(offset or 0))

    def _address(self, text: str) -> Address:
        match = re.fullmatch(r"([^+\s]+)\s*(?:\+\s*(-?\d+))?", text)
        return Address(self._simple(match.group(1)), int(match.group(2) or 0))

    def instruction(self, line: int, text: str) -> None:
        """Read one instruction and add it to the function's code."""
        match = re.fullmatch(r"(?:@(!?)([%$\w]+)\s+)?(\S+)\s*(.*)", text)
        negated, guard, opcode, rest = match.groups()
        condition = (self.register(guard), bool(negated)) if guard else None
        made = Instruction(opcode.split("."), [], condition, line, text, self.cuda_line)
        if made.parts[0] == "call":
            made.callee = self._call(rest)
        elif made.parts[0] in ("bra", "brx"):
            *operands, made.label = split(rest)
            made.operands = [self.operand(operand) for operand in operands]
        else:
            made.operands = [self.operand(operand) for operand in split(rest)]
        self.function.code.append(made)

    def _call(self, rest: str) -> tuple[tuple[str, ...], str, tuple[str, ...]]:
        match = re.fullmatch(r"(?:\(([^)]*)\)\s*,\s*)?([$\w%]+)\s*(?:,\s*\(([^)]*)\))?", rest)
        if match is None:
            raise NotImplementedError(f"call through a pointer: {rest}")
        returns, name, params = match.groups()
        lists = [
            tuple(self.name(part.strip()) for part in (group or "").split(",") if part.strip())
            for group in (returns, params)
        ]
        return lists[0], name, lists[1]

    def statement(self, line: int, text: str) -> None:
        """Read one statement of the body."""
        if text.startswith(".loc "):
            self.cuda_line = int(text.split()[2])
        elif text.startswith(".branchtargets"):
            self.tables[self.latest] = [part.strip() for part in text.split(maxsplit=1)[1].split(",")]
        elif text.startswith((".reg", ".param", ".local", ".shared")):
            self.declare(text)
        elif not text.startswith(".pragma"):
            self.instruction(line, text)

    def add(self, line: int, text: str, what: str) -> bool:
        """Take one more statement; False once the body has ended."""
        if what == "label":
            self.labels[text] = len(self.function.code)
            self.latest = text
        elif what == "open":
            self.known.clear()
            self.unique += 1
            self.scopes.append({})
            self.names.append({})
            self.scope_ids.append(self.unique)
        elif what == "close":
            self.known.clear()
            self.scopes.pop()
            self.names.pop()
            self.scope_ids.pop()
        else:
            self.statement(line, text)
        return bool(self.scopes)

    def finish(self) -> None:
        """Give the branches their targets."""
        for instruction in self.function.code:
            if instruction.label:
                names = self.tables.get(instruction.label, [instruction.label])
                instruction.targets = [self.labels[name] for name in names]


def split(text: str) -> list[str]:
    """Split operands at the commas that stand outside braces and brackets."""
    return [part.strip() for part in re.split(r",(?![^{\[]*[}\]])", text) if part.strip()]


@dataclass
class Program:
    """A module: its functions and its variables outside of functions."""

    functions: dict[str, Function] = field(default_factory=dict)
    variables: dict[str, Variable] = field(default_factory=dict)
    shared: list[str] = field(default_factory=list)  # declarations of shared variables that all kernels have


def parse(text: str) -> Program:
    """Return the functions and variables of a module."""
    program = Program()
    body: Body | None = None
    for line, statement, what in statements(cleaned(text)):
        if body is None and what == "header":
            body = Body(header(statement))
        elif body is not None:
            if not body.add(line, statement, what):
                body.finish()
                program.functions[body.function.name] = body.function
                body = None
        elif what == "statement":
            _declare(program, statement)
    _place_shared(program)
    return program


def _declare(program: Program, statement: str) -> None:
    """Enter a variable of the module; declarations of functions and directives say nothing."""
    match = re.match(r"(?:\.(?:visible|extern|weak)\s+)*\.(global|const|shared)\s+(.*)$", statement)
    if not match:
        return
    space, rest = match.groups()
    if space == "shared" and ".extern" not in statement:
        program.shared.append(rest)
    else:
        found = variable(rest, space, 0)
        program.variables[found.name] = found._replace(size=0) if space == "shared" else found


def _place_shared(program: Program) -> None:
    """Place static shared variables: those of the module and of device functions, and behind them a kernel's own."""
    common = program.shared + [one for f in program.functions.values() if not f.entry for one in f.shared]
    end = _placed(common, program.variables, 0)
    for function in program.functions.values():
        if function.entry:
            function.shared_bytes = _placed(function.shared, function.variables, end)


def _placed(declarations: list[str], variables: dict[str, Variable], end: int) -> int:
    """Enter variables one after the other; return where the last one ends."""
    for declaration in declarations:
        found = variable(declaration, "shared", end)
        variables[found.name] = found
        end = found.offset + found.size
    return end
