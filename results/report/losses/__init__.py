"""The report's section on what trials learnt: losses against steps, tokens, wall time and WAN bytes."""
