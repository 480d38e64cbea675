"""Foretell measurements that others have published, from their texts alone: sources, simulation, and the page."""
