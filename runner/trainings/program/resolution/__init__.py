"""Resolve a variant's program: its processes, their ranks and hosts."""
