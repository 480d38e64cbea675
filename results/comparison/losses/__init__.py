"""Compare what was learnt in a given time, or how long it took."""
