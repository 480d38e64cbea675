"""Experiments that are shipped, each a file; ``programs`` has those of users' programs, ``paper`` the paper's."""
