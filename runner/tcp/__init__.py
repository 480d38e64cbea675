"""Model TCP over one line: windows, slow start, restarts after idle, and several connections."""
