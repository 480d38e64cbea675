"""Files of processes on machines: what they are given, and what comes back."""
