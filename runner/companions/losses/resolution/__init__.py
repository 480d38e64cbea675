"""Resolve the data that a training learns from, and the data on which it is evaluated."""
