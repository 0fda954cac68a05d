"""Plans: which steps of a graph become one kernel, where their values lie, and what that is estimated to cost."""
