"""Frames, and the memory that their payload goes to."""
