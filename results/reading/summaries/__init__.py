"""Summarize a run: one row a trial, or one a variant and sweep point."""
