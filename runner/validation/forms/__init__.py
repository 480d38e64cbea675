"""Closed forms of one feature each, in a file of its own."""
