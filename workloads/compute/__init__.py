"""Compute back ends: what carries out the actions that a schedule names."""
