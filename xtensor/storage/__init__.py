"""Memory: the pool it is lent from, its owners, and the typed views that kernels work on."""
