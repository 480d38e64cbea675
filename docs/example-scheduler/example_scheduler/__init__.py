"""Provide a pipeline schedule in a package of its own."""
