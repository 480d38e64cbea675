"""Relate the clocks of machines, and state the error."""
