"""Common ground of all areas: tasks, clocks, files, TLS contexts, bounded memories. It imports no other area."""
