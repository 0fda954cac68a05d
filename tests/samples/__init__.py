"""Samples of every differentiable function: what all tests of gradients are driven by.

One module per chapter of the namespace; each lists its samples. A sample is written over a namespace `xp`, so that the
same call runs on xtensor, PyTorch and JAX.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import wraps
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
import pytest

Array = np.ndarray[Any, Any]


@dataclass(frozen=True, eq=False)
class Sample:
    """One call to differentiate.

    function: its name in the namespace, "linalg.solve".
    call: call(xp, *tensors) returns a tensor or a tuple of them, of which floating ones are differentiated.
    args: the arrays, all of which a gradient is taken for; float64 or complex128, away from kinks.
    note: what is special about it, "" for a plain one; it is part of the test's name.
    second: whether second derivatives exist there as well.
    """

    function: str
    call: Callable[..., Any]
    args: tuple[Array, ...]
    note: str = ""
    second: bool = True

    def __str__(self) -> str:
        return f"{self.function} {self.note}".strip().replace(" ", "-")


def normal(*shape: int, seed: int = 0) -> Array:
    """Return normal numbers of a shape."""
    return np.random.default_rng([seed, *shape]).normal(size=shape)


def positive(*shape: int, seed: int = 0) -> Array:
    """Return numbers between 0.5 and 2."""
    return np.random.default_rng([seed, *shape]).uniform(0.5, 2.0, shape)


def complexes(*shape: int, seed: int = 0) -> Array:
    """Return complex numbers, both parts normal."""
    return normal(*shape, seed=seed) + 1j * normal(*shape, seed=seed + 1)


def samples() -> Iterator[Sample]:
    """Yield the samples of all chapters."""
    for file in sorted(Path(__file__).parent.glob("[a-z]*.py")):
        yield from import_module(f"{__name__}.{file.stem}").SAMPLES


def function_by_function(chosen: Iterable[Sample]) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Make a test of one sample a test of all samples of a function, which has that one's name; what fails says for
    which sample.

    (Beside a gradient of some numbers, which takes a millisecond, a test of its own takes four.)
    """
    groups: dict[str, list[Sample]] = {}
    for sample in chosen:
        groups.setdefault(sample.function, []).append(sample)

    def decorate(test: Callable[..., None]) -> Callable[..., None]:
        @wraps(test)
        def run(function: str, **given: Any) -> None:
            for sample in groups[function]:
                try:
                    test(sample, **given)
                except BaseException as error:
                    error.add_note(f"sample {sample}")
                    raise

        own = inspect.signature(test)
        first = inspect.Parameter("function", inspect.Parameter.POSITIONAL_OR_KEYWORD)
        others = [one for name, one in own.parameters.items() if name != "sample"]
        run.__signature__ = own.replace(parameters=[first, *others])  # type: ignore[attr-defined]
        return pytest.mark.parametrize("function", groups)(run)

    return decorate
