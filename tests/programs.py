"""Random programs, run on NumPy and on xtensor and compared element by element.

A program is a list of lines of Python over variables v0, v1, ... and a namespace `xp`: it makes arrays, views of
views, writes into them, computes with them. The same text runs with `xp` NumPy (the oracle) and `xp` xtensor,
under every laziness; at the end all variables must agree in bits, dtype, shape, strides and in which share memory.

A program depends on nothing but its seed. One that fails is cut down line by line to a short one that still fails.

    python -m tests.programs --count 20000 --seed 1
"""

from __future__ import annotations

import argparse
import random
import re
import sys
import time
import warnings
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, nullcontext
from itertools import combinations
from typing import Any

import numpy as np
import pytest

import xtensor as xt

DTYPES = [
    *("bool", "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64"),
    *("float32", "float64", "complex64", "complex128"),
]
# A small fuse_limit evaluates in the middle of an expression, as long programs would.
MODES: dict[str, dict[str, Any]] = {
    "auto": {"lazy": "auto"},
    "always": {"lazy": "always"},
    "never": {"lazy": "never"},
    "always, fuse_limit=2": {"lazy": "always", "fuse_limit": 2},
    "direct": {"lazy": "always", "engine": "direct"},
    "interpret": {"lazy": "always", "engine": "interpret"},
    "llvm": {"lazy": "always", "engine": "llvm", "cache_dir": ""},
    "large": {"lazy": "auto", "engine": "interpret"},
    "large, llvm": {"lazy": "auto", "engine": "llvm", "cache_dir": ""},
}
# Arrays count as large ones, and programs run so often: what is recorded for the second time is one node, what is
# evaluated for the third is launched.
TIMES = {"large": 3, "large, llvm": 3}
LIMITS = ("DIRECT_BELOW", "DIRECT_BYTES", "LARGE_UPDATE", "LAUNCH_PAYS", "FAST_LAUNCH_PAYS", "COUNTED", "REUSED")
# Generated code has functions and float sums of its own: its programs are made without them, and agree in every bit.
EXACT = [name for name, settings in MODES.items() if settings.get("engine") == "llvm"]


def keeps_its_memory(x: np.ndarray) -> bool:
    """Return whether operators in place write into a variable: not what stands for a scalar, which becomes another."""
    return x.flags.writeable and (x.ndim > 0 or x.base is not None)


# ---- the two sides


def data(seed: int, shape: tuple[int, ...], dtype: str) -> np.ndarray:
    """Return reproducible elements: mostly small numbers, now and then extreme or special ones."""
    rng = np.random.default_rng(seed)
    kind = np.dtype(dtype).kind
    small = rng.integers(-4, 6, shape)
    if kind == "b":
        return np.asarray(small > 0)
    if kind in "iu":
        small = np.asarray(np.abs(small) if kind == "u" else small).astype(dtype)
        info = np.iinfo(dtype)
        return np.where(rng.random(shape) < 0.05, info.max if seed % 2 else info.min, small).astype(dtype)
    special = rng.choice(np.array([np.nan, np.inf, -np.inf, -0.0, 1e30]), shape)
    real = np.where(rng.random(shape) < 0.05, special, small * 0.375)
    if kind == "c":
        real = real + 1j * rng.integers(-3, 4, shape)
    return np.asarray(real).astype(dtype)


class Oracle:
    """NumPy as `xp`, with views where NumPy gives scalars and where it makes read-only views of its own."""

    def __getattr__(self, name: str) -> Any:
        return getattr(np, name)

    @staticmethod
    def where(condition: Any, a: Any, b: Any) -> np.ndarray:
        """Return numpy.where, which alone of NumPy's functions wraps a Python integer that does not fit."""
        dtype = np.result_type(a, b)
        return np.where(condition, *[x if isinstance(x, np.ndarray) else np.asarray(x, dtype) for x in (a, b)])

    @staticmethod
    def unstack(x: np.ndarray, axis: int = 0) -> tuple[np.ndarray, ...]:
        moved = np.moveaxis(x, axis, 0)
        return tuple(moved[i, ...] for i in range(len(moved)))

    @staticmethod
    def diagonal(x: np.ndarray, offset: int = 0) -> np.ndarray:
        if x.ndim < 2:
            raise ValueError("diagonal: fewer than 2 axes")
        result = np.linalg.diagonal(x, offset=offset)
        if x.flags.writeable:
            result.flags.writeable = True
        return result

    @staticmethod
    def flip(x: np.ndarray, axis: Any = None) -> np.ndarray:
        return np.flip(x, axis=axis) if x.ndim or axis not in (None, ()) else x[...]

    @staticmethod
    def pick(x: np.ndarray, *key: int) -> np.ndarray:
        return np.asarray(x[key])  # of a scalar: an array of its own

    @staticmethod
    def apart(x: Any) -> Any:
        """Return a value to assign: NumPy does not always see that it overlaps the target, xtensor does."""
        return np.array(x)

    @staticmethod
    def host(x: np.ndarray) -> np.ndarray:
        return x

    @staticmethod
    def force(x: np.ndarray) -> None:
        pass


class Ours:
    """xtensor as `xp`, with the few helpers of the oracle."""

    diagonal = staticmethod(xt.linalg.diagonal)

    def __getattr__(self, name: str) -> Any:
        return getattr(xt, name)

    @staticmethod
    def pick(x: xt.Tensor, *key: int) -> xt.Tensor:
        return x[key]

    @staticmethod
    def apart(x: Any) -> Any:
        return x

    @staticmethod
    def host(x: xt.Tensor) -> np.ndarray:
        return x.numpy()

    @staticmethod
    def force(x: xt.Tensor) -> None:
        x.evaluate()


NAME = re.compile(r"v\d+ = ")


class Side:
    """One run of a program: its variables, and the class of error each line raised."""

    def __init__(self, xp: Any, settle: Callable[[Any], Any]) -> None:
        self.names: dict[str, Any] = {"xp": xp, "data": data}
        self.settle = settle
        self.errors: list[Exception | None] = []

    def step(self, line: str) -> None:
        error = None
        try:
            exec(compiled(line), self.names)
        except Exception as raised:  # what is raised is compared, whatever it is
            error = raised
        else:
            if NAME.match(line):
                name = line.partition(" ")[0]
                self.names[name] = self.settle(self.names[name])
        self.errors.append(error)

    def variables(self) -> dict[str, Any]:
        return {name: value for name, value in self.names.items() if name[0] == "v" and name[1:].isdigit()}


_codes: dict[str, Any] = {}


def compiled(line: str) -> Any:
    if line not in _codes:
        if len(_codes) > 1000:
            _codes.clear()
        _codes[line] = compile(line, "<program>", "exec")
    return _codes[line]


def oracle_side() -> Side:
    # np.asarray: NumPy's scalars become 0-d arrays
    return Side(Oracle(), np.asarray)


def run_oracle(lines: list[str]) -> Side:
    side = oracle_side()
    with quiet():
        for line in lines:
            side.step(line)
    return side


def run_ours(lines: list[str], mode: str) -> Side:
    with all_large() if mode in TIMES else nullcontext():
        for _ in range(TIMES.get(mode, 1) - 1):
            _run_ours(lines, mode)
        return _run_ours(lines, mode)


@contextmanager
def all_large() -> Iterator[None]:
    """Let no array be small enough for library calls at once, for nobody to count who holds it, or for new memory."""
    with pytest.MonkeyPatch.context() as patch:
        for name in [name for name in sys.modules if name.startswith("xtensor.")]:
            for limit in LIMITS:
                if hasattr(sys.modules[name], limit):
                    patch.setattr(sys.modules[name], limit, 0 if limit in ("COUNTED", "REUSED") else -1)
        yield


def _run_ours(lines: list[str], mode: str) -> Side:
    side = Side(Ours(), lambda x: x)
    with xt.options(**MODES[mode]):
        for line in lines:
            side.step(line)
        for value in side.variables().values():  # what still waits is computed in this mode too
            if isinstance(value, xt.Tensor):
                value.evaluate()
    return side


class quiet:  # noqa: N801 - reads as a verb at the call
    """NumPy's own warnings say nothing about xtensor; xtensor must give none."""

    def __enter__(self) -> None:
        self.caught = warnings.catch_warnings()
        self.state = np.errstate(all="ignore")
        self.caught.__enter__()
        self.state.__enter__()
        warnings.simplefilter("ignore")

    def __exit__(self, *failure: Any) -> None:
        self.state.__exit__(*failure)
        self.caught.__exit__(*failure)


# ---- comparing


def difference(lines: list[str], mode: str, theirs: Side) -> str | None:
    """Run a program on xtensor; return what differs from the oracle's run, or None."""
    ours = run_ours(lines, mode)
    for line, a, b in zip(lines, ours.errors, theirs.errors, strict=True):
        if not same_error(a, b):
            return f"`{line}` raised {a!r}, NumPy {b!r}"
    mine, right = ours.variables(), theirs.variables()
    if mine.keys() != right.keys():
        return f"variables {sorted(mine)}, NumPy {sorted(right)}"
    for name, value in mine.items():
        found = differs(value, right[name])
        if found:
            return f"{name}: {found}"
    return sharing(mine, right)


def same_error(a: Exception | None, b: Exception | None) -> bool:
    """Return whether two errors are of one built-in class (an AxisError is of two)."""
    if a is None or b is None:
        return a is b
    classes = (TypeError, ValueError, IndexError, OverflowError, NameError, MemoryError)
    return any(isinstance(a, one) and isinstance(b, one) for one in classes)


def differs(x: Any, right: np.ndarray) -> str:
    """Return how a tensor (or an exported array) differs from the oracle's array; "" if in nothing."""
    native = x.native() if isinstance(x, xt.Tensor) else x
    if not native.dtype == x.dtype == right.dtype:
        return f"dtype {x.dtype}, NumPy {right.dtype}"
    if not native.shape == x.shape == right.shape:
        return f"shape {x.shape}, NumPy {right.shape}"
    if not same_bits(native, right):
        return f"values {native.tolist()}, NumPy {right.tolist()}"
    if moving_strides(x) != moving_strides(right):
        return f"strides {x.strides}, NumPy {right.strides}"
    writeable = x.is_writeable if isinstance(x, xt.Tensor) else x.flags.writeable
    if writeable != right.flags.writeable:
        return f"writeable {writeable}, NumPy {right.flags.writeable}"
    return ""


def same_bits(a: np.ndarray, b: np.ndarray) -> bool:
    """Return whether elements agree bit for bit, all NaNs being one."""
    if a.tobytes() == b.tobytes():
        return True
    if a.dtype.kind not in "fc":
        return False
    real = np.dtype(f"f{a.dtype.itemsize // 2}") if a.dtype.kind == "c" else a.dtype
    a, b = (np.frombuffer(x.tobytes(), real) for x in (a, b))
    bits = f"u{real.itemsize}"
    return bool(np.all((a.view(bits) == b.view(bits)) | (np.isnan(a) & np.isnan(b))))


def moving_strides(x: Any) -> list[int]:
    """Return the strides that mean something: of axes with several elements, in an array that has any."""
    return [stride for n, stride in zip(x.shape, x.strides, strict=True) if n > 1] if 0 not in x.shape else []


def sharing(mine: dict[str, Any], right: dict[str, np.ndarray]) -> str | None:
    """Return which two variables share memory on one side only, or share it where the write barrier cannot see."""
    tensors = {name: x for name, x in mine.items() if isinstance(x, xt.Tensor)}
    for a, b in combinations(tensors, 2):
        first, second = tensors[a].blob.owner, tensors[b].blob.owner
        theirs = root(right[a]) is root(right[b])
        touching = first is second or np.may_share_memory(first.bytes, second.bytes)
        if touching and not theirs:
            return f"{a} and {b} share memory, in NumPy they do not"
        if theirs and not touching and not (first.shared or second.shared):
            return f"{a} and {b} share memory in NumPy only"
        if touching and first is not second and not (first.shared and second.shared):
            return f"{a} and {b} share memory through two Buffers not marked as shared"
    return None


def root(x: np.ndarray) -> Any:
    while isinstance(x.base, np.ndarray):
        x = x.base
    return x


# ---- making programs

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
        self.side = oracle_side()
        self.lines: list[str] = []
        self.made = 0
        self.exported: set[str] = set()
        steps: list[tuple[int, Callable[[], str | None]]] = [
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
        weights, choices = [weight for weight, _ in steps], [step for _, step in steps]
        with quiet():
            for _ in range(self.rng.randint(1, 3)):
                self.add(self.create())
            for _ in range(self.rng.randint(4, 16)):
                self.add(self.rng.choices(choices, weights)[0]())

    def add(self, line: str | None) -> None:
        if line is None:
            return
        names = set(self.variables())
        self.lines.append(line)
        self.side.step(line)
        for name in set(self.variables()) - names:
            if self.variables()[name].size > (40_000 if self.big else 3_000):
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
        """Return whether a variable or number converts to a dtype in one way only.

        What becomes of a floating-point number that an integer dtype cannot hold is left open by C, by the standard,
        and by NumPy, whose answer depends on where in the array the number stands.
        """
        if np.dtype(dtype).kind not in "iu":
            return True
        x = self.get(value) if value[0] == "v" else np.asarray(eval(value))
        return x.dtype.kind not in "fc" or bool(np.all(np.isfinite(x) & (x >= 0) & (x < 100)))

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
            if name is None:
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


def fits(shape: tuple[int, ...], other: tuple[int, ...], into: bool) -> bool:
    """Return whether `other` broadcasts with `shape` (to nothing but `shape` itself if `into`)."""
    try:
        together = np.broadcast_shapes(shape, other)
    except ValueError:
        return False
    return together == shape if into else True


# ---- running many


class ProgramError(AssertionError):
    """A program on which xtensor and NumPy differ, cut down."""

    def __init__(self, seed: int, mode: str, lines: list[str], what: str) -> None:
        program = "\n".join(f"    {line}" for line in lines)
        super().__init__(f"program {seed}, lazy={mode}: {what}\n{program}")


def check(seed: int, modes: Iterable[str] = tuple(MODES)) -> None:
    """Run the programs of one seed in every mode; raises ProgramError."""
    makers: dict[bool, Maker] = {}
    for mode in modes:
        exact = mode in EXACT
        maker = makers.get(exact) or makers.setdefault(exact, Maker(seed, exact))
        what = difference(maker.lines, mode, maker.side)
        if what is not None:
            lines, what = shrink(maker.lines, mode, what)
            raise ProgramError(seed, mode, lines, what)


def shrink(lines: list[str], mode: str, what: str) -> tuple[list[str], str]:
    """Return a program from which no line can be left out without losing the difference, and the difference."""
    progress = True
    while progress:
        progress = False
        for i in reversed(range(len(lines))):
            shorter = lines[:i] + lines[i + 1 :]
            found = difference(shorter, mode, run_oracle(shorter))
            if found is not None:
                lines, what, progress = shorter, found, True
    return lines, what


def failures(seed: int, count: int, modes: Iterable[str] = tuple(MODES)) -> Iterator[ProgramError]:
    """Yield what fails among the programs of seeds `seed * 1_000_000` and the next `count - 1`."""
    for one in range(seed * 1_000_000, seed * 1_000_000 + count):
        try:
            check(one, modes)
        except ProgramError as failure:
            yield failure


def main() -> int:
    parser = argparse.ArgumentParser(description="Compare random programs on xtensor with NumPy.")
    parser.add_argument("--count", type=int, default=20_000)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--stop-after", type=int, default=20, help="give up after so many failures")
    parser.add_argument("--modes", nargs="*", default=list(MODES), choices=list(MODES))
    given = parser.parse_args()
    warnings.simplefilter("error")
    begin, found = time.perf_counter(), 0
    for failure in failures(given.seed, given.count, given.modes):
        found += 1
        print(failure, flush=True)
        if found == given.stop_after:
            break
    seconds = time.perf_counter() - begin
    print(f"modes {given.modes}, seed {given.seed}, count {given.count}, failures {found}, {seconds:.0f} s")
    return min(found, 1)


if __name__ == "__main__":
    sys.exit(main())
