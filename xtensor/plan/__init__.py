"""Which steps of a graph become one kernel, and what that is estimated to cost."""
