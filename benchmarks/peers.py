"""The contestants: how each library runs a workload in the way its users would."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from importlib import import_module
from importlib.util import find_spec
from tempfile import TemporaryDirectory
from types import ModuleType
from typing import Any, ClassVar
from unittest.mock import patch

import numpy as np

from .machine import cores
from .workloads import Array, Workload

Function = Callable[..., Any]


class UnsupportedError(Exception):
    """A contestant cannot run a workload; the text says why."""


class Peer:
    """A contestant that calls formulas with its own namespace; by itself, NumPy.

    name: what the tables call it. needs: the module that must be installed.
    """

    name: ClassVar[str] = "numpy"
    needs: ClassVar[str] = "numpy"

    def __init__(self) -> None:
        self.xp: Any = import_module(self.needs)

    def threads(self) -> int:
        """Return how many threads it may use, as it is by default."""
        return 1

    def operand(self, given: Array) -> Any:
        """Return a NumPy array as this library's own."""
        return given

    def function(self, workload: Workload, dtype: str) -> Function:
        """Return a function of the operands that returns a finished result, or raise UnsupportedError."""
        return partial(workload.formula, self.xp)

    def numpy(self, result: Any) -> Array:
        """Return a result as a NumPy array."""
        return np.asarray(result)


class Xtensor(Peer):
    """A plain function over arrays that xtensor owns, evaluated at its end."""

    name = needs = "xtensor"

    def threads(self) -> int:
        return int(os.environ.get("XTENSOR_NUM_THREADS", cores()))

    def operand(self, given: Array) -> Any:
        return self.xp.asarray(given, copy=True)

    def function(self, workload: Workload, dtype: str) -> Function:
        formula, xp = workload.formula, self.xp
        return lambda *operands: formula(xp, *operands).evaluate()


class XtensorFuse(Xtensor):
    """The same function under xt.fuse: the counterpart of jax.jit and torch.compile."""

    name = "xtensor.fuse"

    def function(self, workload: Workload, dtype: str) -> Function:
        fused: Function = self.xp.fuse(partial(workload.formula, self.xp))
        return lambda *operands: fused(*operands).evaluate()  # a plain call may leave it pending


class Numexpr(Peer):
    """The formula as a string."""

    name = needs = "numexpr"
    literal = re.compile(r"(?<![\w.])\d+\.\d*")

    def threads(self) -> int:
        return int(self.xp.nthreads)

    def function(self, workload: Workload, dtype: str) -> Function:
        if isinstance(workload.numexpr, str):
            raise UnsupportedError(workload.numexpr)
        text, constants = self.with_constants(workload.numexpr.text, dtype)
        names, evaluate = workload.numexpr.names or self.names_of(workload), self.xp.evaluate
        return lambda *operands: evaluate(text, {**names(*operands), **constants}, {})

    def with_constants(self, text: str, dtype: str) -> tuple[str, dict[str, Any]]:
        """Return a formula with names in the place of its floating literals, and their values in a dtype.

        numexpr takes a literal for float64, and would compute all of a float32 formula in that.
        """
        found = list(dict.fromkeys(self.literal.findall(text)))
        names = {value: f"k{number}" for number, value in enumerate(found)}
        scalar = np.dtype(dtype).type if found else float
        return self.literal.sub(lambda match: names[match[0]], text), {names[v]: scalar(v) for v in found}

    def names_of(self, workload: Workload) -> Callable[..., dict[str, Any]]:
        """Return what the names in a text stand for where they are those of the formula's parameters."""
        code = workload.formula.__code__
        parameters = code.co_varnames[1 : code.co_argcount]
        return lambda *operands: dict(zip(parameters, operands, strict=True))


class Torch(Peer):
    """PyTorch, each call at once; no operand asks for gradients."""

    name = needs = "torch"

    def __init__(self) -> None:
        super().__init__()
        self.torch, self.xp = self.xp, torch_names(self.xp)
        self.torch.set_grad_enabled(False)

    def threads(self) -> int:
        return int(self.torch.get_num_threads())

    def operand(self, given: Array) -> Any:
        return self.torch.from_numpy(given)


def torch_names(torch: Any) -> ModuleType:
    """Return PyTorch's functions, two of them under the standard's names."""
    names = ModuleType("torch_names")
    vars(names).update({name: value for name, value in vars(torch).items() if not name.startswith("__")})
    vars(names).update(max=torch.amax, astype=lambda x, dtype: x.to(dtype))
    return names


class TorchCompile(Torch):
    """torch.compile as it comes: compiled for the first size, then once for any size. Needs a C++ compiler."""

    name = "torch.compile"

    def function(self, workload: Workload, dtype: str) -> Function:
        formula, xp = workload.formula, self.xp
        self.torch.compiler.reset()  # or the recompilations of other workloads would count against this one

        def function(*operands: Any) -> Any:
            return formula(xp, *operands)

        return self.torch.compile(function)  # type: ignore[no-any-return]  # torch is not known to mypy


class Jax(Peer):
    """jax.jit, waiting for the result; float64 enabled."""

    name = needs = "jax"

    def __init__(self) -> None:
        super().__init__()
        self.jax, self.xp = self.xp, import_module("jax.numpy")
        self.jax.config.update("jax_platforms", "cpu")
        self.jax.config.update("jax_enable_x64", True)

    def threads(self) -> int:
        return cores()

    def operand(self, given: Array) -> Any:
        return self.xp.array(given).block_until_ready()

    def function(self, workload: Workload, dtype: str) -> Function:
        jitted = self.jax.jit(partial(workload.formula, self.xp))
        return lambda *operands: jitted(*operands).block_until_ready()


OWN: tuple[type[Peer], ...] = (Xtensor, XtensorFuse)
CONTESTANTS: tuple[type[Peer], ...] = (*OWN, Peer, Numexpr, Torch, TorchCompile, Jax)
PEERS = tuple(peer.name for peer in CONTESTANTS if peer not in OWN)


def installed() -> list[str]:
    """Return the names of the peers that are installed."""
    return [peer.name for peer in CONTESTANTS if peer not in OWN and find_spec(peer.needs)]


def contestants(names: list[str]) -> list[Peer]:
    """Return xtensor, plain and fused, and the peers of these names."""
    return [peer() for peer in CONTESTANTS if peer in OWN or peer.name in names]


@contextmanager
def cold_caches() -> Iterator[None]:
    """Let everyone's compiled code be kept in a fresh folder, so that nobody's first call finds an earlier run's."""
    with TemporaryDirectory(prefix="benchmarks-", ignore_cleanup_errors=True) as folder:
        fresh = {name: os.path.join(folder, name) for name in ("XTENSOR_CACHE_DIR", "TORCHINDUCTOR_CACHE_DIR")}
        with patch.dict(os.environ, fresh):
            yield
