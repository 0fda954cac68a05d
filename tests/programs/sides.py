"""The two sides of a program: NumPy (the oracle) and xtensor as `xp`, and how what they leave is compared."""

from __future__ import annotations

import re
import warnings
from collections.abc import Callable
from functools import lru_cache
from itertools import combinations
from typing import Any

import numpy as np

import xtensor as xt

# Complex numbers that products are in may differ by so many roundings: each product has one, sums of them lose digits.
ROUNDED = 64

# ---- the two sides


def data(seed: int, shape: tuple[int, ...], dtype: str) -> np.ndarray:
    """Return reproducible elements: mostly small numbers, now and then extreme or special ones."""
    return _content(seed, shape, dtype).copy()


@lru_cache(32)  # every mode of a program asks for the same
def _content(seed: int, shape: tuple[int, ...], dtype: str) -> np.ndarray:
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


def numbers(seed: int, shape: tuple[int, ...]) -> np.ndarray:
    """Return reproducible numbers between 0.25 and 2, of either sign, in which nothing is singular."""
    return _numbers(seed, shape).copy()


@lru_cache(32)
def _numbers(seed: int, shape: tuple[int, ...]) -> np.ndarray:
    rng = np.random.default_rng([seed, len(shape)])
    return np.asarray(rng.uniform(0.25, 2.0, shape) * rng.choice([-1.0, 1.0], shape))


class Oracle:
    """NumPy as `xp`, with views where NumPy gives scalars and where it makes read-only views of its own."""

    def __getattr__(self, name: str) -> Any:
        return getattr(np, name)

    @staticmethod
    def where(condition: Any, a: Any, b: Any) -> np.ndarray:
        """Return numpy.where, which alone of NumPy's functions wraps a Python integer that does not fit."""
        dtype, own = np.result_type(a, b), (np.ndarray, np.generic)
        return np.where(condition, *[x if isinstance(x, own) else np.asarray(x, dtype) for x in (a, b)])[()]

    @staticmethod
    def tensordot(a: Any, b: Any, **keywords: Any) -> Any:
        return np.tensordot(a, b, **keywords)[()]  # a scalar, as other functions give

    @staticmethod
    def astype(x: np.ndarray, dtype: Any, **keywords: Any) -> np.ndarray:
        """Return numpy.astype, which drops imaginary parts: the standard leaves that out, and xtensor refuses it."""
        if x.dtype.kind == "c" and np.dtype(dtype).kind not in "cb":
            raise TypeError(f"astype: from {x.dtype} to {dtype}")
        return np.astype(x, dtype, **keywords)

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
        return np.flip(x, axis=axis) if x.ndim or axis not in (None, ()) or isinstance(x, np.generic) else x[...]

    @staticmethod
    def pick(x: np.ndarray, *key: int) -> Any:
        return x[key]

    @staticmethod
    def apart(x: Any) -> Any:
        """Return a value to assign: NumPy does not always see that it overlaps the target, xtensor does."""
        return np.array(x)

    @staticmethod
    def host(x: np.ndarray) -> np.ndarray:
        return np.asarray(x)

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
        self.names: dict[str, Any] = {"xp": xp, "data": data, "numbers": numbers}
        self.settle = settle
        self.errors: list[Exception | None] = []

    def step(self, line: str) -> None:
        error = None
        try:
            exec(compiled(line), self.names)
        except Exception as raised:  # what is raised is compared, whatever it is
            error = without_frames(raised)
        else:
            if NAME.match(line):
                name = line.partition(" ")[0]
                self.names[name] = self.settle(self.names[name])
        self.errors.append(error)

    def variables(self) -> dict[str, Any]:
        """Return the variables, of NumPy with arrays in place of its scalars, which share memory with no others."""
        found = {name: value for name, value in self.names.items() if name[0] == "v" and name[1:].isdigit()}
        return {name: np.asarray(x) if isinstance(x, np.generic) else x for name, x in found.items()}

    def scalars(self) -> set[str]:
        return {name for name, x in self.names.items() if isinstance(x, np.generic)}


def without_frames(error: Exception) -> Exception:
    """Return an error that keeps nothing alive of the places where it, and those it came of, were raised."""
    each: BaseException | None = error
    while each is not None:
        each = each.with_traceback(None).__context__
    return error


_codes: dict[str, Any] = {}


def compiled(line: str) -> Any:
    if line not in _codes:
        if len(_codes) > 1000:
            _codes.clear()
        _codes[line] = compile(line, "<program>", "exec")
    return _codes[line]


def oracle_side() -> Side:
    return Side(Oracle(), settled)


def settled(x: Any) -> Any:
    """Return a result as an array, unless it is one of NumPy's scalars."""
    return x if isinstance(x, np.generic) else np.asarray(x)


def run_oracle(lines: list[str], side: Side | None = None) -> Side:
    side = side or oracle_side()
    with quiet():
        for line in lines:
            side.step(line)
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
    if not same_bits(native, right) and not differs_by_rounding(native, right):
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


def differs_by_rounding(a: np.ndarray, b: np.ndarray) -> bool:
    """Return whether complex numbers differ by their last bits alone.

    NumPy's vector code and its other code round products of complex numbers in two ways, and which of them computes
    follows from how operands lie; with it parts that overflow are infinite or NaN (docs/differences.md).
    """
    if a.dtype.kind != "c":
        return False
    finite = np.isfinite(b)
    near = np.abs(a[finite] - b[finite]) <= ROUNDED * np.finfo(b.dtype).eps * np.abs(b[finite])
    return bool(np.array_equal(np.isfinite(a), finite) and np.all(near))


def moving_strides(x: Any) -> list[int]:
    """Return the strides that mean something: of axes with several elements, in an array that has any."""
    return [stride for n, stride in zip(x.shape, x.strides, strict=True) if n > 1] if 0 not in x.shape else []


def sharing(mine: dict[str, Any], right: dict[str, np.ndarray], scalars: set[str]) -> str | None:
    """Return which two variables share memory on one side only, or share it where the write barrier cannot see.

    scalars: variables that are NumPy's scalars, of which nobody can tell.
    """
    tensors = {name: x for name, x in mine.items() if isinstance(x, xt.Tensor)}
    for a, b in combinations(tensors, 2):
        first, second = tensors[a].blob.owner, tensors[b].blob.owner
        if scalars & {a, b}:
            continue
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
