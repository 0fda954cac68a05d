"""Plans made numbers: launches, the interpreter, reductions, and the executor that forces pending nodes."""
