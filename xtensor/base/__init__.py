"""Errors, locks, options, dtypes, layouts and threads: the vocabulary of all other rooms, without arrays."""
