"""Flows with every default filled in, and checked against the variants that they run beside."""
