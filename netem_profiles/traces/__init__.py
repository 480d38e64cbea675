"""Traces of a WAN's conditions over time: files, and what they mean."""
