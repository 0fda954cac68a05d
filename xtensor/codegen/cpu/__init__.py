"""LLVM IR for this processor: vector math, loops, rows, columns, and their compilation."""
