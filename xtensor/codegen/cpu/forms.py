"""What handmade kernels are made for, a dtype and the registers of a tile, and the lines of IR that they share."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import lru_cache
from typing import NamedTuple

from .compile import Host, the_host

TYPES = {"f": "float", "d": "double", "i": "i32", "q": "i64"}

# Bytes of a row of A in a block: 12 such rows take half of a nearest cache of 32 KB.
DEPTH_BYTES = 1536

# The most rows of a tile.
TALLEST = 12


def itemsize(char: str) -> int:
    return 4 if char in "fi" else 8


class Form(NamedTuple):
    """What a kernel is made for: registers of `lanes` numbers, and tiles of so many rows and registers.

    direct: whether B is read in place, which pays where few rows are multiplied with it; its columns are contiguous.
    turned: whether A is transposed, with adjacent rows, so that it is packed term by term. lies: if A is read in place
    and not packed, the elements from row to row of A, from term to term of A, and from term to term of B in a panel.
    """

    char: str
    lanes: int
    height: int
    registers: int
    direct: bool = False
    turned: bool = False
    lies: tuple[int, int, int] | None = None

    @property
    def kind(self) -> str:
        return TYPES[self.char]

    @property
    def integers(self) -> bool:
        """Whether it adds up integers, which wrap."""
        return self.char in "iq"

    @property
    def width(self) -> int:
        """The columns of a tile."""
        return self.lanes * self.registers

    @property
    def deepest(self) -> int:
        """The most terms in a block."""
        return DEPTH_BYTES // self.itemsize

    @property
    def leading(self) -> int:
        """The elements from row to row of a packed panel of A; copies may reach one register too far."""
        return self.deepest + self.lanes

    @property
    def steps(self) -> tuple[int, int, int]:
        """The elements from row to row of A, and from term to term of A and of B, as the sums read them."""
        packed = (1, self.together, self.width) if self.turned else (self.leading, 1, self.width)
        return self.lies or packed

    @property
    def keeps_columns(self) -> bool:
        """Whether a panel of columns stays near for all panels of rows, instead of these: where rows of A are read in
        place. B is read once, and a tile reads fewer numbers of A than of B for each term.
        """
        return self.lies is not None and self.lies[1] == 1

    @property
    def together(self) -> int:
        """The elements from term to term of a packed panel of a transposed A: whole registers."""
        return -(-TALLEST // self.lanes) * self.lanes

    @property
    def traffic(self) -> float:
        """An estimate of the time of a multiplication: panels of B come from the second cache, A from the first. As
        many loads as multiplications can be done at a time.
        """
        loads = 1 / self.height + 1 / self.registers
        return max(1, loads) + 1.5 / self.height + 0.25 / self.registers

    @property
    def itemsize(self) -> int:
        return itemsize(self.char)

    @property
    def room(self) -> int:
        """The elements of scratch memory besides a block of B: a panel of A, and a tile."""
        return max(TALLEST * self.leading, self.together * self.deepest) + TALLEST * self.width + self.lanes


def form_of(char: str, rows: int, columns: int, registers: int = 0, direct: bool = False) -> Form:
    """Return the form for a product on this machine: panels with as equal numbers of rows as possible, as many sums at
    a time as there are registers, and few wasted columns. registers: in a row of a tile, if given.
    """
    machine = the_host()
    return _form_for(machine, char, rows, columns, registers, direct)


@lru_cache(1024)
def _form_for(machine: Host, char: str, rows: int, columns: int, registers: int, direct: bool) -> Form:
    lanes = machine.vector_bytes // itemsize(char)
    few = machine.triple.startswith("x86") and machine.vector_bytes < 64  # 16 registers instead of 32
    forms = []
    for number in [registers] if registers else range(1, 4 if few else 6):
        # Registers hold the sums, a row of B, its masks if these need vector registers too, and an element of A.
        tallest = max(min(TALLEST, (15 if few else 31) // number - 1 - (direct and few)), 1)
        height = -(-rows // -(-rows // tallest))
        forms.append(Form(char, lanes, height, number, direct))
    return min(forms, key=lambda form: -(-columns // form.width) * form.width * form.traffic)


def declared(form: Form) -> set[str]:
    vector, suffix, mask = vector_of(form), suffix_of(form), f"<{form.lanes} x i1>"
    found = {
        f"declare {vector} @llvm.masked.load.{suffix}.p0(ptr, {mask}, {vector})",
        f"declare void @llvm.masked.store.{suffix}.p0({vector}, ptr, {mask})",
        "declare i64 @llvm.smin.i64(i64, i64)",
        "declare void @llvm.prefetch.p0(ptr, i32, i32, i32)",
    }
    return found | (set() if form.integers else {f"declare {vector} @llvm.fma.{suffix}({vector}, {vector}, {vector})"})


def vector_of(form: Form) -> str:
    return f"<{form.lanes} x {form.kind}>"


def suffix_of(form: Form) -> str:
    return f"v{form.lanes}{'i' if form.integers else 'f'}{8 * form.itemsize}"


def loads(pointers: Sequence[str], numbers: Sequence[str]) -> Iterator[str]:
    """Yield the lines that load the words of %table: pointers, then numbers."""
    for place, name in enumerate((*pointers, *numbers)):
        yield f"  %at.{name} = getelementptr i64, ptr %table, i64 {place}"
        yield f"  %{name} = load {'ptr' if name in pointers else 'i64'}, ptr %at.{name}"


def splat(name: str, kind: str, vector: str, lanes: int, of: str = "") -> list[str]:
    """Return the lines that broadcast %name, or the number `of`, to a vector %name.all."""
    return [
        f"  %{name}.one = insertelement {vector} poison, {kind} %{of or name}, i32 0",
        f"  %{name}.all = shufflevector {vector} %{name}.one, {vector} poison, <{lanes} x i32> zeroinitializer",
    ]


def first_lanes(form: Form, name: str, count: str) -> list[str]:
    """Return the lines that make %name the mask of the first lanes; count: of these, an i64."""
    lanes = form.lanes
    ints = f"<{lanes} x i32>"
    counting = ", ".join(f"i32 {lane}" for lane in range(lanes))
    return [
        f"  %{name}.n = trunc i64 {count} to i32",
        *splat(f"{name}.n", "i32", ints, lanes),
        f"  %{name} = icmp slt {ints} <{counting}>, %{name}.n.all",
    ]


def masked_load(form: Form, name: str, pointer: str, mask: str) -> str:
    vector = vector_of(form)
    given = f"ptr align {form.itemsize} {pointer}, <{form.lanes} x i1> {mask}, {vector} zeroinitializer"
    return f"  {name} = call {vector} @llvm.masked.load.{suffix_of(form)}.p0({given})"


def masked_store(form: Form, value: str, pointer: str, mask: str) -> str:
    given = f"{vector_of(form)} {value}, ptr align {form.itemsize} {pointer}, <{form.lanes} x i1> {mask}"
    return f"  call void @llvm.masked.store.{suffix_of(form)}.p0({given})"


def words_at(names: Sequence[str], base: str) -> Iterator[str]:
    """Yield the lines that load words from a pointer on."""
    for place, name in enumerate(names):
        yield f"  %{name}.p = getelementptr i64, ptr {base}, i64 {place}"
        yield f"  %{name} = load i64, ptr %{name}.p"


def multiply_add(form: Form, name: str, x: str, y: str, z: str) -> list[str]:
    """Return the lines that compute a vector x * y + z."""
    vector = vector_of(form)
    if form.integers:
        return [f"  {name}.x = mul {vector} {x}, {y}", f"  {name} = add {vector} {name}.x, {z}"]
    return [f"  {name} = call {vector} @llvm.fma.{suffix_of(form)}({vector} {x}, {vector} {y}, {vector} {z})"]
