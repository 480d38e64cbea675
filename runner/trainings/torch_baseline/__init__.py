"""Torch's own pipeline schedules and data parallelism, to be compared with."""
