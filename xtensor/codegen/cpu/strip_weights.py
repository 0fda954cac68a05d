"""Gradients of the weights of convolutions, by strips as in strip_rows.py: registers hold the sums over a strip."""

from __future__ import annotations

from collections.abc import Iterator
from functools import lru_cache

from .compile import Code, handmade
from .forms import first_lanes, masked_load, masked_store
from .strip_rows import Strip, StripText


@lru_cache(256)
def weights_kernel(own: Strip) -> Code:
    """Return the code of the gradient of weights: y is given, and w is added to."""
    return handmade("\n".join(_Weights(own).text()))


@lru_cache(256)
def weights_first_kernel(own: Strip) -> Code:
    """Return the code of that gradient where channels come first: blocks divide the outputs, and terms the window."""
    return handmade("\n".join(_WeightsFirst(own).text()))


class _Weights(StripText):
    """The text of the gradient of weights: the sums over a strip are added to those in memory."""

    @property
    def panel(self) -> int:
        return self.own.registers * self.lanes

    @property
    def y_step(self) -> str:
        return "1" if self.own.turned[1] else "%y.step"

    def _computed(self) -> Iterator[str]:
        yield from self.loop("some", "o", "%outputs", self._some(), step=self.panel)

    def _some(self) -> Iterator[str]:
        yield from self._masks("%o", "%outputs")
        yield f"  %w.o = getelementptr {self.kind}, ptr %w.g, i64 %o\n  %left.o = sub i64 %outputs, %o"
        yield f"  %some.o = call i64 @llvm.smin.i64(i64 %left.o, i64 {self.panel})"
        yield f"  %x.next = mul i64 %wide, {self.own.apart}"
        yield from self.loop("aside", "r.a", "%row.count", self._row_aside())
        yield from self.loop("terms", "k", "%depth", self._terms(), step=self.own.block)

    # -- outputs, copied so that some registers of them lie side by side for all elements of a window: in y they may lie
    # a power of two bytes apart, and would evict each other from the nearest cache

    def _row_aside(self) -> Iterator[str]:
        """Yield the copy of some outputs of a row; registers without outputs hold arbitrary numbers."""
        yield "  %aside.number = add i64 %begins.this, %r.a"
        yield from self.words("%aside.number", "y.rows", way="aside.")
        yield f"  %aside.col = mul i64 %col, {self.y_step}\n  %aside.at = add i64 %aside.y.rows.this, %aside.col"
        yield f"  %y.row = getelementptr {self.kind}, ptr %y.n, i64 %aside.at"
        yield from self._aside("to.row", "%r.a")
        if self.own.turned[1]:
            places = self.loop("aside.places", "p.a", "%positions", self._turned_places(), step=self.lanes)
            yield from self.loop("aside.turn", "o.a", "%some.o", places, step=self.lanes)
        else:
            yield f"  %y.some = getelementptr {self.kind}, ptr %y.row, i64 %o"
            yield from self.loop("aside.places", "p.a", "%positions", self._place_aside())

    def _turned_places(self) -> Iterator[str]:
        yield "  %left.p = sub i64 %positions, %p.a\n  %left.a = sub i64 %some.o, %o.a\n  %o.all = add i64 %o, %o.a"
        yield from first_lanes(self.form, "mask.p", "%left.p")
        yield f"  %y.place = getelementptr {self.kind}, ptr %y.row, i64 %p.a"
        yield from self.far("y.square", "%y.place", "%o.all", "%y.step")
        yield f"  %aside.output = getelementptr {self.kind}, ptr %to.row, i64 %o.a"
        yield from self.far("aside.square", "%aside.output", "%p.a", self.panel)
        yield from self._square(("%y.square", "%y.step"), "%mask.p", "%left.a", ("%aside.square", str(self.panel)), "y")

    def _place_aside(self) -> Iterator[str]:
        yield from self.far("y.place", "%y.some", "%p.a", "%y.step")
        yield from self.far("to.place", "%to.row", "%p.a", self.panel)
        yield from self._registers("y.in", "%y.place")
        for v in range(self.own.registers):
            yield f"  %to.place{v} = getelementptr {self.kind}, ptr %to.place, i64 {v * self.lanes}"
            yield f"  store {self.vector} %y.in{v}, ptr %to.place{v}, align {self.form.itemsize}"

    def _aside(self, name: str, row: str) -> Iterator[str]:
        """Yield the lines that make a pointer to the copied outputs of a row."""
        yield f"  %{name}.place = mul i64 {row}, %wide"
        yield from self.far(name, "%sums", f"%{name}.place", self.panel)

    # -- sums

    def _terms(self) -> Iterator[str]:
        """Yield the work on some elements of a window; a last block begins earlier, and skips those added before."""
        yield f"  %k.last = sub i64 %depth, {self.own.block}\n  %k0 = call i64 @llvm.smin.i64(i64 %k, i64 %k.last)"
        yield from self.words("%k0", "ks")
        carried = [(f"row{t}.{v}", self.vector, "zeroinitializer", f"%sum{t}.{v}") for t, v in self.cells]
        yield from self.loop("row", "r", "%row.count", self._row(), carried=carried)
        for t, v in self.cells:
            name = f"%total{t}.{v}"
            yield f"  {name}.k = add i64 %k0, {t}\n  {name}.row = mul i64 {name}.k, %pitch"
            yield f"  {name}.far = add i64 {name}.row, {v * self.lanes}"
            yield f"  {name}.at = getelementptr {self.kind}, ptr %w.o, i64 {name}.far"
            yield masked_load(self.form, f"{name}.old", f"{name}.at", f"%mask{v}")
            yield f"  {name}.new = icmp sge i64 {name}.k, %k"
            yield f"  {name}.sum = fadd {self.vector} {name}.old, %sum{t}.{v}"
            yield f"  {name} = select i1 {name}.new, {self.vector} {name}.sum, {self.vector} {name}.old"
            yield masked_store(self.form, name, f"{name}.at", f"%mask{v}")

    def _row(self) -> Iterator[str]:
        yield from self._at_row()
        yield f"  %x.k = getelementptr {self.kind}, ptr %room.r, i64 %ks.this"
        yield from self._aside("y.o", "%r")
        carried = [("x.p", "ptr", "%x.k", "%x.p.n"), ("y.p", "ptr", "%y.o", "%y.p.n")]
        carried += [(f"old{t}.{v}", self.vector, f"%row{t}.{v}", f"%sum{t}.{v}") for t, v in self.cells]
        yield from self.loop("one", "p", "%positions", self._one(), carried=carried)

    def _one(self) -> Iterator[str]:
        if self.own.in_place:  # nothing has copied the next positions near: each block of terms fetches a part of them
            yield f"  %x.ahead = getelementptr {self.kind}, ptr %x.p, i64 %x.next"
            yield self.prefetch("%x.ahead", near=False)
        yield from self._crossed("y", "%y.p", "x", [self.spread(f"x{t}", "%x.p", t) for t in range(self.own.block)])
        yield f"  %x.p.n = getelementptr {self.kind}, ptr %x.p, i64 {self.own.apart}"
        yield f"  %y.p.n = getelementptr {self.kind}, ptr %y.p, i64 {self.panel}"


class _WeightsFirst(StripText):
    """The text of that gradient where channels come first: the lanes of sums are added up at the end of a group.

    Positions without outputs are masked out of the input too, as it may be infinite there.
    """

    @property
    def y_step(self) -> str:
        return "1"

    def __init__(self, own: Strip) -> None:
        super().__init__(own)
        self.cells = [(t, b) for t in range(own.terms) for b in range(own.block)]

    def _group(self) -> Iterator[str]:
        yield "  %number = mul i64 %depth, %outputs"
        yield from self.loop("begin", "z", "%number", self._begun_sums(), step=self.lanes)
        yield from super()._group()
        yield from self.loop("across", "i", "%number", self._across(), step=self.lanes)

    def _begun_sums(self) -> Iterator[str]:
        """Yield zeros for as many registers as there are lanes: each thread writes its own, in a cache near it."""
        yield from self.far("sums.z", "%sums", "%z", self.lanes)
        for lane in range(self.lanes):
            yield f"  %sums.z{lane} = getelementptr {self.kind}, ptr %sums.z, i64 {lane * self.lanes}"
            yield f"  store {self.vector} zeroinitializer, ptr %sums.z{lane}, align {self.form.itemsize}"

    def _across(self) -> Iterator[str]:
        """Yield what adds up the lanes of each of so many registers."""
        yield from self.far("sums.i", "%sums", "%i", self.lanes)
        names = []
        for lane in range(self.lanes):
            names.append(f"%across{lane}")
            yield f"  %sums.i{lane} = getelementptr {self.kind}, ptr %sums.i, i64 {lane * self.lanes}"
            yield f"  {names[-1]} = load {self.vector}, ptr %sums.i{lane}, align {self.form.itemsize}"
        while len(names) > 1:
            half = len(names) // 2
            for n in range(half):
                yield from self._folded(names[n], names[n + half], f"%half{half}.{n}", half)
            names = [f"%half{half}.{n}" for n in range(half)]
        yield f"  %w.i = getelementptr {self.kind}, ptr %w.g, i64 %i\n  %left.i = sub i64 %number, %i"
        yield from first_lanes(self.form, "mask.i", "%left.i")
        yield masked_store(self.form, names[0], "%w.i", "%mask.i")

    def _folded(self, low: str, high: str, name: str, half: int) -> Iterator[str]:
        """Yield what adds up pairs of lanes of two registers, `half` apart: sums of the first register go to the lanes
        without the bit `half` in their number.
        """
        for way in (0, half):
            places = (lane & ~half | way | (self.lanes if lane & half else 0) for lane in range(self.lanes))
            order = ", ".join(f"i32 {place}" for place in places)
            pair = f"{self.vector} {low}, {self.vector} {high}"
            yield f"  {name}.{way} = shufflevector {pair}, <{self.lanes} x i32> <{order}>"
        yield f"  {name} = fadd {self.vector} {name}.0, {name}.{half}"

    def _computed(self) -> Iterator[str]:
        yield from self.loop("some", "o", "%outputs", self._some(), step=self.own.block)

    def _some(self) -> Iterator[str]:
        yield "  %y.far.o = mul i64 %o, %y.step"
        yield from self.loop("terms", "k", "%depth", self._terms(), step=self.own.terms)

    def _terms(self) -> Iterator[str]:
        own = self.own
        for t in range(own.terms):
            yield f"  %k{t} = add i64 %k, {t}"
            yield from self.words(f"%k{t}", "ks", way=f"of{t}.")
        carried = [(f"row{t}.{b}", self.vector, "zeroinitializer", f"%sum{t}.{b}") for t, b in self.cells]
        yield from self.loop("row", "r", "%row.count", self._row(), carried=carried)
        for t, b in self.cells:
            name = f"%total{t}.{b}"
            if not b:
                yield f"  {name}.row = mul i64 %k{t}, %outputs\n  {name}.o = add i64 {name}.row, %o"
                yield from self.far(f"total{t}", "%sums", f"{name}.o", self.lanes)
            yield f"  {name}.at = getelementptr {self.kind}, ptr %total{t}, i64 {b * self.lanes}"
            yield f"  {name}.old = load {self.vector}, ptr {name}.at, align {self.form.itemsize}"
            yield f"  {name} = fadd {self.vector} {name}.old, %sum{t}.{b}"
            yield f"  store {self.vector} {name}, ptr {name}.at, align {self.form.itemsize}"

    def _row(self) -> Iterator[str]:
        yield from self._at_row()
        yield f"  %y.o = getelementptr {self.kind}, ptr %y.r, i64 %y.far.o"
        for t in range(self.own.terms):
            yield f"  %x{t}.r = getelementptr {self.kind}, ptr %room.r, i64 %of{t}.ks.this"
        carried = [(f"old{t}.{b}", self.vector, f"%row{t}.{b}", f"%sum{t}.{b}") for t, b in self.cells]
        yield from self.loop("one", "p", "%positions", self._one(), step=self.lanes, carried=carried)

    def _one(self) -> Iterator[str]:
        yield "  %left.p = sub i64 %positions, %p"
        yield from first_lanes(self.form, "mask", "%left.p")
        for t in range(self.own.terms):
            yield f"  %x{t}.p = getelementptr {self.kind}, ptr %x{t}.r, i64 %p"
            yield masked_load(self.form, f"%x{t}", f"%x{t}.p", "%mask")
        yield f"  %y0.p = getelementptr {self.kind}, ptr %y.o, i64 %p"
        for b in range(self.own.block):
            if b:
                yield f"  %y{b}.p = getelementptr {self.kind}, ptr %y{b - 1}.p, i64 %y.step"
            yield masked_load(self.form, f"%y{b}", f"%y{b}.p", "%mask")
            for t in range(self.own.terms):
                yield self.multiply_add(f"%sum{t}.{b}", f"%x{t}", f"%y{b}", f"%old{t}.{b}")
