"""Describe a network without touching a kernel."""
