"""Compute back ends. They carry out the actions of a schedule."""
