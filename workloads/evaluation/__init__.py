"""Evaluate what a training has learnt: ranks keep their weights, and one process tries them on held-out sequences."""
