"""The door to the library: every function of NumPy that is not written here is called on the tensors' own arrays.

On another device, it is the function of that name in the device's library. Arguments that a function writes to pass the
write barrier, results that share memory with an operand share its owner, and a gradient that comes back to such a call
raises an error that names the function.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial, reduce, wraps
from typing import Any

import numpy

from ..autograd.history import refuse_leaf, written
from ..autograd.rules import Like, Rule, xt
from ..autograd.tape import Step, active, is_recording, remember, step_of, steps_of
from ..base.dtypes import can_hold, canonical, is_held
from ..base.errors import expected
from ..base.options import thin_closed
from ..base.profiling import noting, observers
from ..calls.library import captured_call, native_of, root_of
from ..calls.writes import writable, write_captured
from ..devices import Device
from ..devices.cpu import CPU
from ..storage.blob import TBlob
from ..storage.storage import Native, refuse_capture, watchers, watching
from ..tensor.face import CPU_DEVICE, Tensor, face, from_native, wrap
from ..tensor.operands import chosen_device, common_device
from ..tensor.scalars import valued
from .common import constant, has_gradient, refuse_derived
from .thin import AtOnce

# The functions that write their first argument, by its name; `out`, which any function may have, is written too.
WRITES = {
    "copyto": "dst",
    "fill_diagonal": "a",
    "place": "arr",
    "put": "a",
    "put_along_axis": "arr",
    "putmask": "a",
    "random.shuffle": "x",
    "ufunc.at": "a",
}

# The functions, beside universal ones, that a captured function may call as steps: shapes and dtypes of their results
# depend on no values, and the results share no memory with an operand.
STEADY = frozenset(
    (
        *(
            "delete",
            "histogram",
            "insert",
            "interp",
            "argpartition",
            "i0",
            "lexsort",
            "packbits",
            "partition",
            "ravel_multi_index",
            "sort_complex",
            "unpackbits",
        ),
        *("unravel_index", "unwrap", "linalg.tensorinv", "linalg.tensorsolve"),
    )
)


# Functions that make an array from numbers alone.
MADE = frozenset(("bartlett", "blackman", "geomspace", "hamming", "hanning", "kaiser"))

# The methods of universal functions that may be called as steps, too.
_STEADY_METHODS = frozenset(("accumulate", "reduce", "reduceat"))


def _is_steady(name: str) -> bool:
    """Return whether a captured function may call a NumPy function as a step."""
    inner, _, last = name.rpartition(".")
    name = inner if last in _STEADY_METHODS else name
    return name in STEADY or name in MADE or isinstance(found_in(numpy, name), numpy.ufunc)


class Passage:
    """One call through the door: the arrays of its tensors, and the owners of the memory of its results."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.operands: list[tuple[Tensor, Native]] = []

    def there(self, x: Any, *, written: bool = False) -> Any:
        """Return an argument with arrays in place of its tensors."""
        if type(x) is Tensor:
            native = self._to_write(x) if written else native_of(x)
            self.operands.append((x, native))
            return native
        if written and type(x) is list:  # the list itself is written, as by random.shuffle
            return x
        if type(x) in (list, tuple):
            return type(x)([self.there(one, written=written) for one in x])
        refuse_derived(x, self.name)
        return x

    def _to_write(self, x: Tensor) -> Native:
        if active[0] and step_of(x) is not None:
            refuse_leaf(x, self.name)
            must = "have no gradient, which the library's function would lose (use x.detach())"
            raise RuntimeError(expected(self.name, "the target", must, "one that has"))
        x.evaluate()
        return writable(x, self.name)

    def back(self, result: Any, device: Device) -> Any:
        """Return a result with tensors in place of its arrays and numbers."""
        if isinstance(result, (numpy.ndarray, numpy.generic)) and not can_hold(result.dtype):
            return result
        if isinstance(result, (numpy.ndarray, numpy.generic)) or (device != "cpu" and device.backend.owns(result)):
            return self._tensor(result, device)
        if isinstance(result, (list, tuple)):
            parts = [self.back(one, device) for one in result]
            return type(result)(*parts) if hasattr(result, "_fields") else type(result)(parts)
        return xt.numpy.views.Archive(result) if self.name == "load" else result

    def _beside(self, native: Native, device: Device) -> Tensor:
        """Return a tensor over an array, with the owner of the operand in whose memory it lies, if there is one."""
        for x, own in self.operands:
            if root_of(own) is root_of(native) or (device == "cpu" and numpy.may_share_memory(own, native)):
                return face(TBlob.of(x.owner, native, device))
        # Memory that is no array's own, as that of `frombuffer`, may be written by others.
        shared = type(native) is numpy.ndarray and not isinstance(root_of(native), numpy.ndarray)
        return from_native(native, device, shared=shared)

    def _tensor(self, result: Any, device: Device) -> Tensor:
        native = device.backend.asarray(result)
        canonical(native.dtype, self.name, "the result's dtype")
        found = next((x for x, own in self.operands if own is native), None)
        if found is not None:
            return found
        found = self._beside(native, device)
        steps = steps_of([x for x, _ in self.operands]) if active[0] else None
        if steps is not None:  # there is no rule for this function: going back raises that
            remember(Rule(self.name, {}), (("x", None),) * len(steps), steps, found)
        return valued(found) if isinstance(result, numpy.generic) else found


def through(name: str, function: Callable[..., Any] | None, args: tuple[Any, ...], given: dict[str, Any]) -> Any:
    """Call a function of the library on tensors; function: None for the one of that name in the device's library."""
    if watchers and watching() is not None:
        step = _written_step(name, function, args, given) if name in WRITES else None
        if function is None and step is None:
            step = _step(name, args, given)
        if step is not None:
            return step()
        refuse_capture(name)
    passage, writes = Passage(name), WRITES.get(name)
    first = [passage.there(x, written=writes is not None) for x in args[:1]]
    rest = [passage.there(x) for x in args[1:]]
    options = {key: passage.there(x, written=key in ("out", writes)) for key, x in given.items()}
    tensors = [x for x, _ in passage.operands]
    target = given.get("out") if writes is None else given.get(writes, args[0] if args else None)
    if isinstance(target, numpy.ndarray) and has_gradient(*tensors):
        must = "be a tensor, as what is written has a gradient, which would be lost"
        raise RuntimeError(expected(name, "the target", must, "an array of NumPy's"))
    device = common_device(name, tensors)
    backend = device.backend if tensors else CPU  # results from numbers alone are moved to the default device
    found = function or found_in(backend.library, name)
    if found is None or (function is not None and backend is not CPU):
        raise NotImplementedError(f"{name}: {device} has no function of this name")
    call = noting(backend.call, backend, name) if observers else backend.call
    result = passage.back(call(found, *first, *rest, **options), device)
    if active[0] and type(target) is Tensor and is_recording():
        _note_written(name, target, [x for x in tensors if x is not target])
    return result


def _note_written(name: str, target: Tensor, others: list[Tensor]) -> None:
    """Record that a target holds a function's result of other tensors: if a gradient goes back from there to these,
    that raises that no rule is known.
    """
    steps = [step for step in steps_of(others) or () if step is not None]
    if steps and target.dtype.kind in "fc":
        like = Like(target.shape, target.dtype, target.device)
        written(target, Step(Rule(name, {}), tuple(steps), like, (("x", None),) * len(steps)))


def _step(name: str, args: tuple[Any, ...], given: dict[str, Any]) -> Callable[[], Any] | None:
    """Return a call as a step of the function that is being captured, or its result from numbers alone as a constant;
    None if it is neither.

    NumPy arrays among the arguments may hold other values in another call; with several results gradients are lost.
    """
    if given.get("out") is not None or not _is_steady(name):
        return None
    tensors: list[Tensor] = []
    try:
        places, options = _emptied(args, tensors), {key: _emptied(x, tensors) for key, x in given.items()}
    except _ArrayError:
        return None
    if not tensors:
        return (lambda: constant(found_in(numpy, name)(*args, **given))) if name in MADE else None
    if active[0] and steps_of(tensors) is not None:
        return None
    device = common_device(name, tensors)
    found = found_in(device.backend.library, name)
    function = partial(_filled, found, places, options)
    return None if found is None else partial(captured_call, watching(), tuple(tensors), name, function, device)


def _written_step(
    name: str, function: Callable[..., Any] | None, args: tuple[Any, ...], given: dict[str, Any]
) -> Callable[[], None] | None:
    """Return a call that writes its first argument, and follows from its arguments alone, as a step; else None."""
    tensors: list[Tensor] = []
    if name == "random.shuffle" or not args or type(args[0]) is not Tensor:
        return None
    try:
        places, options = _emptied(args, tensors), {key: _emptied(x, tensors) for key, x in given.items()}
    except _ArrayError:
        return None
    found = function or found_in(common_device(name, tensors).backend.library, name)
    if found is None or (active[0] and steps_of(tensors) is not None):
        return None
    return partial(write_captured, watching(), partial(_filled, found, places, options), tensors, name)


class _Place(int):
    """A placeholder for a tensor in an argument: its number among all tensors of the call."""


def _emptied(x: Any, tensors: list[Tensor]) -> Any:
    """Return an argument with places for tensors, which are added to a list; raises _ArrayError for arrays in it."""
    if isinstance(x, numpy.ndarray):
        raise _ArrayError
    if isinstance(x, (list, tuple)):
        return type(x)([_emptied(one, tensors) for one in x])
    if type(x) is not Tensor:
        return x
    tensors.append(x)
    return _Place(len(tensors) - 1)


class _ArrayError(Exception):
    """Raised if an argument holds a NumPy array."""


def _put(x: Any, natives: tuple[Native, ...]) -> Any:
    """Return arguments with arrays in place of the placeholders."""
    if type(x) is _Place:
        return natives[x]
    return type(x)([_put(one, natives) for one in x]) if isinstance(x, (list, tuple)) else x


def _filled(function: Callable[..., Any], args: Any, given: dict[str, Any], *natives: Native) -> Any:
    """Call a function with arrays in place of the placeholders."""
    return function(*_put(args, natives), **{key: _put(x, natives) for key, x in given.items()})


def found_in(library: Any, name: str) -> Any:
    """Return the attribute of a library with a dotted name, None if it has none."""
    return reduce(lambda module, part: getattr(module, part, None), name.split("."), library)


def door(name: str) -> Callable[..., Any]:
    """Return the library's function of this name, such as "linalg.cond", as a function of tensors."""
    theirs = found_in(numpy, name)

    def call(*args: Any, **given: Any) -> Any:
        return through(name, None, args, given)

    inner, _, call.__name__ = name.rpartition(".")
    call.__qualname__ = call.__name__
    call.__module__ = f"{__package__}.{inner}" if inner else str(__package__)  # where a pickle finds it
    call.__doc__ = summary(theirs)
    call.library = theirs  # type: ignore[attr-defined]
    if name.startswith("random."):
        return drawn_at_once(name, theirs, call)
    return call if name in WRITES or name == "load" else AtOnce(call, theirs)


# The types of single random numbers from NumPy, and of arguments that are no tensors.
NUMBERS = frozenset((bool, int, float))


def are_numbers(args: tuple[Any, ...], given: dict[str, Any]) -> bool:
    """Return whether all arguments are numbers, or shapes for what is drawn, and no capture is watching."""
    if watchers or observers:
        return False
    if not given and NUMBERS.issuperset(map(type, args)):  # the commonest case, found out at once
        return True
    if given and (len(given) > 1 or "size" not in given):
        return False
    for x in (*args, *given.values()):
        if not NUMBERS.issuperset(map(type, x) if type(x) is tuple else (type(x),)) and x is not None:
            return False
    return True


def drawn_from(found: Any, device: Device | None, otherwise: Callable[[Any], Any]) -> Any:
    """Return what NumPy has just drawn as a number or a thin face, a value of a scalar; `otherwise` takes other things.

    device: of the generator, None for the default one.
    """
    if type(found) in NUMBERS:
        return found
    if not isinstance(found, (numpy.ndarray, numpy.generic)) or thin_closed[0] or not is_held(found.dtype):
        return otherwise(found)
    is_here = (device or chosen_device(None, "random")) is CPU_DEVICE
    return wrap(found, CPU_DEVICE) if is_here else otherwise(found)


def drawn_at_once(name: str, theirs: Callable[..., Any], call: Callable[..., Any]) -> Callable[..., Any]:
    """Return a function that draws random numbers; where numbers say which, NumPy is called directly."""

    @wraps(call)
    def drawn(*args: Any, **given: Any) -> Any:
        if not are_numbers(args, given):
            return call(*args, **given)
        return drawn_from(theirs(*args, **given), None, beside)

    def beside(found: Any) -> Any:
        return through(name, lambda: found, (), {})

    return drawn


def summary(theirs: Any) -> str:
    """Return the first sentence of NumPy's documentation of one of its functions."""
    paragraphs = (getattr(theirs, "__doc__", None) or "").strip().split("\n\n")
    lines = [text for text in paragraphs if text and not text.split("\n")[0].rstrip().endswith(")")]
    return " ".join((lines or paragraphs)[0].split())
