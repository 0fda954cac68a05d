"""Random programs, run on an oracle and on xtensor and compared element by element.

A program is a list of lines of Python over variables v0, v1, ... and a namespace `xp`: it makes arrays, views of
views, writes into them, computes with them. It depends on nothing but its seed; one that fails is cut down line by
line to a short one that still fails, and stays in the corpus.

| file | what is in it |
|---|---|
| sides.py | NumPy and xtensor as `xp`, and how what they leave is compared |
| maker.py | the generator: any programs, those of kernels' shapes, and those that can be differentiated |
| kinds.py | what a kind of programs is; running many, cutting down |
| plain.py, captured.py, gradient.py, device.py, strict.py, threads.py | the kinds |
| corpus.py | every case that ever failed |
| coverage.py | which operations ran on which dtypes and layouts |

    python -m tests.programs --count 20000 --seed 1
    python -m tests.programs --kind captured --count 20000 --seed 1
"""

from .captured import CAPTURED
from .device import DEVICE
from .gradient import GRADIENT
from .kinds import Kind, ProgramError, failures_of, shrink
from .maker import KernelMaker, Maker, SmoothMaker
from .plain import EXACT, KERNELS, MODES, PLAIN, TIMES, all_large, difference, run_ours, small_up_to
from .sides import Oracle, Ours, Side, data, differs, root, run_oracle, same_bits, same_error
from .strict import STRICT
from .threads import THREADS, ThreadsMaker

KINDS = {kind.name: kind for kind in (PLAIN, KERNELS, CAPTURED, GRADIENT, DEVICE, STRICT, THREADS)}

__all__ = [
    "CAPTURED",
    "DEVICE",
    "EXACT",
    "GRADIENT",
    "KERNELS",
    "KINDS",
    "MODES",
    "PLAIN",
    "STRICT",
    "THREADS",
    "TIMES",
    "KernelMaker",
    "Kind",
    "Maker",
    "Oracle",
    "Ours",
    "ProgramError",
    "Side",
    "SmoothMaker",
    "ThreadsMaker",
    "all_large",
    "data",
    "difference",
    "differs",
    "failures_of",
    "root",
    "run_oracle",
    "run_ours",
    "small_up_to",
    "same_bits",
    "same_error",
    "shrink",
]
