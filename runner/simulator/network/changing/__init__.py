"""Simulate links whose rates and latencies change while bytes are under way, and which fail for a time."""
