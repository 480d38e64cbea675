"""Peers nobody here wrote: the same training by torch's own schedules and data parallelism, over torch's own Gloo."""
