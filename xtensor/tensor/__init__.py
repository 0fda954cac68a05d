"""The array that users hold, its operators, and what functions take for one."""
