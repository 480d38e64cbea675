"""Describe a network as plain data, without access to a kernel."""
