"""Compute figures of jobs that share the WAN."""
