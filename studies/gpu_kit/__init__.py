"""Bring wanbed to a bare GPU machine, and run everything there that a GPU is needed for."""
