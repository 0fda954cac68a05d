"""Memory: the pool that lends it, its owners, and the typed views that kernels work on."""
