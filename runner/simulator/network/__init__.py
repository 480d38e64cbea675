"""Simulate the network: channels and the capacities that they share."""
