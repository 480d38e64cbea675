"""Simulate ring all-reduces."""
