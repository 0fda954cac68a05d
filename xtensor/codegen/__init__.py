"""Kernels as text: formulas for single elements, and the loops around them for each machine."""
