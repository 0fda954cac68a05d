"""Compositions that are called at once: after some calls of a kind they run as captured functions (calls/capture.py).

Step by step, each of a dozen functions calls NumPy, or is recorded; a captured function runs all of them as one
schedule. Where a gradient is recorded, the tape gets a single step whose way back is a captured function, too. As with
the engines (run/engines.py), the choice, and with it the bits of results, depends on how often a kind has come.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import wraps
from typing import Any, NamedTuple, TypeVar, cast

import numpy as np

from ..autograd.rules import xt
from ..autograd.tape import differentiable, is_recording, steps_of
from ..base.caches import make_room
from ..base.options import Settings, settings, thin_closed
from ..plan.costs import COMPOSED_AT_ONCE, EXCHANGED_AFTER, PREPARED_AFTER
from ..storage.storage import watchers
from ..tensor.face import CPU_DEVICE, Tensor
from ..tensor.scalars import is_value, marked
from .record import can_generate, native_up_to
from .thin import exchange, is_exchanged

F = TypeVar("F", bound=Callable[..., Any])

# The most kinds of arguments that one function remembers.
REMEMBERED = 256

# The most of these for which a form is captured: a captured function remembers few more (calls/dispatch.py), and calls
# of those that it forgets record the function's steps each time.
MOST_KINDS = 48

# Types of constants that are indistinguishable where they are equal.
_PLAIN = frozenset((int, bool, str, type(None)))


class Form(NamedTuple):
    """A composition whose constants are in place, as functions of its tensors.

    plain, captured: the composition. number: of operands. wanted: those to which a gradient goes, by place. back,
    plain_back: from the cotangent of the result, and all operands, to the cotangents of these; captured, and not.
    """

    plain: Callable[..., Tensor]
    captured: Callable[..., Tensor]
    number: int
    wanted: tuple[int, ...] = ()
    back: Callable[..., Any] = tuple
    plain_back: Callable[..., Any] = tuple

    def in_order(self, wanted: Sequence[Tensor], others: Sequence[Tensor]) -> list[Tensor]:
        """Return all operands in their order, given those to which a gradient goes, and the others."""
        there, rest = iter(wanted), iter(others)
        return [next(there) if n in self.wanted else next(rest) for n in range(self.number)]


class CapturedCalls:
    """The calls of a composition that run as captured functions.

    most: bytes of the largest operand of such a call; recorded: of one where a gradient is recorded. waits: whether
    other calls stay as they are until machine code dispatches captured functions, or has to be compiled for that.
    """

    def __init__(
        self, function: Callable[..., Tensor], most: int, recorded: int = COMPOSED_AT_ONCE, *, waits: bool = False
    ) -> None:
        self._function, self._most, self._recorded, self._waits = function, most, recorded, waits
        self._kinds: dict[Any, int | Form | None] = {}
        self._forms: dict[Any, Form] = {}

    def call(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Tensor | None:
        """Return the result of a call; None where it is to be computed in another way."""
        if thin_closed[0] or watchers or not _asks_for_nothing(settings()) or not can_generate():
            return None
        tensors = [x for x in (*args, *kwargs.values()) if type(x) is Tensor]
        steps = steps_of(tensors)
        kind = self._kind_of(args, kwargs, is_recorded=steps is not None)
        if kind is None:
            return None
        wanted = tuple([n for n, step in enumerate(steps or ()) if step is not None])
        key = (*kind, *wanted, len(wanted))
        form = self._kinds.get(key, 0)
        if isinstance(form, int):
            form = self._counted(key, form, args, kwargs, wanted)
        if form is None:
            return None
        if not wanted:
            return form.captured(*map(_shown, tensors))
        others = tuple([x for n, x in enumerate(tensors) if n not in wanted])
        return composition(tuple([tensors[n] for n in wanted]), others, form)

    def _counted(self, key: Any, count: int, *given: Any) -> Form | None:
        """Return the form of calls of a kind, if it has come often enough; None for one kind too many."""
        if not count:
            make_room(self._kinds, REMEMBERED)
        self._kinds[key] = count + 1
        waits = self._waits and not given[-1] and not is_exchanged()
        if count + 1 < (EXCHANGED_AFTER if waits else PREPARED_AFTER):
            return None
        form = self._form_of(*given)
        if waits:
            exchange()
        is_admitted = [*self._kinds.values()].count(form) < MOST_KINDS
        self._kinds[key] = form if is_admitted else None
        return form if is_admitted else None

    def _kind_of(self, args: tuple[Any, ...], kwargs: dict[str, Any], *, is_recorded: bool) -> list[Any] | None:
        """Return what calls of a kind have in common; None where an operand is not computed, large or elsewhere, or
        another argument is no constant. Operands that are kept for the way back need not be computed yet.
        """
        kind: list[Any] = [*kwargs]
        most = self._recorded if is_recorded else self._most
        for x in (*args, *kwargs.values()) if kwargs else args:
            if type(x) is Tensor:
                fits = x.device is CPU_DEVICE and x.nbytes <= most
                if not fits or not (is_recorded or native_up_to(x, most) is not None):
                    return None
                kind += (x.dtype.num, x.shape)
                continue
            constant = told_apart(x)
            if constant is None:
                return None
            kind += constant
        return kind

    def _form_of(self, args: tuple[Any, ...], kwargs: dict[str, Any], wanted: tuple[int, ...]) -> Form:
        """Return the form of a call."""
        places = tuple([n for n, x in enumerate(args) if type(x) is Tensor])
        names = tuple([name for name, x in kwargs.items() if type(x) is Tensor])
        constants = tuple([None if n in places else x for n, x in enumerate(args)])
        given = tuple([(name, x) for name, x in kwargs.items() if name not in names])
        key = places, names, tuple(map(told_apart, constants)), tuple([(name, told_apart(x)) for name, x in given])
        form = self._forms.get(key)
        if form is None:
            make_room(self._forms, REMEMBERED)
            plain = _in_place(self._function, places, names, constants, given)
            form = self._forms[key] = Form(plain, xt.fuse(plain), len(places) + len(names))
        own = self._forms.get((key, wanted)) if wanted else form
        if own is None:
            back = _way_back(form.plain, wanted)
            own = self._forms[key, wanted] = form._replace(wanted=wanted, back=xt.fuse(back), plain_back=back)
        return own


def _in_place(
    function: Callable[..., Tensor],
    places: tuple[int, ...],
    names: tuple[str, ...],
    constants: tuple[Any, ...],
    given: tuple[tuple[str, Any], ...],
) -> Callable[..., Tensor]:
    """Return a function of the tensors at some places, and under some names, of a function's arguments."""

    def call(*operands: Tensor) -> Tensor:
        args = list(constants)
        for place, x in zip(places, operands[: len(places)], strict=True):
            args[place] = x
        return function(*args, **dict(given), **dict(zip(names, operands[len(places) :], strict=True)))

    return call


def _way_back(plain: Callable[..., Tensor], wanted: tuple[int, ...]) -> Callable[..., tuple[Tensor, ...]]:
    """Return a function from the cotangent of a result, and all operands, to the cotangents of the wanted ones."""

    def back(g: Tensor, *operands: Tensor) -> tuple[Tensor, ...]:
        def some(*mine: Tensor) -> Tensor:
            every = list(operands)
            for place, x in zip(wanted, mine, strict=True):
                every[place] = x
            return plain(*every)

        found: tuple[Tensor, ...] = xt.vjp(some, *[operands[place] for place in wanted])[1](g)
        return found

    return back


def _cotangents(g: Tensor, operands: tuple[Tensor, ...], others: tuple[Tensor, ...], form: Form) -> tuple[Tensor, ...]:
    """The cotangents of operands; where their own are asked for, step by step."""
    given = g, *form.in_order(operands, others)
    found: tuple[Tensor, ...] = form.plain_back(*given) if is_recording() else form.back(*map(_shown, given))
    return found


@differentiable(operands=_cotangents)
def composition(operands: tuple[Tensor, ...], others: tuple[Tensor, ...], form: Form) -> Tensor:
    """Return a composition of tensors; a gradient goes to `operands`, and none to others."""
    return form.captured(*map(_shown, form.in_order(operands, others)))


def _shown(x: Tensor) -> Tensor:
    """Return a constant over the memory of a computed tensor: a thin face, with which machine code takes a call."""
    if type(x._content) is np.ndarray:
        return x
    tensor, blob = Tensor(), x.blob
    tensor._content, tensor._owner, tensor._blob, tensor._step = blob.native(), blob.owner, blob, None
    return marked(tensor, is_value(x))


def composed_up_to(most: int, *, waits: bool = False) -> Callable[[F], F]:
    """Have calls of a function on arrays of up to so many bytes run as captured functions after some calls of a kind,
    also where a gradient is recorded. waits: as of CapturedCalls, for functions whose steps are few.

    The function returns one tensor; what it computes depends on its constants and on the tensors alone.
    """

    def decorate(function: F) -> F:
        plain: Callable[..., Tensor] = function
        captured = CapturedCalls(plain, most, most, waits=waits)

        @wraps(function)
        def call(*args: Any, **kwargs: Any) -> Tensor:
            found = captured.call(args, kwargs)
            return plain(*args, **kwargs) if found is None else found

        return cast(F, call)

    return decorate


composed = composed_up_to(COMPOSED_AT_ONCE)


def _asks_for_nothing(limits: Settings) -> bool:
    """Return whether settings leave the way of computing small arrays to us: they are no part of a kind."""
    return limits.engine == limits.lazy == "auto" and not limits.fast_math


def told_apart(x: Any) -> tuple[Any, ...] | None:
    """Return a key that distinguishes a Python constant from others; None for any other value."""
    kind = type(x)
    if kind is float:
        return (x.hex(),)  # -0.0 is not 0.0
    if kind in _PLAIN or (kind is tuple and all(type(one) is int for one in x)):
        return kind, x
    return None
