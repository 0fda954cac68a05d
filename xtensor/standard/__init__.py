"""The standard's functions, one file per chapter."""
