"""The array that users hold, its operators, and what functions accept as one."""
