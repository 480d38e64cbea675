"""Model TCP over one line: windows, slow start, idle, and many connections."""
