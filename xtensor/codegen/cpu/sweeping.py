"""The text of kernels that go over rows of outputs, image by image: their loops, and lines for registers."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence

from .forms import Form, declared, loads, splat

# The offset that stands for a row that does not exist.
OUTSIDE = -(1 << 62)


def renamed(lines: Iterable[str], prefix: str) -> Iterator[str]:
    """Yield lines in which the names that they define, of values and blocks, get a prefix."""
    text = "\n".join(lines)
    own = set(re.findall(r"(?m)^\s*%([\w.]+) =|^([\w.]+):", text))
    names = {value or block for value, block in own}
    text = re.sub(r"%([\w.]+)", lambda found: f"%{prefix * (found[1] in names)}{found[1]}", text)
    yield re.sub(r"(?m)^([\w.]+):", rf"{prefix}\1:", text)


class Sweeping:
    """The text of a kernel while it is written; the body of a loop is written when the loop asks for it.

    block: the label of the block that the next line is in.
    """

    def __init__(self, char: str, lanes: int) -> None:
        self.lanes, self.form = lanes, Form(char, lanes, 1, 1)
        self.kind, self.vector = self.form.kind, f"<{lanes} x {self.form.kind}>"
        self.block = "entry"

    def kernel(self, pointers: Sequence[str], numbers: Sequence[str], body: Iterable[str]) -> Iterator[str]:
        """Yield the kernel, whose words are pointers and then numbers."""
        yield from sorted(declared(self.form))
        yield "define void @kernel(ptr %table) {\nentry:"
        yield from loads(pointers, numbers)
        yield from body
        yield "  ret void\n}"

    def loop(
        self,
        name: str,
        counter: str,
        end: str,
        body: Iterable[str],
        *,
        step: int | str = 1,
        start: str = "0",
        carried: Sequence[tuple[str, str, str, str]] = (),
    ) -> Iterator[str]:
        """Yield a loop that runs at least once. carried: values that each turn hands on to the next: their names,
        types, initial values, and values at the end of a turn.
        """
        before, self.block = self.block, name
        yield f"  br label %{name}\n{name}:"
        for own, kind, first, then in ((counter, "i64", start, f"%{counter}.n"), *carried):
            yield f"  %{own} = phi {kind} [{first}, %{before}], [{then}, %{name}.next]"
        yield from body
        yield f"  br label %{name}.next\n{name}.next:\n  %{counter}.n = add i64 %{counter}, {step}"
        yield f"  %{counter}.more = icmp slt i64 %{counter}.n, {end}"
        yield f"  br i1 %{counter}.more, label %{name}, label %{name}.done\n{name}.done:"
        self.block = f"{name}.done"

    def images(self, x: str, y: str, body: Iterable[str]) -> Iterator[str]:
        """Yield the loop over images, which begin at %x.n and %y.n; x, y: pointers to the first ones."""
        return self.loop("image", "n", "%images", self._image(x, y, body))

    def _image(self, x: str, y: str, body: Iterable[str]) -> Iterator[str]:
        for name, begin in (("x", x), ("y", y)):
            yield from self.far(f"{name}.n", begin, "%n", f"%{name}.image")
        yield from body

    def far(self, name: str, pointer: str, number: str, step: str | int) -> Iterator[str]:
        """Yield the lines that make a pointer %name, a number of steps behind another one."""
        yield f"  %{name}.far = mul i64 {number}, {step}"
        yield f"  %{name} = getelementptr {self.kind}, ptr {pointer}, i64 %{name}.far"

    def words(self, place: str, *names: str, way: str = "") -> Iterator[str]:
        """Yield the loads of words from tables: %name.this for each name."""
        for name in names:
            yield f"  %{way}{name}.at = getelementptr i64, ptr %{name}, i64 {place}"
            yield f"  %{way}{name}.this = load i64, ptr %{way}{name}.at"

    def spread(self, name: str, pointer: str, far: int) -> Iterator[str]:
        """Yield the lines that load one number and broadcast it to a vector %name.all."""
        yield f"  %{name}.at = getelementptr {self.kind}, ptr {pointer}, i64 {far}"
        yield f"  %{name} = load {self.kind}, ptr %{name}.at"
        yield from splat(name, self.kind, self.vector, self.lanes)

    def prefetch(self, pointer: str, *, near: bool = True) -> str:
        """Return the line that prefetches what a pointer points to, into the first-level cache or only the second."""
        return f"  call void @llvm.prefetch.p0(ptr {pointer}, i32 0, i32 {3 if near else 2}, i32 1)"

    def multiply_add(self, name: str, x: str, y: str, z: str) -> str:
        suffix, vector = f"v{self.lanes}f{8 * self.form.itemsize}", self.vector
        return f"  {name} = call {vector} @llvm.fma.{suffix}({vector} {x}, {vector} {y}, {vector} {z})"

    def masked(self, name: str, mask: str, there: str) -> Iterator[str]:
        """Yield the lines that make %name: a mask, or an empty one where a condition does not hold."""
        truth = f"<{self.lanes} x i1>"
        yield f"  %{name} = select i1 {there}, {truth} {mask}, {truth} zeroinitializer"
