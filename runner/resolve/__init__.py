"""From what was written to what runs: places, connections, times, plans."""
