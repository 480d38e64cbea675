"""Compute back ends: one class for each kind of compute states its properties and creates a rank's computation."""
