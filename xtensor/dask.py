"""Dask's arrays over tensors, loaded by `import xtensor.dask` or as Dask's backend of the name "xtensor".

Chunks stay tensors through NumPy's protocols alone (xtensor.numpy). This file has the rest that Dask needs: creation of
arrays as tensors, percentiles, the memory that a chunk takes, and tasks that compute the tensors that they return.
Workers load this module with the first task that was made under it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import dask.array as da
import dask.config as config
import numpy
from dask._task_spec import Task, convert_legacy_graph
from dask.array import optimization
from dask.array.backends import ArrayBackendEntrypoint, array_creation_dispatch, percentile
from dask.array.dispatch import percentile_lookup, to_numpy_dispatch
from dask.sizeof import sizeof
from dask.utils import ensure_dict

from .standard.creation import asarray
from .tensor.face import Tensor, evaluate

__all__ = ["Backend", "BitGenerator", "Computed", "optimize"]


class Computed:
    """A task's function, which computes the tensors that it returns.

    A pending tensor would keep alive the blocks that it is made from, which the scheduler takes to be freed, and would
    leave its work to whichever task reads it.
    """

    def __init__(self, function: Callable[..., Any]) -> None:
        self.function = function

    def __call__(self, *args: Any, **given: Any) -> Any:
        """Call the function, and compute what it has left pending."""
        result = self.function(*args, **given)
        parts = result.values() if type(result) is dict else result if type(result) in (list, tuple) else (result,)
        evaluate(*(part for part in parts if isinstance(part, Tensor)))
        return result


def optimize(graph: Any, keys: Any, **given: Any) -> Any:
    """Return a graph as Dask optimizes it, with each task computing the tensors that it returns.

    Steps that Dask has put into one task are still recorded together. This becomes Dask's setting `array_optimize` when
    the module is loaded, unless that is already set.
    """
    tasks = convert_legacy_graph(ensure_dict(optimization.optimize(graph, keys, **given)))
    return {key: _computing(task) for key, task in tasks.items()}


def _computing(task: Any) -> Any:
    """Return a task that computes the tensors that it returns; a node that calls nothing is returned as it is."""
    if type(task) is not Task or isinstance(task.func, Computed):
        return task
    copy = task.copy()
    copy.func = Computed(task.func)
    return copy


class BitGenerator(numpy.random.PCG64):
    """NumPy's PCG64. Dask draws from the `random.default_rng` of the library whose module this class is in."""


class Backend(ArrayBackendEntrypoint):  # type: ignore[misc]
    """Dask's creation functions under `dask.config.set({"array.backend": "xtensor"})`."""

    @classmethod
    def to_backend_dispatch(cls) -> Callable[..., Tensor]:
        """Return the function that makes a tensor from a chunk."""
        return asarray

    @staticmethod
    def to_backend(data: Any, **given: Any) -> Any:
        """Return a Dask array whose chunks are tensors."""
        return data if isinstance(data._meta, Tensor) else data.map_blocks(asarray, **given)

    @property
    def default_bit_generator(self) -> type[BitGenerator]:
        """The source of the numbers of `dask.array.random`."""
        return BitGenerator

    @property
    def RandomState(self) -> Any:  # noqa: N802
        """Raise an error: xtensor does not have NumPy's legacy generators."""
        raise NotImplementedError("dask.array.random: with xtensor use dask.array.random.default_rng(seed)")


def _creator(name: str) -> staticmethod[..., Any]:
    """Return Dask's creation function of this name, which makes arrays like a tensor unless told otherwise."""

    def create(*args: Any, **given: Any) -> Any:
        like = "like" if name == "arange" else "meta"
        if given.get(like) is None:
            given[like] = asarray(0.0)
        with config.set({"array.backend": "numpy"}):
            return getattr(da, name)(*args, **given)

    return staticmethod(create)


for _name in ("ones", "zeros", "empty", "full", "arange"):
    setattr(Backend, _name, _creator(_name))

array_creation_dispatch.register_backend("xtensor", Backend())
percentile_lookup.register(Tensor, percentile)
to_numpy_dispatch.register(Tensor, numpy.asarray)
sizeof.register(Tensor, lambda x: x.nbytes)
config.update_defaults({"array_optimize": optimize})
