"""Compute back ends, which carry out the actions that a schedule names."""
