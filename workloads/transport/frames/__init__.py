"""Frames on the wire, how transfers are cut into chunks, and the memory of payloads."""
