"""Programs drawn at random: each line is made for the shapes and dtypes that the lines before it left."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import numpy as np

from .coverage import Coverage
from .sides import Side, oracle_side, quiet, root

DTYPES = [
    *("bool", "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64"),
    *("float32", "float64", "complex64", "complex128"),
]
INPLACE = ["+", "-", "*", "/", "&", "|", "^", "**", "//", "%", "<<", ">>"]
INFIX = ["+", "-", "*", "/", "&", "|", "^", "<", "<=", "==", "!=", ">", ">=", "//", "%"]
UNARY = ["-{}", "abs({})", "~{}"] + [
    f"xp.{name}({{}})" for name in ("sqrt", "exp", "sin", "square", "sign", "floor", "isnan", "logical_not", "negative")
]
BINARY = ["maximum", "minimum", "multiply", "subtract", "logical_and", "not_equal", "less"]
REDUCTIONS = ["sum", "prod", "max", "min", "mean", "var", "any", "all", "argmax", "argmin", "count_nonzero"]
EXACT_UNARY = [form for form in UNARY if "exp" not in form and "sin" not in form]
EXACT_REDUCTIONS = [name for name in REDUCTIONS if name not in ("sum", "prod", "mean", "var")]
SCALARS = ["0", "1", "2", "3", "-1", "2", "3", "1.5", "-0.25", "True", "(1+2j)", "100", "300", "2**40", "2**70"]
# Indices that are written out at most: products of large shapes have millions.
LISTED = 20_000

BIG = [(5000,), (70, 70), (3, 40, 50), (2, 3, 30, 30), (1, 9000)]


class Maker:
    """Makes one program, running it on NumPy meanwhile: the next line depends on the shapes there are."""

    def __init__(self, seed: int, exact: bool = False) -> None:
        self.rng = random.Random(seed)
        self.exact = exact
        self.big = self.rng.random() < 0.1
        self.most = 40_000 if self.big else 3_000
        self.side = self.start()
        self.lines: list[str] = []
        self.made = 0
        self.exported: set[str] = set()
        self.coverage = Coverage()
        steps = self.steps()
        weights, choices = [weight for weight, _ in steps], [step for _, step in steps]
        with quiet():
            for _ in range(self.rng.randint(1, 3)):
                self.add(self.create())
            for _ in range(self.rng.randint(4, 16)):
                self.add(self.rng.choices(choices, weights)[0]())

    def start(self) -> Side:
        """Return the oracle's run, with nothing in it."""
        return oracle_side()

    def steps(self) -> list[tuple[int, Callable[[], str | None]]]:
        """Return the kinds of lines, and how often each is made."""
        return [
            (4, self.create),
            (16, self.view),
            (3, self.advanced),
            (12, self.compute),
            (4, self.reduce),
            (3, self.cast),
            (3, self.library),
            (14, self.inplace),
            (12, self.assign),
            (4, self.window),
            (1, self.force),
            (1, self.forget),
            (1, self.misfit),
            (2, self.cross_border),
        ]

    def add(self, line: str | None) -> None:
        if line is None:
            return
        names = set(self.variables())
        self.coverage.note(line, self.variables())
        self.lines.append(line)
        self.side.step(line)
        for name in set(self.variables()) - names:
            if self.variables()[name].size > self.most:
                self.exported.discard(name)
                self.add(f"del {name}")

    # ---- choosing

    def variables(self) -> dict[str, np.ndarray]:
        return self.side.variables()

    def any_of(self, fits: Callable[[np.ndarray], bool] = lambda x: True) -> str | None:
        names = [name for name, x in self.variables().items() if fits(x) and name not in self.exported]
        return self.rng.choice(names) if names else None

    def get(self, name: str) -> np.ndarray:
        return self.side.names[name]

    def target(self) -> str:
        """Return a name to bind: mostly a new one, sometimes one that is in use."""
        names = [name for name in self.variables() if name not in self.exported]
        if len(names) > 7 or (names and self.rng.random() < 0.1):
            return self.rng.choice(names)
        self.made += 1
        return f"v{self.made - 1}"

    def chance(self, probability: float) -> bool:
        return self.rng.random() < probability

    def shape(self) -> tuple[int, ...]:
        if self.big:
            return self.rng.choice(BIG)
        ndim = self.rng.choices(range(5), [1, 3, 4, 3, 2])[0]
        return tuple(self.rng.choices([0, 1, 2, 3, 4, 5], [1, 4, 8, 8, 6, 4])[0] for _ in range(ndim))

    def seed(self) -> int:
        return self.rng.randrange(1000)

    def axis(self, ndim: int) -> int:
        if self.chance(0.01) or ndim == 0:
            return ndim + 1
        return self.rng.randrange(-ndim, ndim)

    def operand(self, x: np.ndarray, *, into: bool = False) -> str:
        """Return another operand for a variable: overlapping memory is preferred to other memory."""
        if self.chance(0.25):
            return self.scalar(x)
        found = self.any_of(lambda y: root(y) is root(x) and fits(x.shape, y.shape, into)) if self.chance(0.6) else None
        return found or self.any_of(lambda y: fits(x.shape, y.shape, into)) or self.scalar(x)

    def scalar(self, x: np.ndarray) -> str:
        # beside booleans and complex numbers a huge integer may be wrong for two reasons: either error would do
        return self.rng.choice(SCALARS if x.dtype.kind in "iuf" else SCALARS[:-1])

    def misfit(self) -> str | None:
        """Return an operation of two operands that are wrong for one reason only, their shapes (if they are)."""
        name = self.any_of(keeps_its_memory)
        other = name and self.any_of(lambda y: y.dtype == self.get(name).dtype)
        form = self.rng.choice(["{0} += {1}", "{0}[...] = {1}", f"{self.target()} = {{0}} * {{1}}", "{0} *= {1}"])
        return name and form.format(name, other)

    # ---- kinds of lines

    def create(self) -> str:
        dtype, shape = self.rng.choice(DTYPES), self.shape()
        made = self.rng.random()
        if made < 0.7:
            source = f"xp.asarray(data({self.seed()}, {shape}, '{dtype}'), copy=True)"
        elif made < 0.8:
            counted = "int32" if dtype == "bool" else dtype
            source = f"xp.reshape(xp.arange({int(np.prod(shape))}, dtype=xp.{counted}), {shape})"
        elif made < 0.9:
            source = f"xp.zeros({shape}, dtype=xp.{dtype})"
        else:
            source = f"xp.full({shape}, {self.rng.choice(['0', '1', 'True'])}, dtype=xp.{dtype})"
        return f"{self.target()} = {source}"

    def view(self) -> str | None:
        name = self.any_of()
        if name is None:
            return None
        x = self.get(name)
        rearrange = self.rng.choice(
            [self.index, self.index, self.index, self.order, self.lengths, self.lengths, self.stretch, self.part]
        )
        source = rearrange(name, x)
        return source and f"{self.target()} = {source}"

    def index(self, name: str, x: np.ndarray) -> str:
        return f"{name}[{self.basic_key(x.shape)}]"

    def order(self, name: str, x: np.ndarray) -> str | None:
        axes = list(range(x.ndim))
        self.rng.shuffle(axes)
        kind = self.rng.choice(["permute_dims", "flip", "moveaxis", "matrix_transpose", "roll_axes"])
        if kind == "permute_dims":
            return f"xp.permute_dims({name}, {tuple(axes)})"
        if kind == "flip":
            some = self.rng.choice([None, tuple(axes[: self.rng.randint(0, x.ndim)]), self.axis(x.ndim)])
            return f"xp.flip({name}, axis={some})"
        if kind == "moveaxis" and x.ndim:
            several = self.rng.randint(1, x.ndim)
            source, to = tuple(axes[:several]), tuple(self.rng.sample(range(-x.ndim, 0), several))
            return f"xp.moveaxis({name}, {source}, {to})"
        return f"xp.matrix_transpose({name})" if x.ndim > 1 else None

    def lengths(self, name: str, x: np.ndarray) -> str | None:
        kind = self.rng.choice(["reshape", "reshape", "expand_dims", "squeeze"])
        if kind == "expand_dims":
            axis = self.rng.randrange(-x.ndim - 1, x.ndim + 1)
            return f"xp.expand_dims({name}, axis={axis})" if x.ndim < 5 else None
        if kind == "squeeze":
            ones = tuple(a for a, n in enumerate(x.shape) if n == 1)
            axes = ones[: self.rng.randint(1, 3)] if not self.chance(0.03) else self.axis(x.ndim)
            return f"xp.squeeze({name}, axis={axes})"
        copy = self.rng.choice(["", "", "", ", copy=True", ", copy=False"])
        return f"xp.reshape({name}, {self.new_shape(x.size)}{copy})"

    def new_shape(self, size: int) -> tuple[int, ...]:
        if self.chance(0.03):
            return (size + 1,)
        shape: list[int] = []
        rest = size
        while rest > 1 and len(shape) < 4 and self.chance(0.8):
            shape.append(self.rng.choice([n for n in range(1, min(rest, 60) + 1) if rest % n == 0]))
            rest //= shape[-1]
        shape.append(rest)
        self.rng.shuffle(shape)
        if size and self.chance(0.2):
            shape[self.rng.randrange(len(shape))] = -1
        return tuple(shape)

    def stretch(self, name: str, x: np.ndarray) -> str:
        shape = [self.rng.randint(0, 3) if n == 1 and self.chance(0.6) else n for n in x.shape]
        if self.chance(0.3) and x.ndim < 4:
            shape.insert(0, self.rng.randint(1, 3))
        if shape and self.chance(0.03):
            shape[0] += 1
        return f"xp.broadcast_to({name}, {tuple(shape)})"

    def part(self, name: str, x: np.ndarray) -> str | None:
        if self.chance(0.5) and x.ndim > 1:
            return f"xp.diagonal({name}, offset={self.rng.randint(-3, 3)})"
        axis = self.axis(x.ndim)
        if not -x.ndim <= axis < x.ndim or not x.shape[axis]:
            return None
        return f"xp.unstack({name}, axis={axis})[{self.rng.randrange(x.shape[axis])}]"

    def basic_key(self, shape: tuple[int, ...], *, whole: bool = False) -> str:
        """Return a key of slices, integers, None and Ellipsis; one without slices keeps an Ellipsis.

        (Without one NumPy gives a scalar; xp.pick covers that case.)
        """
        items = [self.basic_item(n) for n in shape]
        if self.chance(0.3):
            cut = self.rng.randint(0, len(items))
            items = items[:cut] if self.chance(0.5) else [*items[:cut], "...", *items[min(cut + 1, len(items)) :]]
        for _ in range(self.rng.choices([0, 1, 2], [8, 2, 1])[0]):
            items.insert(self.rng.randint(0, len(items)), "None")
        if not any(":" in item or item in ("...", "None") for item in items):
            items.append("...")
        return ", ".join(items)

    def basic_item(self, length: int) -> str:
        if self.chance(0.25) and (length or self.chance(0.05)):
            return str(self.rng.randrange(-length, length) if length and not self.chance(0.02) else length)
        if self.chance(0.3):
            return ":"
        bounds = [self.rng.choice(["", "", str(self.rng.randint(-length - 2, length + 2))]) for _ in range(2)]
        return ":".join([*bounds, self.rng.choice(["", "", "1", "2", "3", "-1", "-1", "-2", "-3"])])

    def advanced_key(self, name: str) -> str:
        """Return a key with at least one array of integers or booleans, beside any basic items."""
        shape = self.get(name).shape
        if shape and self.chance(0.25) and self.get(name).dtype.kind != "c":
            return self.rng.choice([f"{name} > 0", f"{name} != {name}", f"xp.logical_not({name})"])
        items: list[str] = []
        length = self.rng.randint(0, 4)
        axis, arrays = 0, 0
        while axis < len(shape):
            if self.chance(0.45):
                covered = self.rng.randint(1, min(2, len(shape) - axis))
                items.append(self.key_array(shape[axis : axis + covered], length))
                axis += covered if "bool" in items[-1] else 1
                arrays += 1
            else:
                items.append(self.basic_item(shape[axis]))
                axis += 1
        if self.chance(0.15):
            items.insert(self.rng.randint(0, len(items)), self.rng.choice(["None", "True", "..."]))
        if arrays == 0:
            items.insert(0, self.rng.choice(["True", "xp.asarray(True)", "None, xp.asarray(False)"]))
        return ", ".join(items)

    def key_array(self, shape: tuple[int, ...], length: int) -> str:
        if self.chance(0.35):
            return f"xp.asarray(data({self.seed()}, {shape}, 'bool'))"
        n = shape[0]
        if not n:
            return "[]"
        length = length if self.chance(0.8) and length <= LISTED else 1
        low, high = (-n, n) if not self.chance(0.02) else (0, n + 2)
        indices = [self.rng.randrange(low, high) for _ in range(length)]
        kind = self.rng.random()
        if kind < 0.4:
            return str(indices)
        if kind < 0.5:
            return f"xp.asarray({self.rng.randrange(n)})"
        dtype = self.rng.choice(["int8", "int64", "uint8"]) if n < 100 and min(indices, default=0) >= 0 else "int64"
        return f"xp.asarray({indices if kind < 0.8 else [[i] for i in indices]}, dtype=xp.{dtype})"

    def advanced(self) -> str | None:
        name = self.any_of(lambda x: x.ndim > 0)
        if name is None:
            return None
        x = self.get(name)
        if self.chance(0.2) and x.size:
            return f"{self.target()} = xp.pick({name}, {', '.join(str(self.rng.randrange(n)) for n in x.shape)})"
        return f"{self.target()} = {name}[{self.advanced_key(name)}]"

    def compute(self) -> str | None:
        name = self.any_of()
        if name is None:
            return None
        x = self.get(name)
        form = self.rng.random()
        if form < 0.2:
            return f"{self.target()} = {self.rng.choice(self.unary(x)).format(name)}"
        other = self.operand(x)
        if form < 0.3:
            return f"{self.target()} = xp.where({name} != {other}, {name}, {self.operand(x)})"
        if form < 0.45:
            return f"{self.target()} = xp.{self.rng.choice(BINARY)}({name}, {other})"
        sign = self.rng.choice(INFIX)
        if sign in ("//", "%") and not self.are_integers(x, other):
            sign = "*"
        pair = (name, other) if self.chance(0.7) else (other, name)
        chained = f" + {self.operand(x)}" if self.chance(0.2) else ""
        return f"{self.target()} = {f' {sign} '.join(pair)}{chained}"

    def unary(self, x: np.ndarray) -> list[str]:
        """The unary forms; exact ones leave out what NumPy rounds in two ways, by how complex numbers lie."""
        forms = EXACT_UNARY if self.exact else UNARY
        return [form for form in forms if form != "abs({})"] if self.exact and x.dtype.kind == "c" else forms

    def are_integers(self, x: np.ndarray, other: str) -> bool:
        """Return whether a floor division is one of integers: for infinities the standard says what NumPy does not."""
        return x.dtype.kind in "biu" and (self.get(other).dtype.kind in "biu" if other[0] == "v" else other.isdigit())

    def reduce(self) -> str | None:
        name = self.any_of()
        if name is None:
            return None
        x = self.get(name)
        function = self.rng.choice(EXACT_REDUCTIONS if self.exact and x.dtype.kind in "fc" else REDUCTIONS)
        if self.exact and function in ("mean", "var"):
            function = "sum"
        axis: Any = self.rng.choice([None, self.axis(x.ndim)])
        if not function.startswith("arg") and self.chance(0.3) and x.ndim:
            axis = tuple(self.rng.sample(range(x.ndim), self.rng.randint(0, x.ndim)))
        # Which of two zeros is the larger one, the standard leaves open.
        one_zero = " + 0.0" if self.exact and x.dtype.kind == "f" and function in ("max", "min") else ""
        return f"{self.target()} = xp.{function}({name}{one_zero}, axis={axis}, keepdims={self.chance(0.4)})"

    def cast(self) -> str | None:
        name, dtype = self.any_of(), self.rng.choice(DTYPES)
        if name is None or (self.get(name).dtype.kind == "c" and np.dtype(dtype).kind not in "cb"):
            return None  # NumPy drops imaginary parts, xtensor does not
        if not self.converts(name, dtype):
            return None
        if self.chance(0.3):
            return f"{self.target()} = xp.astype({name}, {name}.dtype, copy={self.chance(0.5)})"
        return f"{self.target()} = xp.astype({name}, xp.{dtype}, copy={self.chance(0.7)})"

    def converts(self, value: str, dtype: Any) -> bool:
        """Return whether a variable or number converts to a dtype in one way only."""
        return converts(self.get(value) if value[0] == "v" else np.asarray(eval(value)), dtype)

    def library(self) -> str | None:
        name = self.any_of(lambda x: x.ndim > 0)
        if name is None:
            return None
        x = self.get(name)
        axis = self.axis(x.ndim)
        other = self.any_of(lambda y: y.shape == x.shape) or name
        return f"{self.target()} = " + self.rng.choice(
            [
                f"xp.concat(({name}, {other}), axis={axis})",
                f"xp.stack(({name}, {other}), axis={axis})",
                f"xp.roll({name}, {self.rng.randint(-3, 3)}, axis={axis})",
                f"xp.repeat({name}, 2, axis={axis})",
                f"xp.sort({name}, axis={axis}, stable=True)",
                f"xp.asarray({name}, copy=True)",
                f"xp.matmul({name}, {other})" if x.ndim == 1 else f"xp.matmul({name}, xp.matrix_transpose({other}))",
            ]
        )

    def inplace(self) -> str | None:
        name = self.any_of(keeps_its_memory if self.chance(0.97) else lambda x: x.ndim > 0)
        if name is None:
            return None
        x, place = self.get(name), name
        if not x.flags.writeable:
            return f"{name} += {name}"
        if self.chance(0.25):
            place = f"{name}[{self.basic_key(x.shape)}]"
            selected = self.value_of(place)
            if selected is None:
                return f"{place} += 1"
            x = selected
        sign, other = self.rng.choice(INPLACE), self.operand(x, into=True)
        if self.exact and sign == "**" and x.dtype.kind in "fc":
            sign = "*"
        if sign in ("//", "%", "<<", ">>") and not self.are_integers(x, other):
            sign = self.rng.choice("+-*")
        if sign == "**":  # a negative power of an integer is an error that NumPy finds half way
            other = self.rng.choice("0123") if x.dtype.kind in "iu" else "True"
        return f"{place} {sign}= {other}"

    def value_of(self, source: str) -> np.ndarray | None:
        """Return what an expression gives here, None where it raises."""
        trial = oracle_side()
        trial.names.update(self.side.names)
        trial.step(f"v = {source}")
        return None if trial.errors[0] else np.asarray(trial.names["v"])

    def assign(self) -> str | None:
        name = self.any_of(lambda x: x.flags.writeable) if self.chance(0.97) else self.any_of()
        if name is None:
            return None
        x = self.get(name)
        if isinstance(x, np.generic):  # which NumPy refuses to write, and the standard does not
            return None
        if not x.flags.writeable:
            return f"{name}[...] = 0"
        advanced = self.chance(0.5)
        key = self.advanced_key(name) if advanced else self.basic_key(x.shape)
        selected = self.value_of(f"{name}[{key}]")
        if selected is None:
            return f"{name}[{key}] = 1"
        value: str | None = self.scalar(x)
        if self.chance(0.7):
            shape = selected.shape
            related = self.chance(0.6)
            value = self.any_of(lambda y: fits(shape, y.shape, True) and (not related or root(y) is root(x))) or value
            if value[0] != "v" and self.chance(0.5):
                value = f"xp.asarray(data({self.seed()}, {shape}, '{self.rng.choice(DTYPES)}'))"
        if self.is_complex(value) and x.dtype.kind != "c":
            return None  # NumPy drops the imaginary part, with a warning; xtensor raises TypeError
        if self.exact and value[0] != "x" and not self.converts(value, x.dtype):
            return None
        return f"{name}[{key}] = xp.apart({value})" if value[0] == "v" else f"{name}[{key}] = {value}"

    def is_complex(self, value: str) -> bool:
        return "j" in value or "complex" in value or (value[0] == "v" and self.get(value).dtype.kind == "c")

    def window(self) -> str | None:
        """Return an assignment or update between two windows of one array, overlapping and perhaps reversed."""
        name = self.any_of(lambda x: x.flags.writeable and x.ndim > 0 and max(x.shape) > 1)
        if name is None:
            return None
        shape = self.get(name).shape
        axis = self.rng.choice([a for a, n in enumerate(shape) if n > 1])
        length = self.rng.randint(1, shape[axis])
        before = ":, " * axis
        target, source = (f"{name}[{before}{self.span(shape[axis], length)}]" for _ in range(2))
        if self.chance(0.4) and length <= LISTED:
            indices = [self.rng.randrange(-shape[axis], shape[axis]) for _ in range(length)]
            return f"{name}[{before}{indices}] = xp.apart({source})"
        return f"{target} {self.rng.choice(['=', '=', '+=', '-=', '*='])} {source}"

    def span(self, length: int, part: int) -> str:
        """Return a slice of `part` neighbours of `length` elements, in either direction."""
        start = self.rng.randint(0, length - part)
        last = start + part - 1
        return f"{start}:{last + 1}" if self.chance(0.5) else f"{last}:{start - 1 if start else ''}:-1"

    def force(self) -> str | None:
        name = self.any_of()
        return name and f"xp.force({name})"

    def forget(self) -> str | None:
        name = self.any_of() if len(self.variables()) > 2 else None
        return name and f"del {name}"

    def cross_border(self) -> str | None:
        """Add lines about memory seen from outside: exported, written there while calls are pending, imported."""
        if not self.exported:
            name = self.any_of()
            if name is None or name in self.side.scalars():  # of which NumPy has no memory
                return None
            if self.chance(0.5):
                self.add(f"{self.target()} = {name} == {name}")  # perhaps pending when the memory goes out
            self.made += 1
            outside = f"v{self.made - 1}"
            self.exported.add(outside)
            self.add(f"{outside} = xp.host({name})")
            if not self.exported:  # too large to be kept
                return None
        outside = next(iter(self.exported))
        writeable = self.get(outside).flags.writeable
        inside = self.any_of(lambda x: root(x) is root(self.get(outside)))
        if inside is None or self.chance(0.3):
            inside = self.target()
            self.add(f"{inside} = xp.asarray({outside})")
        if self.chance(0.7):
            self.add(f"{self.target()} = {inside} == {inside}")
        return f"{outside}[...] = {self.rng.choice(['1', '0', 'True'])}" if writeable else None


class KernelMaker(Maker):
    """Makes programs of what kernels are made of: expressions over parts of arrays with up to 200 elements an axis.

    Parts are taken at both ends, forwards and backwards, and every other element, so that vectors leave any tail.
    """

    INFIX = ("+", "-", "*", "+", "-", "*", "/", "&", "|", "^", "<", "==", ">=")
    UNARY = ("-({})", "xp.square({})", "xp.sqrt({})", "xp.floor({})", "xp.sign({})")

    def __init__(self, seed: int, exact: bool = False) -> None:
        super().__init__(seed, exact)
        self.most = 40_000

    def steps(self) -> list[tuple[int, Callable[[], str | None]]]:
        return [
            (4, self.create),
            (12, self.elementwise),
            (10, self.update),
            (6, self.fold),
            (4, self.window),
            (2, self.inplace),
            (1, self.product),
            (1, self.forget),
        ]

    def shape(self) -> tuple[int, ...]:
        others = self.rng.choice([0, 0, 1, 1, 2])
        lengths = [self.rng.randint(1, 200), *(self.rng.randint(1, 12) for _ in range(others))]
        self.rng.shuffle(lengths)
        return tuple(lengths)

    def part_of(self, name: str, shape: tuple[int, ...]) -> str:
        """Return a part of a variable that has a shape, or broadcasts to it."""
        whole = self.get(name).shape
        keys = [str(self.rng.randrange(n)) for n in whole[: len(whole) - len(shape)]]
        for n, wanted in zip(whole[len(keys) :], shape, strict=True):
            wanted = 1 if self.chance(0.05) else wanted
            if 2 * wanted - 1 <= n and self.chance(0.2):
                first = self.rng.randint(0, n - 2 * wanted + 1)
                keys.append(f"{first}:{first + 2 * wanted - 1}:2")
            else:
                keys.append(self.rng.choice([self.span(n, wanted), f"{n - wanted}:", f":{wanted}"]))
        return f"{name}[{', '.join(keys)}]"

    def leaf(self, shape: tuple[int, ...], like: np.ndarray) -> str:
        """Return an operand of a shape: part of an array, mostly of the dtype of another one, or a number."""

        def has_room(x: np.ndarray, ndim: int = len(shape)) -> bool:
            tail = x.shape[x.ndim - ndim :] if x.ndim >= ndim else ()
            return len(tail) == ndim and all(n >= wanted for n, wanted in zip(tail, shape, strict=True))

        name = self.any_of(lambda x: has_room(x) and x.dtype == like.dtype) if self.chance(0.8) else None
        name = name or self.any_of(has_room)
        if name is None or self.chance(0.1):
            return self.rng.choice(SCALARS[:5])
        across = self.get(name)
        if across.ndim == len(shape) == 2 and across.shape[::-1] == shape and self.chance(0.5):
            return f"xp.matrix_transpose({name})"
        return self.part_of(name, shape)

    def expression(self, shape: tuple[int, ...], name: str) -> str:
        """Return an expression of a shape, of part of a variable and of other operands."""
        like, text = self.get(name), self.part_of(name, shape)
        for _ in range(self.rng.randint(1, 4)):
            if self.chance(0.2) and like.dtype.kind == "f":
                text = self.rng.choice(self.UNARY).format(text)
            else:
                pair = (text, self.leaf(shape, like))
                text = f"({f' {self.rng.choice(self.INFIX)} '.join(pair if self.chance(0.7) else pair[::-1])})"
        return text

    def domain(self) -> tuple[str, tuple[int, ...]] | None:
        """Return a variable and the shape of some part of it."""
        name = self.any_of(lambda x: x.ndim > 0 and x.size > 0)
        if name is None:
            return None
        x = self.get(name)
        cut = [n if self.chance(0.4) else self.rng.randint(1, n) for n in x.shape]
        return name, tuple(cut)

    def elementwise(self) -> str | None:
        found = self.domain()
        return found and f"{self.target()} = {self.expression(found[1], found[0])}"

    def update(self) -> str | None:
        """Return a write of an expression into a part, which may read what it writes."""
        name = self.any_of(lambda x: x.flags.writeable and x.ndim > 0 and x.size > 0)
        if name is None:
            return None
        x = self.get(name)
        shape = tuple([n if self.chance(0.4) else self.rng.randint(1, n) for n in x.shape])
        target, text = self.part_of(name, shape), self.expression(shape, name)
        value, place = self.value_of(f"xp.asarray({text})"), self.value_of(target)
        if value is None or place is None or not fits(place.shape, value.shape, True):
            return None
        if not np.can_cast(value.dtype, x.dtype, "same_kind"):
            return None
        sign = self.rng.choice(["", "", "+", "-", "*"])
        return f"{target} {sign}= {text}" if sign or "xp." in text or "v" in text else f"{target} = {text}"

    def fold(self) -> str | None:
        found = self.domain()
        if found is None:
            return None
        name, shape = found
        exact = self.exact and self.get(name).dtype.kind in "fc"
        function = self.rng.choice(["any", "all", "count_nonzero"] if exact else ["sum", "max", "min", "any", "prod"])
        axis = self.rng.choice([None, *range(len(shape))])
        text = self.expression(shape, name)
        value = self.value_of(f"xp.asarray({text})")
        if value is None or value.ndim != len(shape) or (self.exact and value.dtype.kind in "fc" and not exact):
            return None
        return f"{self.target()} = xp.{function}({text}, axis={axis}, keepdims={self.chance(0.3)})"

    def product(self) -> str | None:
        name = self.any_of(lambda x: x.ndim == 2 and x.dtype.kind in "iu")
        return name and f"{self.target()} = xp.matmul({name}, xp.matrix_transpose({name}))"


class SmoothMaker(Maker):
    """Makes programs that can be differentiated: float64, views, writes, and functions with slopes.

    Its first lines make the arguments.
    """

    UNARY = ("-{}", "xp.square({})", "xp.sin({})", "xp.exp(xp.sin({}))", "abs({})", "xp.negative({})")
    PAIR = (
        "{0} + {1}",
        "{0} - {1}",
        "{0} * {1}",
        "{0} / (xp.square({1}) + 1.0)",
        "xp.maximum({0}, {1})",
        "xp.minimum({0}, {1})",
        "xp.multiply({0}, {1})",
        "xp.where({0} > {1}, {0}, {1} * 2.0)",
        "xp.where({1} < 0.5, {1}, {0})",
    )

    def steps(self) -> list[tuple[int, Callable[[], str | None]]]:
        return [
            (1, self.create),
            (14, self.view),
            (3, self.advanced),
            (14, self.compute),
            (4, self.reduce),
            (3, self.library),
            (8, self.inplace),
            (8, self.assign),
            (4, self.window),
            (1, self.forget),
        ]

    def create(self) -> str:
        return f"{self.target()} = xp.asarray(numbers({self.seed()}, {self.shape()}), copy=True)"

    def shape(self) -> tuple[int, ...]:
        self.big, self.most = False, 3_000
        return super().shape()

    def scalar(self, x: np.ndarray) -> str:
        return self.rng.choice(["2.0", "-0.5", "1.5", "0.25"])

    def compute(self) -> str | None:
        name = self.any_of()
        if name is None:
            return None
        if self.chance(0.3):
            return f"{self.target()} = {self.rng.choice(self.UNARY).format(name)}"
        return f"{self.target()} = {self.rng.choice(self.PAIR).format(name, self.operand(self.get(name)))}"

    def reduce(self) -> str | None:
        name = self.any_of(lambda x: x.size > 0)
        if name is None:
            return None
        axis = self.rng.choice([None, *range(self.get(name).ndim)])
        function = self.rng.choice(["sum", "mean", "var", "max", "min"])
        return f"{self.target()} = xp.{function}({name}, axis={axis}, keepdims={self.chance(0.4)})"

    def library(self) -> str | None:
        line = super().library()
        return None if line is None or "sort" in line else line

    def inplace(self) -> str | None:
        name = self.any_of(keeps_its_memory)
        if name is None:
            return None
        place = name
        if self.chance(0.5):
            place = f"{name}[{self.basic_key(self.get(name).shape)}]"
        x = self.value_of(place)
        return x if x is None else f"{place} {self.rng.choice('+-*')}= {self.operand(x, into=True)}"

    def assign(self) -> str | None:
        name = self.any_of(lambda x: x.flags.writeable and x.ndim > 0)
        if name is None:
            return None
        x = self.get(name)
        key = self.advanced_key(name) if self.chance(0.3) else self.basic_key(x.shape)
        selected = self.value_of(f"{name}[{key}]")
        if selected is None:
            return None
        value = self.any_of(lambda y: fits(selected.shape, y.shape, True)) if self.chance(0.7) else self.scalar(x)
        return value and f"{name}[{key}] = xp.apart({value})"


def keeps_its_memory(x: np.ndarray) -> bool:
    """Return whether operators in place write into a variable: not what stands for a scalar, which becomes another."""
    return x.flags.writeable and (x.ndim > 0 or x.base is not None)


def fits(shape: tuple[int, ...], other: tuple[int, ...], into: bool) -> bool:
    """Return whether `other` broadcasts with `shape` (to nothing but `shape` itself if `into`)."""
    try:
        together = np.broadcast_shapes(shape, other)
    except ValueError:
        return False
    return together == shape if into else True


def converts(x: np.ndarray, dtype: Any) -> bool:
    """Return whether elements convert to a dtype in one way only.

    What becomes of a floating-point number that an integer dtype cannot hold is left open by C, by the standard, and by
    NumPy, whose answer depends on where in the array the number stands.
    """
    if np.dtype(dtype).kind not in "iu" or x.dtype.kind not in "fc":
        return True
    return bool(np.all(np.isfinite(x) & (x >= 0) & (x < 100)))
