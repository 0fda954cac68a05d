"""Kernels as text: formulas of one element, and the loops around them for each machine."""
