"""Classes that inherit from `ndarray`: of NumPy's own arrays, as tensors have no subclasses."""

from __future__ import annotations

from contextlib import suppress
from functools import wraps
from typing import Any

import numpy

from ..autograd.rules import xt
from ..base.dtypes import can_hold
from ..tensor.face import Tensor


class Derived(numpy.ndarray):
    """The base of classes that inherit from `xt.numpy.ndarray`: of NumPy's own arrays, as tensors have no subclasses.
    NumPy's functions and operators compute with them, and know what the class does with results. Where it says so by
    a method of its own, `__array_wrap__`, that is given tensors.
    """

    def __init_subclass__(cls, **options: Any) -> None:
        super().__init_subclass__(**options)
        if "__array_wrap__" in vars(cls):
            cls.__array_wrap__ = _given_tensors(vars(cls)["__array_wrap__"])  # type: ignore[method-assign]

    def __array_wrap__(self, array: Any, *rest: Any, **given: Any) -> Any:
        plain = numpy.asarray(array) if isinstance(array, Tensor) else array
        return super().__array_wrap__(plain, *rest, **given)

    def __getitem__(self, key: Any) -> Any:
        return super().__getitem__(_plain_key(key))

    def __setitem__(self, key: Any, value: Any) -> None:
        super().__setitem__(_plain_key(key), value)

    @property
    def flat(self) -> Any:
        """The elements in C order, as a tensor gives them, which takes masks that are tensors."""
        return xt.asarray(self, copy=False).flat if can_hold(self.dtype) else super().flat

    @flat.setter
    def flat(self, value: Any) -> None:
        self.flat[...] = value

    def view(self, *given: Any, **named: Any) -> Any:
        ours, wanted = xt.numpy.ndarray, (*given, *named.values())
        plain = {name: numpy.ndarray if one is ours else one for name, one in named.items()}
        seen: Any = super().view(*[numpy.ndarray if one is ours else one for one in given], **plain)
        return xt.asarray(seen, copy=False) if any(one is ours for one in wanted) else seen


def _plain_key(key: Any) -> Any:
    """Return a key with arrays in place of tensors that have axes: an empty mask that is none of its own arrays NumPy
    takes for integers.
    """
    if type(key) is tuple:
        return tuple([_plain_key(one) for one in key])
    return numpy.asarray(key) if type(key) is Tensor and key.shape else key


def _given_tensors(method: Any) -> Any:
    """Return a class's own `__array_wrap__` that takes a tensor over the memory of NumPy's result, which it may view
    as `xt.numpy.ndarray`.
    """

    @wraps(method)
    def wrapped(self: Any, array: Any, *rest: Any, **given: Any) -> Any:
        if type(array) is numpy.ndarray:
            with suppress(TypeError):  # objects and texts stay NumPy's
                array = xt.asarray(array, copy=False)
        return method(self, array, *rest, **given)

    return wrapped
