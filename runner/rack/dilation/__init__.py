"""Compute how much slower a rack's run is than the system that it emulates, from the load on its machines."""
