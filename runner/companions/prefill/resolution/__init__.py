"""Resolve the prefill service of a variant."""
