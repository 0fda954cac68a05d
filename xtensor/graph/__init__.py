"""Pending operations: nodes, views of them, and walks over them."""
