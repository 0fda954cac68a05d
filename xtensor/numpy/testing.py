"""numpy.testing over tensors: NumPy's own assertions, on the elements that its arrays and scalars would hold.

NumPy's functions are not told of tensors through its protocols: `assert_equal` takes one for an object of unknown type.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import Any

import numpy

from ..tensor.face import Tensor
from ..tensor.operands import foreign_array
from ..tensor.scalars import is_value

globals().update(__all__=numpy.testing.__all__)  # what `from xtensor.numpy.testing import *` takes
# These call the function that they are given, with the arguments after it: it may be one that wants tensors.
CALLING = frozenset(f"assert_{name}" for name in ("raises", "raises_regex", "warns", "no_warnings", "no_gc_cycles"))


def __getattr__(name: str) -> Any:
    """Return NumPy's object of this name, an assertion about values as one that takes tensors, and remember it."""
    theirs = getattr(numpy.testing, name)
    is_of_values = name.startswith("assert_") and not isinstance(theirs, type) and name not in CALLING
    found = globals()[name] = _over_tensors(theirs) if is_of_values else theirs
    return found


def __dir__() -> list[str]:
    return sorted(numpy.testing.__all__)


def _over_tensors(theirs: Callable[..., Any]) -> Callable[..., Any]:
    @wraps(theirs)
    def call(*args: Any, **given: Any) -> Any:
        __tracebackhide__ = True  # as in NumPy's: pytest shows the line of the test
        return theirs(*map(_native, args), **{key: _native(x) for key, x in given.items()})

    return call


def _native(x: Any) -> Any:
    """Return an argument with NumPy's arrays and scalars in place of its tensors."""
    if type(x) is Tensor:
        native = x.detach().host()
        return native[()] if is_value(x) else native
    if type(x) in (list, tuple):
        return type(x)([_native(one) for one in x])
    if type(x) is not dict:
        return _native(found) if type(found := foreign_array(x)) is Tensor else x
    return {key: _native(one) for key, one in x.items()}
