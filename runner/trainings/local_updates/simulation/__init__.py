"""Simulate sums over a star."""
