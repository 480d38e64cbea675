"""Baselines: train by torch's own pipeline schedules or data parallelism, over Gloo, to compare with this project's."""
