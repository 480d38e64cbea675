"""Compare two runs: whether they are comparable, how much slower or faster one is, and with what confidence."""
