"""The standard's functions, one file a chapter."""
