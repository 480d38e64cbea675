"""Simulate the channels between hosts, and the capacities that they share."""
