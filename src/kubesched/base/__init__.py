"""Ground that every area stands on: tasks, clocks, files, TLS contexts, bounded memories. It imports no other area."""
