"""Running functions of LLVM IR with every access checked."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from .memory import BoundsError, Region, touch
from .text import Function, Instruction, Module, Type, anything
from .values import (
    ARITHMETIC,
    DATA,
    NEGATED,
    Pointer,
    Range,
    Value,
    add,
    any_of_width,
    bounds,
    compared,
    greatest,
    hull,
    lanewise,
    least,
    mul,
    ranged,
    signed,
    unsigned,
    within,
)


class UnknownError(Exception):
    """An instruction that this machine does not know, or an address of which nothing is known."""


class TooLongError(Exception):
    """More instructions than were allowed."""


class Machine:
    """Runs the functions of a module. way: where a condition that depends on elements goes, asked: whether there was
    one; most: instructions. place: what tells which memory an address is in, where addresses are numbers.
    """

    def __init__(
        self, module: Module, *, way: bool, most: int = 1 << 62, place: Callable[[int], Pointer] | None = None
    ) -> None:
        self.functions, self.way, self.left, self.place = module.functions, way, most, place
        self.asked = False
        self.globals: dict[str, Value] = {}
        for name, (nbytes, words) in module.globals.items():
            region = Region.of_bytes(f"@{name}", nbytes)
            region.words |= words
            self.globals[f"@{name}"] = Pointer(region, 0)

    def call(self, name: str, arguments: Sequence[Value]) -> Value:
        """Run a function; return what it returns. Raises BoundsError, UnknownError or TooLongError."""
        function = self.functions[name]
        registers = self.globals | function.constants
        registers.update(zip(function.parameters, arguments, strict=True))
        block, before = function.entry, ""
        while True:
            target = self._block(function, block, before, registers)
            if target is None:
                return registers.get("returned")
            block, before = target, block

    def _block(self, function: Function, block: str, before: str, registers: dict[str, Value]) -> str | None:
        """Run a block; return the next one, None at a function's end."""
        instructions = function.blocks[block]
        self.left -= len(instructions)
        if self.left < 0:
            raise TooLongError(function.name)
        here = [registers[one.operands[one.extra[before]]] for one in instructions if one.opcode == "phi"]
        for value, one in zip(here, instructions, strict=False):
            registers[one.result] = value
        for one in instructions[len(here) :]:
            if one.opcode == "br":
                return self._branch(one, registers)
            if one.opcode == "ret":
                registers["returned"] = registers[one.operands[0]] if one.operands else None
                return None
            step = _STEPS.get(one.opcode)
            if step is None:
                raise UnknownError(one.text)
            try:
                registers[one.result] = step(self, one, [registers[name] for name in one.operands])
            except BoundsError as error:
                raise BoundsError(f"{one.text}\n    {error}") from None
            except (KeyError, TypeError, AttributeError) as error:
                raise UnknownError(f"{one.text}: {error!r}") from error
        raise UnknownError(f"a block without an end: {block}")

    def _branch(self, one: Instruction, registers: dict[str, Value]) -> str:
        targets: tuple[str, ...] = one.extra
        if len(targets) == 1:
            return targets[0]
        condition = registers[one.operands[0]]
        if type(condition) is not int:
            self.asked = True
            condition = self.way
        return targets[0] if condition else targets[1]


Step = Callable[[Machine, Instruction, list[Value]], Value]
_STEPS: dict[str, Step] = {}


def step(*opcodes: str) -> Callable[[Step], Step]:
    """Enter what an opcode does."""

    def enter(function: Step) -> Step:
        _STEPS.update(dict.fromkeys(opcodes, function))
        return function

    return enter


# ---- numbers


@step(*ARITHMETIC)
def _arithmetic(machine: Machine, one: Instruction, given: list[Value]) -> Value:
    assert one.type is not None
    function, bits = ARITHMETIC[one.opcode], one.type.bits
    x, y = given
    if type(x) is int and type(y) is int:
        return function(x, y, bits)
    return lanewise(lambda x, y: function(x, y, bits), x, y)


@step("icmp")
def _icmp(machine: Machine, one: Instruction, given: list[Value]) -> Value:
    kind = one.types[0]
    assert kind is not None
    bits = 64 if kind.scalar == "ptr" else kind.bits
    return lanewise(lambda x, y: compared(one.extra, x, y, bits), *given)


@step("select")
def _select(machine: Machine, one: Instruction, given: list[Value]) -> Value:
    condition, *both = given[:3]
    if one.extra is not None:
        word, place = one.extra
        word = NEGATED.get(word, word) if place else word
        both[place] = lanewise(lambda x, y: within(word, x, y), both[place], given[3])
    return lanewise(lambda c, x, y: hull(x, y) if type(c) is not int else x if c else y, condition, *both)


@step("zext", "sext", "trunc", "bitcast", "ptrtoint", "inttoptr", "freeze")
def _cast(machine: Machine, one: Instruction, given: list[Value]) -> Value:
    (kind, to), (x,) = (one.types[0], one.type), given
    assert kind is not None and to is not None
    if kind == to or one.opcode == "freeze":
        return x
    if one.opcode == "bitcast" and kind.scalar == "i1" and type(x) in (int, list):
        return _bits_of(x if type(x) is list else [x] * kind.lanes)
    if one.opcode == "zext" and x is not DATA:
        return lanewise(lambda x: ranged(*unsigned(x, kind.bits)), x)
    if one.opcode == "sext":
        return lanewise(lambda x: -x if kind.bits == 1 and type(x) is int else _extended(x, kind.bits), x)
    if one.opcode == "trunc":
        return lanewise(lambda x: _cut(x, to.bits), x)
    return anything(to)


def _bits_of(lanes: list[int | Range]) -> Value:
    """Return a mask as an integer, the first lane its lowest bit: -1 where it holds all lanes."""
    if all(type(lane) is int for lane in lanes):
        return signed(sum((lane & 1) << n for n, lane in enumerate(lanes)), len(lanes))
    return Range(0, (1 << len(lanes) - 1) - 1) if lanes[-1] == 0 else any_of_width(len(lanes))


def _extended(x: int | Range, bits: int) -> int | Range:
    return Range(-1, 0) if bits == 1 else x


def _cut(x: int | Range, bits: int) -> int | Range:
    low, high = bounds(x)
    if low == high:
        return signed(low, bits)
    whole = Range(0, 1) if bits == 1 else any_of_width(bits)
    return x if whole.low <= low and high <= whole.high else whole


@step("fptosi", "fptoui", "fcmp", "sitofp", "uitofp")
def _converted(machine: Machine, one: Instruction, given: list[Value]) -> Value:
    return anything(one.type)


# ---- lanes


@step("insertelement")
def _insert(machine: Machine, one: Instruction, given: list[Value]) -> Value:
    vector, value, lane = given
    assert one.type is not None
    if value is DATA:
        return DATA
    lanes = list(vector) if type(vector) is list else [vector] * one.type.lanes
    lanes[lane] = value
    return lanes


@step("extractelement")
def _extract(machine: Machine, one: Instruction, given: list[Value]) -> Value:
    vector, lane = given
    return vector[lane] if type(vector) is list else vector


@step("shufflevector")
def _shuffle(machine: Machine, one: Instruction, given: list[Value]) -> Value:
    first, second, order = given
    if type(first) is not list and type(second) is not list:
        return hull(first, second) if first is not DATA else DATA
    kind = one.types[0]
    assert kind is not None
    both = [*_spread(first, kind.lanes), *_spread(second, kind.lanes)]
    return [both[lane if type(lane) is int else 0] for lane in order]


def _spread(x: Value, lanes: int) -> list[Value]:
    return x if type(x) is list else [x] * lanes


# ---- structures: the parts that they have by their places


@step("insertvalue")
def _insert_part(machine: Machine, one: Instruction, given: list[Value]) -> Value:
    return {**given[0], one.extra: given[1]}


@step("extractvalue")
def _extract_part(machine: Machine, one: Instruction, given: list[Value]) -> Value:
    return given[0].get(one.extra, anything(one.type))


# ---- memory


@step("getelementptr")
def _place(machine: Machine, one: Instruction, given: list[Value]) -> Value:
    base, *indices = given
    if len(indices) != 1:
        raise UnknownError(one.text)
    size = one.extra
    x = indices[0]
    if type(base) is Pointer and type(x) is int and type(base.offset) is int:
        return Pointer(base.region, base.offset + x * size)
    return lanewise(lambda p, i: Pointer(p.region, add(p.offset, mul(i, size, 64), 64)), base, x)


@step("alloca")
def _alloca(machine: Machine, one: Instruction, given: list[Value]) -> Value:
    (count,) = given or [1]
    return Pointer(Region.of_bytes(f"{one.result}, which it allocates", count * one.extra), 0)


@step("load")
def _load(machine: Machine, one: Instruction, given: list[Value]) -> Value:
    assert one.type is not None
    pointer = touch(given[0], one.type.nbytes, writes=False)
    assert pointer.region is not None
    kind = Type(one.type.scalar)
    found = None if kind.is_float else pointer.region.integers(pointer.offset, kind.nbytes, max(one.type.lanes, 1))
    if found is None:
        return anything(one.type)
    if kind.scalar == "ptr":
        found = [machine.place(x) if machine.place and type(x) is int else x for x in found]
    else:
        found = [_cut(x, kind.bits) if type(x) is int else x for x in found]
    return found if one.type.lanes else found[0]


@step("store")
def _store(machine: Machine, one: Instruction, given: list[Value]) -> Value:
    kind = one.types[0]
    assert kind is not None
    pointer = touch(given[1], kind.nbytes, writes=True)
    assert pointer.region is not None
    if kind.scalar in ("i64", "ptr") and not kind.lanes and type(pointer.offset) is int:
        pointer.region.words[pointer.offset] = given[0]
    return None


def _masked(pointers: Value, mask: Value, kind: Type, *, apart: bool, writes: bool) -> None:
    """Look at the lanes of a vector that a mask has, or may have. apart: whether each has a pointer of its own."""
    size = Type(kind.scalar).nbytes
    if apart and type(pointers) is not list:  # one that bounds them all
        touch(pointers, size, writes=writes)
        return
    wanted = _spread(mask, kind.lanes)
    if type(pointers) is Pointer and all(one != 0 for one in wanted):
        touch(pointers, size * kind.lanes, writes=writes)
        return
    for lane, one in enumerate(wanted):
        if one == 0:
            continue
        at = pointers[lane] if type(pointers) is list else pointers
        if type(pointers) is Pointer:
            at = Pointer(at.region, add(at.offset, lane * size, 64))
        touch(at, size, writes=writes)


def _copy(into: Value, source: Value, nbytes: Value) -> None:
    """Copy so many bytes, and what is known of the words in them."""
    assert type(nbytes) is int
    there, here = touch(source, nbytes, writes=False), touch(into, nbytes, writes=True)
    assert there.region is not None and here.region is not None and type(here.offset) is int
    words = there.region.integers(there.offset, 8, nbytes // 8)
    here.region.words |= {here.offset + 8 * n: word for n, word in enumerate(words or ())}


# ---- calls

_QUIET = ("@llvm.prefetch", "@llvm.x86.sse.sfence", "@llvm.lifetime", "@llvm.assume")


@step("call")
def _call(machine: Machine, one: Instruction, given: list[Value]) -> Value:
    name: str = one.extra
    if name.startswith(("@llvm.masked.load", "@llvm.masked.gather")):
        assert one.type is not None
        _masked(given[0], given[1], one.type, apart="gather" in name, writes=False)
        return anything(one.type)
    if name.startswith(("@llvm.masked.store", "@llvm.masked.scatter")):
        kind = one.types[0]
        assert kind is not None
        _masked(given[1], given[2], kind, apart="scatter" in name, writes=True)
        return None
    if name.startswith(("@llvm.smin", "@llvm.smax")):
        choose, kind = (least if "smin" in name else greatest), one.type
        assert kind is not None
        return lanewise(lambda x, y: choose(x, y, kind.bits), *given)
    if name.startswith("@llvm.memcpy"):
        _copy(given[0], given[1], given[2])
        return None
    if name.startswith(_QUIET):
        return None
    if name.startswith("@llvm.vector.reduce"):
        return anything(one.type)
    if name[:1] == "@" and name[1:] in machine.functions:
        return machine.call(name[1:], given)
    raise UnknownError(one.text)
