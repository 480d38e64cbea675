"""Run emulations in virtual time."""
