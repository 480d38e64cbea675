"""Figures of what a training learns in a given time."""
