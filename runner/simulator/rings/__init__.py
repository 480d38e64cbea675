"""Simulate the ring all-reduces of gradients."""
