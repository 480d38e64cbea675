"""Encrypt what machines of a rack send to each other."""
