"""Determine what this process may do on this machine, and enter a user namespace where it may do more."""
