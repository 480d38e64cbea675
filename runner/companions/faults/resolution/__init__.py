"""Resolve what fails during a trial, and how a variant goes on without it."""
