"""Simulate the trials of an experiment and write them as a run."""
