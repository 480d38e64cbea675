"""Compare two runs: what may be compared, how much slower or faster, and how certain that is."""
