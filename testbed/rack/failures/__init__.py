"""Let hosts and processes on machines fail: on one machine, and on several at one instant."""
