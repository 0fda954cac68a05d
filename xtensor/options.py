"""The settings a user can turn, their environment variables, and `xt.options(...)`.

Settings travel in a context variable, so threads and async tasks each have their own. The environment is read
at first use, never at import.
"""

from __future__ import annotations

import os
from contextlib import ContextDecorator
from contextvars import ContextVar, Token
from dataclasses import Field, dataclass, fields, replace
from typing import Any, Literal, get_args

from .errors import expected, one_of
from .locks import fork_safe_lock

Lazy = Literal["auto", "always", "never"]
LAZY: tuple[Lazy, ...] = get_args(Lazy)


@dataclass(frozen=True, slots=True)
class Settings:
    """Every switch, as one immutable value.

    lazy: when calls are recorded: "auto" (where the data is large enough to gain), "always", "never".
    device: the device of arrays created without `device=`.
    fuse_limit: a pending graph of more steps than this is evaluated.
    pinned_limit: when all that is pending keeps more bytes of inputs alive than this, it is evaluated; a call whose
        result alone is larger is not recorded.
    """

    lazy: Lazy = "auto"
    device: str = "cpu"
    fuse_limit: int = 64
    pinned_limit: int = 1 << 30

    def __post_init__(self) -> None:
        if self.lazy not in LAZY:
            raise ValueError(expected("options", "lazy", one_of(LAZY), repr(self.lazy)))
        if not isinstance(self.device, str):
            raise TypeError(expected("options", "device", "be a string", repr(self.device)))
        for name in ("fuse_limit", "pinned_limit"):
            value = getattr(self, name)
            if not isinstance(value, int) or value < 1:
                raise ValueError(expected("options", name, "be a positive integer", repr(value)))


# Whether some thread may be recording every call: while this is not 0 the direct shortcut of small operands is
# closed. It starts at 1 because the environment has not been asked yet.
always_somewhere = [1]
_counting = fork_safe_lock()

_current: ContextVar[Settings | None] = ContextVar("xtensor_settings", default=None)
_from_environment: list[Settings] = []


def settings() -> Settings:
    """Return the settings in force here."""
    return _current.get() or _defaults()


def _defaults() -> Settings:
    """Return the settings the environment asks for (`XTENSOR_LAZY`, ...), read once."""
    with _counting:
        if not _from_environment:
            given = {field.name: value for field in fields(Settings) if (value := _environment(field)) is not None}
            _from_environment.append(Settings(**given))
            if _from_environment[0].lazy != "always":
                _count_always(-1)
    return _from_environment[0]


def _environment(field: Field[Any]) -> Any:
    """Return what the environment says of one setting, None where it says nothing."""
    name = f"XTENSOR_{field.name.upper()}"
    text = os.environ.get(name)
    if text is None or not isinstance(field.default, int):
        return text
    try:
        return int(text)
    except ValueError:
        raise ValueError(expected("options", name, "be a positive integer", repr(text))) from None


def _count_always(change: int) -> None:
    with _counting:
        always_somewhere[0] += change


class options(ContextDecorator):  # noqa: N801 - reads as a verb at the call: `with xt.options(lazy="never"):`
    """Change settings inside a `with` block, or for every call of a decorated function.

    >>> with xt.options(lazy="always"):
    ...     z = x + y

    Raises TypeError for a setting that does not exist and ValueError for a value it cannot take.
    """

    def __init__(self, **changes: Any) -> None:
        known = [field.name for field in fields(Settings)]
        for name in changes:
            if name not in known:
                raise TypeError(expected("options", "a setting", one_of(known), repr(name)))
        self._changes = changes
        self._entered: list[tuple[Token[Settings | None], bool]] = []
        replace(settings(), **changes)  # so that a wrong value is refused here, not when the block is entered

    def __enter__(self) -> Settings:
        changed = replace(settings(), **self._changes)
        always = changed.lazy == "always"
        _count_always(always)
        self._entered.append((_current.set(changed), always))
        return changed

    def __exit__(self, *failure: object) -> None:
        token, always = self._entered.pop()
        _current.reset(token)
        _count_always(-always)

    def _recreate_cm(self) -> options:
        """Return a fresh one for each call of a decorated function, which threads may share (ContextDecorator)."""
        return options(**self._changes)
