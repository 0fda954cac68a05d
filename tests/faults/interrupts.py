"""Ctrl-C at any point of an evaluation: the signal arrives at the n-th call, line or return of Python's.

A tracing function in machine code counts them, and tells the interpreter of the signal as the system would; the
interpreter raises KeyboardInterrupt where it next looks for signals. No Python code takes part in between.
"""

from __future__ import annotations

import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from .injections import batch
from .native import EVENTS, trace
from .trial import TURNS


class Interrupt:
    """An interrupt at the n-th event. It may come late, or not at all where a finalizer hears of it."""

    error = KeyboardInterrupt
    modes = TURNS
    settings: dict[str, Any] = {}

    arm, disarm = EVENTS.arm, EVENTS.disarm

    def resume(self) -> None:
        EVENTS.resume()
        trace(True)

    def pause(self) -> None:
        trace(False)
        EVENTS.pause()

    @contextmanager
    def installed(self) -> Iterator[None]:
        before, unheard = signal.signal(signal.SIGINT, signal.default_int_handler), sys.unraisablehook
        sys.unraisablehook = lambda unraisable: None  # a finalizer's, which nobody can hear of
        try:
            yield
        finally:
            trace(False)
            sys.unraisablehook = unheard
            signal.signal(signal.SIGINT, before)


BATCHES = {"interrupt": batch(Interrupt, 25)}
