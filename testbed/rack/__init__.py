"""Emulate one network over several machines: what happens on each of them, without Ray."""
