"""Simulate the ranks of a training."""
