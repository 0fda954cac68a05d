"""Errors, locks, options, dtypes, layouts, threads: words that everything else is said in, and no arrays."""
