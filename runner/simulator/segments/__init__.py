"""Simulate TCP segment by segment, for links that lose or jitter packets."""
