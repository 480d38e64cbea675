"""Refuse what could not run."""
