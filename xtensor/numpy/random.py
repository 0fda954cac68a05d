"""numpy.random over tensors: NumPy's own streams, whose numbers come out as tensors."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial, wraps
from numbers import Number
from typing import Any, cast

import numpy

from ..autograd.rules import xt
from ..base.errors import expected
from ..random import Generator as _Generator
from ..storage.storage import refuse_capture
from ..tensor.face import Tensor, from_native
from ..tensor.operands import chosen_device
from ..tensor.scalars import valued
from .common import answers_itself, give
from .door import NUMBERS, are_numbers, drawn_at_once, drawn_from, through
from .names import attributes

__getattr__ = attributes("random")


class Generator(_Generator):
    """A numpy.random.Generator whose arrays are xtensor's tensors, with every distribution of NumPy's.

    A single number without a size is a Python float or int where NumPy's is, and is therefore no step of a captured
    function.
    """

    def __init__(self, bit_generator: Any) -> None:
        is_made = isinstance(bit_generator, numpy.random.Generator)
        native: Any = bit_generator if is_made else numpy.random.Generator(bit_generator)
        super().__init__(native, chosen_device(None, "Generator"))

    @property
    def bit_generator(self) -> Any:
        return self.native.bit_generator

    def random(self, size: Any = None, dtype: Any = None, out: Any = None) -> Any:
        return _into(out, "random", super().random, size, dtype)

    def standard_normal(self, size: Any = None, dtype: Any = None, out: Any = None) -> Any:
        return _into(out, "standard_normal", super().standard_normal, size, dtype)

    def standard_exponential(self, size: Any = None, dtype: Any = None, method: str = "zig", out: Any = None) -> Any:
        if method == "zig":
            return _into(out, "standard_exponential", super().standard_exponential, size, dtype)
        draw = partial(self.native.standard_exponential, method=cast(Any, method))
        drawn = partial(through, "random.standard_exponential", draw)
        return _into(out, "standard_exponential", lambda *given: drawn(given, {}), size, dtype or numpy.float64)

    def standard_gamma(self, shape: Any, size: Any = None, dtype: Any = None, out: Any = None) -> Any:
        return _into(out, "standard_gamma", partial(super().standard_gamma, shape), size, dtype)

    def choice(self, a: Any, size: Any = None, *rest: Any, **given: Any) -> Any:
        if _are_objects(a):  # drawn as they are: only a text or another object is no tensor
            return through("random.choice", self.native.choice, (a, size, *rest), given)
        return super().choice(a, size, *rest, **given)

    def permutation(self, x: Any, axis: int = 0) -> Any:
        if _are_objects(x):
            return through("random.permutation", self.native.permutation, (x, axis), {})
        return super().permutation(x, axis)

    def permuted(self, x: Any, axis: int | None = None, **given: Any) -> Any:
        if _are_objects(x) or given:
            return through("random.permuted", self.native.permuted, (x,), {"axis": axis, **given})
        return super().permuted(x, axis)

    def spawn(self, n_children: int) -> list[Any]:
        refuse_capture("random.spawn")
        return [Generator(child) for child in self.native.spawn(n_children)]

    def __getattr__(self, name: str) -> Any:
        return _method(self, name)

    def _keeps(self, found: Any) -> bool:
        return type(found) in NUMBERS


def _are_objects(a: Any) -> bool:
    """Return whether an array, list or tuple has elements that no tensor holds, such as texts or functions."""
    held = (Tensor, Number, numpy.generic, numpy.ndarray, list, tuple)
    return (
        answers_itself(a)
        or isinstance(a, (list, tuple))
        and not all(isinstance(x, held) and not isinstance(x, numpy.character) for x in a)
    )


def _into(out: Any, name: str, draw: Callable[..., Tensor], size: Any, dtype: Any) -> Tensor:
    """Return numbers that are drawn, written into `out` if it is given; then it may determine the size."""
    if out is None:
        return draw(size, dtype)
    if isinstance(out, Tensor) and out.dtype != numpy.dtype(numpy.float64 if dtype is None else dtype):
        raise TypeError(expected(name, "out", f"hold {numpy.dtype(dtype or numpy.float64)}", out.dtype))
    found: Tensor = give(name, draw(out.shape if size is None else size, dtype), out)
    return found


class RandomState:
    """A numpy.random.RandomState that returns tensors; one of NumPy's own may be given as the seed."""

    def __init__(self, seed: Any = None) -> None:
        theirs = numpy.random.RandomState
        self.native: Any = seed if isinstance(seed, theirs) else theirs(_as_seed(seed))

    def __getattr__(self, name: str) -> Any:
        return vars(self).setdefault(name, _method(self, name))  # making one takes longer than most draws

    def __reduce__(self) -> Any:
        return RandomState, (self.native,)


class _Mtrand:
    """NumPy's module of that name: programs take the global stream, `np.random.mtrand._rand`, where no seed is given,
    and ask whether it is a RandomState.
    """

    _rand = RandomState(numpy.random.mtrand._rand)

    def __getattr__(self, name: str) -> Any:
        return getattr(xt.numpy.random, name)


mtrand = _Mtrand()


def _method(self: Any, name: str) -> Any:
    """Return a method of the generator behind an object, as a function whose arrays are tensors."""
    if name.startswith("__") or name == "native":
        raise AttributeError(name)
    found = getattr(self.native, name)
    if not callable(found):
        return found
    label = f"random.{name}"
    return drawn_at_once(label, found, lambda *args, **given: through(label, found, args, given))


def _at_once(name: str) -> Any:
    """Return a method of generators that asks NumPy's directly where numbers say what is drawn."""
    ours = getattr(Generator, name)

    @wraps(ours)
    def method(self: Generator, *args: Any, **given: Any) -> Any:
        if not are_numbers(args, given):
            return ours(self, *args, **given)
        found = getattr(self.native, name)(*args, **given)
        return found if type(found) in NUMBERS else drawn_from(found, self.device, partial(beside, self))

    def beside(self: Generator, found: Any) -> Any:
        return valued(from_native(numpy.asarray(found), self.device))

    return method


def _draw_at_once() -> None:
    """Give generators such methods for all of NumPy's distributions."""
    for name in vars(_Generator):
        if (
            callable(getattr(numpy.random.Generator, name, None))
            and name[0] != "_"
            and name not in ("shuffle", "spawn")
        ):
            setattr(Generator, name, _at_once(name))


_draw_at_once()


def default_rng(seed: Any = None) -> Generator:
    """Return a Generator over NumPy's stream for a seed."""
    return seed if isinstance(seed, Generator) else Generator(numpy.random.default_rng(_as_seed(seed)))


def _as_seed(seed: Any) -> Any:
    """Return a seed with integers in place of its tensors."""
    if isinstance(seed, Tensor):
        return seed.tolist()
    return [*map(_as_seed, seed)] if isinstance(seed, (list, tuple)) else seed
