"""Ranks that fail in a simulation."""
