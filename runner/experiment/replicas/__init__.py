"""Describe GPUs whose compute times differ from those of their stage, or vary from one action to the next."""
