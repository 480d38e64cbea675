"""Measure links and compare the measured figures with the configured ones."""
