"""Loads and stores of the elements of an iteration: of vectors, whole or under a mask, for all layouts of operands.

Contiguous elements are one load of a vector; others have an address each. A complex number is two numbers side by side:
a vector of them is one of twice as many numbers, which is split into parts when it is loaded.
"""

from __future__ import annotations

from itertools import pairwise
from typing import NamedTuple

from ...base.dtypes import DType, real_of
from ...plan.program import Program
from ...storage.pool import ALIGNMENT
from . import complex as pairs
from .complex import Complex, Value, count_of, named, parts_of
from .vector import BOOL, Vector, Writer

# How an operand lies along the innermost axis: contiguous, the same element throughout, any other stride, or such a
# stride but contiguous along the axis before it.
PACKED, SAME, STRIDED, CROSSWISE = "packed", "same", "strided", "crosswise"


class Form(NamedTuple):
    """The facts besides the program on which code depends.

    lanes: elements per vector. depth: nested loops. lie: how each operand (inputs, outputs) lies along the innermost
    axis. streams: whether outputs bypass the caches, in whole vectors that begin where memory is aligned.
    fetches: the packed inputs that are prefetched further ahead at each load; one more slot says how far.
    strip: whether rows are parts of a strip of columns: prefetches go row by row then, and the caller of the code waits
    for stores that bypass the caches. roomy: the operands that have room for a whole vector at their end, and need no
    masks (values stored under a mask are slow to load again at once). brief: whether there is to be one loop for whole
    and partial iterations, however few the steps are.
    """

    lanes: int
    depth: int
    lie: tuple[str, ...]
    streams: bool = False
    fetches: tuple[int, ...] = ()
    strip: bool = False
    roomy: tuple[int, ...] = ()
    brief: bool = False


def memory_type(dtype: DType) -> str:
    """Return the LLVM type of one element in memory; booleans are bytes there, complex numbers vectors of two."""
    if dtype.kind == "c":
        return f"<2 x {memory_type(real_of(dtype))}>"
    if dtype.kind == "f":
        return {4: "float", 8: "double"}[dtype.itemsize]
    return f"i{8 * dtype.itemsize}"


def slots_of(kind: str) -> int:
    """Return how many slots of 8 bytes a value of a type takes."""
    return 2 if kind == "<2 x double>" else 1


class Moves:
    """The text of loads and stores while it is written.

    lines: where the text goes. pointers: for each input and output, the name of the pointer to its row.
    """

    def __init__(self, program: Program, form: Form, contract: bool, lines: list[str]) -> None:
        self.program = program
        self.form = form
        self.lines: list[str] = lines
        self.pointers: list[str] = []
        self.writer = Writer(form.lanes)
        self.writer.flags = "contract " if contract else ""
        self.index = "%i"  # the first element of an iteration
        self.operands = [*program.inputs, *(program.dtypes[number] for number in program.outputs)]
        self.operands += [reduction.dtype for reduction in program.reductions]
        self.mask = f"<{form.lanes} x i1>"
        self.steps = f"<{form.lanes} x i64>"

    def block(self, label: str) -> None:
        """Begin a block."""
        self.lines.append(f"{label}:")
        self.writer.block = label

    def written(self) -> None:
        """Move the writer's lines to the text."""
        self.lines += self.writer.lines
        self.writer.lines.clear()

    def lie(self, place: int) -> str | None:
        """Return how an operand lies; None for the result of a reduction, which is written once per row."""
        return self.form.lie[place] if place < len(self.form.lie) else None

    def counting(self) -> str:
        return "<" + ", ".join(f"i64 {lane}" for lane in range(self.form.lanes)) + ">"

    def spread(self, scalar: str, name: str, kind: str) -> None:
        """Write the broadcast of a number to all lanes."""
        lanes = self.form.lanes
        vector = f"<{lanes} x {kind}>"
        self.lines.append(f"%{name}.one = insertelement {vector} poison, {kind} {scalar}, i32 0")
        self.lines.append(
            f"%{name} = shufflevector {vector} %{name}.one, {vector} poison, <{lanes} x i32> zeroinitializer"
        )

    def spread_value(self, scalar: str, name: str, dtype: DType) -> Value:
        """Write the broadcast of a number, given in its type in memory, and return the value."""
        if dtype.kind != "c":
            self.spread(scalar, name, memory_type(dtype))
            return self.value(f"%{name}", dtype)
        value = named(self.writer, f"%{name}", dtype)
        for at, part in enumerate(parts_of(value)):
            self.lines.append(f"{part.name}.alone = extractelement {memory_type(dtype)} {scalar}, i32 {at}")
            self.spread(f"{part.name}.alone", part.name[1:], memory_type(part.dtype))
        return value

    def value(self, name: str, dtype: DType) -> Value:
        """Return the value of a vector loaded from memory: bytes become truth values, complex numbers two vectors."""
        if dtype.kind == "c":
            found = pairs.taken_apart(self.writer, name, dtype)
            self.written()
            return found
        if dtype != BOOL:
            return Vector(self.writer, name, dtype)
        self.written()
        truth = f"{name}.truth"
        self.lines.append(f"{truth} = icmp ne <{self.form.lanes} x i8> {name}, zeroinitializer")
        return Vector(self.writer, truth, BOOL)

    # ---- where elements are

    def _is_run(self, place: int) -> bool:
        """Return whether the elements of a row are contiguous, in memory or in a tile."""
        return self.lie(place) in (PACKED, CROSSWISE)

    def _vector_type(self, dtype: DType) -> str:
        """Return the type of a vector in memory."""
        return f"<{count_of(dtype) * self.form.lanes} x {memory_type(real_of(dtype))}>"

    def _addresses(self, place: int, suffix: str) -> str:
        """Write the address of an iteration's first element if they are contiguous, else of each; return its name."""
        base, name = self.pointers[place], f"%at{place}{suffix}"
        if self._is_run(place):
            self.lines.append(
                f"{name} = getelementptr {memory_type(self.operands[place])}, ptr {base}, i64 {self.index}"
            )
            return name
        self.lines.append(f"{name}.offset = mul i64 {self.index}, %s{place}")
        self.lines.append(f"{name}.first = getelementptr i8, ptr {base}, i64 {name}.offset")
        self.lines.append(f"{name} = getelementptr i8, ptr {name}.first, {self.steps} %lanes{place}")
        return name

    # ---- loads

    def load(self, place: int, suffix: str, mask: str | None) -> str:
        """Write one load, whole or under a mask; return the name of the loaded vector."""
        dtype = self.program.inputs[place]
        kind, short = self._vector_type(dtype), self._short(dtype)
        address, name = self._addresses(place, suffix), f"%load{place}{suffix}"
        masked = self._mask_type(dtype)
        if self._is_run(place):
            if mask is None or place in self.form.roomy:
                if place in self.form.fetches and not self.form.strip:
                    self._fetch_ahead(place, address)
                self.lines.append(f"{name} = load {kind}, ptr {address}, align 1")
            else:
                self._declare(f"{kind} @llvm.masked.load.{short}.p0(ptr, {masked}, {kind})")
                given = self._given(mask, dtype, name)
                self.lines.append(
                    f"{name} = call {kind} @llvm.masked.load.{short}.p0"
                    f"(ptr align 1 {address}, {masked} {given}, {kind} zeroinitializer)"
                )
            return name
        # align 1 throughout: memory that is shared with other libraries may begin at any address.
        if mask is None and not self.form.brief:
            return self._load_each(place, address, name)
        pointers, many, each = self._pointers(dtype, address, name)
        self._declare(f"{kind} @llvm.masked.gather.{short}.{many}({pointers}, {masked}, {kind})")
        given = self._given(mask, dtype, name)
        self.lines.append(
            f"{name} = call {kind} @llvm.masked.gather.{short}.{many}"
            f"({pointers} align 1 {each}, {masked} {given}, {kind} zeroinitializer)"
        )
        return name

    def _mask_type(self, dtype: DType) -> str:
        """Return the type of a mask over the numbers in memory, of which a complex element has two."""
        return f"<{count_of(dtype) * self.form.lanes} x i1>"

    def _given(self, mask: str | None, dtype: DType, name: str) -> str:
        """Return a mask over the numbers in memory for a mask over lanes; None stands for all."""
        if mask is None:
            return "splat (i1 true)"
        if dtype.kind != "c":
            return mask
        self.lines.append(pairs.twice(f"{name}.mask", mask, self.mask, self.form.lanes))
        return f"{name}.mask"

    def _pointers(self, dtype: DType, address: str, name: str) -> tuple[str, str, str]:
        """Return the type of pointers to all numbers of an iteration, its spelling in intrinsics, and their name."""
        many = count_of(dtype) * self.form.lanes
        pointers = f"<{many} x ptr>"
        if dtype.kind == "c":
            own, part = f"<{self.form.lanes} x ptr>", memory_type(real_of(dtype))
            places = ", ".join(["i64 0, i64 1"] * self.form.lanes)
            self.lines.append(pairs.twice(f"{name}.twice", address, own, self.form.lanes))
            self.lines.append(f"{name}.each = getelementptr {part}, {pointers} {name}.twice, <{many} x i64> <{places}>")
            address = f"{name}.each"
        return pointers, f"v{many}p0", address

    def _load_each(self, place: int, address: str, name: str) -> str:
        """Write the loads of a whole iteration, element by element: gathers take two to three times as long (Zen 5)."""
        dtype = self.program.inputs[place]
        kind, whole, vector = memory_type(dtype), self._vector_type(dtype), "poison"
        for lane, at in enumerate(self._each_address(place, address)):
            self.lines.append(f"{at}.value = load {kind}, ptr {at}, align 1")
            if dtype.kind == "c":
                symbol = f"@llvm.vector.insert.{self._short(dtype)}.{_short(2, real_of(dtype))}"
                self._declare(f"{whole} {symbol}({whole}, {kind}, i64)")
                text = f"call {whole} {symbol}({whole} {vector}, {kind} {at}.value, i64 {2 * lane})"
            else:
                text = f"insertelement {whole} {vector}, {kind} {at}.value, i32 {lane}"
            self.lines.append(f"{name}.{lane} = {text}")
            vector = f"{name}.{lane}"
        return vector

    def _store_each(self, place: int, address: str, vector: str) -> None:
        """Write the stores of a whole iteration, element by element, as for loads."""
        dtype = self.operands[place]
        kind = memory_type(dtype)
        for lane, at in enumerate(self._each_address(place, address)):
            text = f"extractelement {vector}, i32 {lane}"
            if dtype.kind == "c":
                symbol = f"@llvm.vector.extract.{_short(2, real_of(dtype))}.{self._short(dtype)}"
                self._declare(f"{kind} {symbol}({self._vector_type(dtype)}, i64)")
                text = f"call {kind} {symbol}({vector}, i64 {2 * lane})"
            self.lines.append(f"{at}.value = {text}")
            self.lines.append(f"store {kind} {at}.value, ptr {at}, align 1")

    def _each_address(self, place: int, address: str) -> list[str]:
        """Write the address of each element of an iteration, one stride after the other; return the names."""
        names = [f"{address}.first", *(f"{address}.{lane}" for lane in range(1, self.form.lanes))]
        for before, name in pairwise(names):
            self.lines.append(f"{name} = getelementptr i8, ptr {before}, i64 %s{place}")
        return names

    def _fetch_ahead(self, place: int, address: str) -> None:
        """Write a prefetch of memory further ahead than processors look by themselves."""
        self.lines.append(f"{address}.ahead = getelementptr i8, ptr {address}, i64 %ahead{place}")
        self.fetch(f"{address}.ahead")

    def fetch(self, address: str) -> None:
        """Write a prefetch of an address."""
        self._declare("void @llvm.prefetch.p0(ptr, i32, i32, i32)")
        self.lines.append(f"call void @llvm.prefetch.p0(ptr {address}, i32 0, i32 3, i32 1)")

    def _short(self, dtype: DType) -> str:
        """Return the type of a vector in memory as intrinsics' names spell it."""
        return _short(count_of(dtype) * self.form.lanes, real_of(dtype))

    def _declare(self, text: str) -> None:
        self.writer.declarations.add(f"declare {text}")

    # ---- stores

    def _as_memory(self, value: Value, name: str) -> str:
        """Write the conversion of a vector to its type in memory; return its name, which may be the value's own."""
        if isinstance(value, Complex):
            found = pairs.put_together(value)
            self.written()
            return found
        if value.dtype != BOOL:
            return value.name
        self.lines.append(f"{name} = zext {self.mask} {value.name} to {self._vector_type(BOOL)}")
        return name

    def store(self, place: int, value: Value, suffix: str, mask: str | None) -> None:
        """Write one store, whole or under a mask."""
        dtype = value.dtype
        kind, short, masked = self._vector_type(dtype), self._short(dtype), self._mask_type(dtype)
        own = f"%store{place}{suffix}"
        name = self._as_memory(value, own)
        address = self._addresses(place, suffix)
        if self._is_run(place):
            if mask is None or place in self.form.roomy:
                how = (
                    f"align {min(self.form.lanes * value.dtype.itemsize, ALIGNMENT)}, !nontemporal !0"
                    if self.form.streams
                    else "align 1"
                )
                self.lines.append(f"store {kind} {name}, ptr {address}, {how}")
            else:
                self._declare(f"void @llvm.masked.store.{short}.p0({kind}, ptr, {masked})")
                given = self._given(mask, dtype, own)
                self.lines.append(
                    f"call void @llvm.masked.store.{short}.p0({kind} {name}, ptr align 1 {address}, {masked} {given})"
                )
            return
        if mask is None and not self.form.brief:
            self._store_each(place, address, f"{kind} {name}")
            return
        pointers, many, each = self._pointers(dtype, address, own)
        self._declare(f"void @llvm.masked.scatter.{short}.{many}({kind}, {pointers}, {masked})")
        given = self._given(mask, dtype, own)
        self.lines.append(
            f"call void @llvm.masked.scatter.{short}.{many}({kind} {name}, {pointers} align 1 {each}, {masked} {given})"
        )

    def first_lane(self, vector: Value, name: str) -> str:
        """Write the extraction of a vector's first lane, in its type in memory; return its name."""
        self.written()
        if isinstance(vector, Complex):
            kind, part = memory_type(vector.dtype), memory_type(vector.real.dtype)
            for at, one in enumerate(parts_of(vector)):
                self.lines.append(f"%{name}.part{at} = extractelement {one.type} {one.name}, i32 0")
            self.lines.append(f"%{name}.half = insertelement {kind} poison, {part} %{name}.part0, i32 0")
            self.lines.append(f"%{name} = insertelement {kind} %{name}.half, {part} %{name}.part1, i32 1")
            return f"%{name}"
        bit = f"%{name}.bit" if vector.dtype == BOOL else f"%{name}"
        self.lines.append(f"{bit} = extractelement {vector.type} {vector.name}, i32 0")
        if vector.dtype == BOOL:
            self.lines.append(f"%{name} = zext i1 {bit} to i8")
        return f"%{name}"


def _short(count: int, dtype: DType) -> str:
    """Return the type of a vector of numbers as intrinsics' names spell it."""
    return f"v{count}{'f' if dtype.kind == 'f' else 'i'}{8 * dtype.itemsize}"
