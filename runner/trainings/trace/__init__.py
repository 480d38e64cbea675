"""Execution traces that ranks replay."""
