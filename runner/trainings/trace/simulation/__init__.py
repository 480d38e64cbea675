"""Simulate the replay of a trace, with the network and the rings of training."""
