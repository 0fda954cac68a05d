"""A little of what `python -m tests.faults` does: every kind of fault in a few programs, and that the tests can fail."""

from __future__ import annotations

import os
import sys
from typing import Any

import pytest
from faults.injections import NoMemory, batch
from faults.interrupts import Interrupt
from faults.native import ALLOCATIONS, allocations
from faults.trial import Left, Outcome, run_with_fault

import xtensor as xt
from xtensor.codegen.cpu.compile import host
from xtensor.storage import storage

from tests.faults.__main__ import apart

pytestmark = pytest.mark.skipif(host() is None, reason="faults are injected by machine code")
