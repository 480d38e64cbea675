"""Explain why an iteration of a simulated candidate takes as long as it does."""
