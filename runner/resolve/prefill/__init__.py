"""Resolve the prefill that a variant serves."""
