"""Fault injection: random programs in which something goes wrong at a chosen place, and what is left afterwards.

A program runs line by line on NumPy and on xtensor (tests/programs). Where a fault strikes a line, that line must have
raised the fault's error or have gone round it; all variables must then be what NumPy has before the line, or after it.
In the first case the line runs again. At the end everything must be NumPy's, no lock may be held, and no memory, node
or thread be left over.

| file | what is in it |
|---|---|
| trial.py | running a program with a fault, and what is looked at afterwards |
| injections.py | no memory, no compiler, no threads, a disk that fails |
| calls.py | the first two and the next in functions under `xt.fuse` |
| interrupts.py | Ctrl-C at any point of an evaluation |
| processes.py | forks, ends of the interpreter, and killed processes beside a cache |

    python -m tests.faults --programs 1000
    python -m tests.faults --programs 200 --faults memory interrupt

prints a table. Every batch runs in a process of its own, so that a crash is a row and not the end.
"""
