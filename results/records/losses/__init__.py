"""The losses that a trial leaves."""
