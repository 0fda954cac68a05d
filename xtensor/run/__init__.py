"""Execution of plans: launches, the interpreter, reductions, and the executor that forces pending nodes."""
