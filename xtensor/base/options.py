"""The settings a user can turn, their environment variables, and `xt.options(...)`.

Settings travel in a context variable, so threads and async tasks each have their own. The environment is read
at first use, never at import.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from contextlib import ContextDecorator, suppress
from contextvars import ContextVar, Token
from typing import Any, Literal, NamedTuple, get_args

from .caches import make_room
from .errors import check_choice, expected, one_of
from .locks import fork_safe_lock

Lazy = Literal["auto", "always", "never"]
Engine = Literal["auto", "direct", "interpret", "llvm"]
Gradients = Literal["asked", "always"]
Numpy = Literal["stay", "convert"]
LAZY: tuple[Lazy, ...] = get_args(Lazy)
ENGINES: tuple[Engine, ...] = get_args(Engine)
GRADIENTS: tuple[Gradients, ...] = get_args(Gradients)
NUMPY: tuple[Numpy, ...] = get_args(Numpy)
SHOWN = ("plan", "llvm")


# What `reproducible` stands for, and the bytes that pending work may then keep alive where no limit is set.
_REPRODUCIBLE: dict[str, Any] = {"lazy": "always", "engine": "llvm", "fast_math": False}
_PINNED = 1 << 30


class Settings(NamedTuple):
    """Every setting, as one immutable value.

    lazy: when calls are recorded: "auto" (where the data is large enough for recording to pay), "always", "never".
    engine: what runs recorded calls: "auto" (whichever is fastest), "direct" (one library call after the other),
        "interpret" (library calls on blocks that fit the cache), "llvm" (generated code).
    device: the device of arrays created without `device=`.
    threads: how many threads a computation may use; None for as many as the process has processors.
    fast_math: whether generated code may contract a * b + c into one rounding.
    tf32: whether cuDNN may round the operands of float32 convolutions to 10 bits, as tensor cores do.
    reproducible: whether elementwise functions and reductions give the same bits on every processor that the engine
        "llvm" supports. All calls are then recorded (lazy="always") and run by that engine; work with inexact dtypes
        that it does not support raises an error. Matrix products, linalg and fft are still computed by the libraries.
    fuse_limit: a pending graph of more steps than this is evaluated.
    pinned_limit: when pending work keeps more bytes alive than this that nothing else holds, it is evaluated; a call
        whose result alone is larger is not recorded. None for half of the free memory, with no limit on the size of one
        result.
    cache_dir: the folder of compiled kernels, "" for none; None for xtensor/kernels in the user's cache folder.
    show: what is printed to standard error during evaluation: "plan", "llvm", or both separated by a comma.
    gradients: which calls are recorded for gradients: "asked" (those that depend on a tensor whose gradient is wanted),
        "always" (all with floating-point operands; for testing that this affects only the time).
    numpy: what NumPy's own functions return for tensors: "stay" (tensors, by the functions of xtensor.numpy), "convert"
        (NumPy arrays).
    """

    lazy: Lazy = "auto"
    engine: Engine = "auto"
    device: str = "cpu"
    threads: int | None = None
    fast_math: bool = False
    tf32: bool = False
    reproducible: bool = False
    fuse_limit: int = 1024
    pinned_limit: int | None = None
    cache_dir: str | None = None
    show: str = ""
    gradients: Gradients = "asked"
    numpy: Numpy = "stay"

    @property
    def most_pinned(self) -> int | None:
        """The bytes that pending work may keep alive. With `reproducible` this does not depend on the machine."""
        return _PINNED if self.reproducible and self.pinned_limit is None else self.pinned_limit

    @property
    def takes_no_shortcut(self) -> bool:
        """Whether calls with small operands are recorded too, instead of going straight to NumPy."""
        return self.lazy == "always" or self.gradients == "always"


# The environment variables that have other names than their settings.
_VARIABLES = {"threads": "XTENSOR_NUM_THREADS"}


def _checked(given: Settings) -> Settings:
    """Return valid settings; raises TypeError or ValueError for a value that a setting cannot take."""
    for name, words in (("lazy", LAZY), ("engine", ENGINES), ("gradients", GRADIENTS), ("numpy", NUMPY)):
        check_choice("options", name, getattr(given, name), words)
    if not isinstance(given.device, str):
        raise TypeError(expected("options", "device", "be a string", repr(given.device)))
    kind, _, number = given.device.partition(":")
    if kind not in ("cpu", "cuda") or (kind == "cpu" and number) or not (number.isdigit() or given.device == kind):
        raise ValueError(expected("options", "device", "be 'cpu', 'cuda' or 'cuda:N'", repr(given.device)))
    for name in ("fast_math", "tf32", "reproducible"):
        if not isinstance(getattr(given, name), bool):
            raise TypeError(expected("options", name, "be True or False", repr(getattr(given, name))))
    for name in ("fuse_limit", "pinned_limit", "threads"):
        value = getattr(given, name)
        if name != "fuse_limit" and value is None:
            continue
        if not isinstance(value, int) or value < 1:
            raise ValueError(expected("options", name, "be a positive integer", repr(value)))
    if not isinstance(given.cache_dir, (str, type(None))):
        raise TypeError(expected("options", "cache_dir", "be a string or None", repr(given.cache_dir)))
    if not set(filter(None, given.show.split(","))) <= set(SHOWN):
        raise ValueError(expected("options", "show", f"name some of {', '.join(SHOWN)}", repr(given.show)))
    return _made_reproducible(given) if given.reproducible else given


# Settings that were checked before, by values and types. Equal settings are one object, to be compared by identity.
_KNOWN: dict[tuple[Any, ...], Settings] = {}


def _known(given: Settings) -> Settings:
    """Return valid settings, always the same object for the same values; raises as `_checked` does."""
    key = *given, *map(type, given)  # as 1 is True
    try:
        found = _KNOWN.get(key)
    except TypeError:  # a value that no setting can take
        return _checked(given)
    if found is None:
        found = _checked(given)
        make_room(_KNOWN, 64)
        found = _KNOWN[key] = _KNOWN.setdefault((*found, *map(type, found)), found)
    return found


def _made_reproducible(given: Settings) -> Settings:
    """Return settings that record every call, for generated code without contraction."""
    for name, wanted in _REPRODUCIBLE.items():
        value = getattr(given, name)
        if value not in (wanted, Settings._field_defaults[name]):
            raise ValueError(expected("options", name, f"be {wanted!r} where reproducible=True", repr(value)))
    return given._replace(**_REPRODUCIBLE)


# The reasons, in any thread, for calls not to take the fast path, straight to NumPy: options that record every call,
# watched functions, memory that is trusted for a moment, histories of writes. They are numbers before a final 0, so
# that a look at the first tells whether there is any. One is that the environment was not read yet.
_NOT_ASKED = 1
thin_closed = [_NOT_ASKED, 0]

# 1 as soon as any settings in this process ask for numpy="convert", which contexts may keep for as long as they live.
converting = [0]

# Whether anything in this process has required a gradient yet: before, nobody looks for steps.
active = [False]

# Held while the environment is read, and while counts change.
counting = fork_safe_lock()

in_force: ContextVar[Settings | None] = ContextVar("xtensor_settings", default=None)
_from_environment: list[Settings] = []


def settings() -> Settings:
    """Return the settings in force here."""
    return in_force.get() or (_from_environment[0] if _from_environment else _defaults())


def _defaults() -> Settings:
    """Return the settings that the environment variables (`XTENSOR_LAZY`, ...) give, read once."""
    with counting:
        if not _from_environment:
            _from_environment.append(_asked_of_environment())
            _note_for_ever(_from_environment[0])
            if not _from_environment[0].takes_no_shortcut:
                thin_closed.remove(_NOT_ASKED)
    return _from_environment[0]


def _asked_of_environment() -> Settings:
    """Return the settings that the environment gives; an error names the variable."""
    given = {}
    for name in Settings._fields:
        value = _environment(name)
        if value is not None:
            given[name] = value
            try:
                _checked(Settings(**{name: value}))
            except (TypeError, ValueError) as error:
                raise type(error)(str(error).replace(name, _variable(name), 1)) from None
    return _checked(Settings(**given))


def _variable(setting: str) -> str:
    return _VARIABLES.get(setting, f"XTENSOR_{setting.upper()}")


def _note_for_ever(given: Settings) -> None:
    """Note which features these settings use, as they must be checked for from now on."""
    active[0] = active[0] or given.gradients == "always"
    if given.numpy == "convert":
        converting[0] = 1


def _environment(setting: str) -> Any:
    """Return the value that the environment gives for a setting, or None if it gives none."""
    name = _variable(setting)
    text, default = os.environ.get(name), Settings._field_defaults[setting]
    if text is None or isinstance(default, str) or "str" in str(Settings.__annotations__[setting]):
        return text
    if isinstance(default, bool):
        check_choice("options", name, text, _SWITCHES)
        return _SWITCHES[text]
    try:
        return int(text)
    except ValueError:
        raise ValueError(expected("options", name, "be a positive integer", repr(text))) from None


_SWITCHES = {"0": False, "1": True}


def irreproducible(why: str) -> NotImplementedError:
    """Return the error for work that generated code does not do, and that `reproducible` therefore refuses."""
    return NotImplementedError(f"options: reproducible must be False for this work, as {why}")


class Closing:
    """A reason why calls must not take the fast path, from its creation until `end` is called or it is garbage
    collected; an interrupt may prevent the call of `end`.
    """

    __slots__ = ()

    def __init__(self) -> None:
        thin_closed.insert(0, id(self))

    def end(self) -> None:
        """Withdraw this reason."""
        with suppress(ValueError):  # withdrawn before
            thin_closed.remove(id(self))

    __del__ = end


def step_by_step(function: Callable[..., Any], *args: Any, **params: Any) -> Any:
    """Call a composition with the fast path closed, so that all its large steps are recorded, including cheap ones."""
    closing = Closing()
    try:
        return function(*args, **params)
    finally:
        closing.end()


def under(given: Settings | None, function: Callable[..., Any], *args: Any, **params: Any) -> Any:
    """Call a function under the given settings, in a context that has other ones."""
    token = in_force.set(given)
    try:
        return function(*args, **params)
    finally:
        in_force.reset(token)


class options(ContextDecorator):  # noqa: N801 - reads as a verb at the call: `with xt.options(lazy="never"):`
    """Change settings inside a `with` block, or for every call of a decorated function.

    >>> with xt.options(lazy="always"):
    ...     z = x + y

    Raises TypeError for a setting that does not exist and ValueError for a value that it cannot take.
    """

    def __init__(self, **changes: Any) -> None:
        for name in changes:
            if name not in Settings._fields:
                raise TypeError(expected("options", "a setting", one_of(Settings._fields), repr(name)))
        self._changes = changes
        self._entered: list[tuple[Token[Settings | None], Closing | None]] = []
        _known(settings()._replace(**changes))  # so that a wrong value is refused here, not when the block is entered

    def __enter__(self) -> Settings:
        changed = _known(settings()._replace(**self._changes))
        _note_for_ever(changed)
        before, closing = in_force.get(), None
        try:
            closing = Closing() if changed.takes_no_shortcut else None
            self._entered.append((in_force.set(changed), closing))
        except BaseException:  # an interrupt, after which nobody leaves the block
            in_force.set(before)
            if closing is not None:
                closing.end()
            raise
        return changed

    def __exit__(self, *failure: object) -> None:
        token, closing = self._entered.pop()
        in_force.reset(token)
        if closing is not None:
            closing.end()

    def _recreate_cm(self) -> options:
        """Return a new instance for each call of a decorated function, which threads may share (ContextDecorator)."""
        return options(**self._changes)
