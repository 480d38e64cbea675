"""Measure links, as configured and as measured."""
