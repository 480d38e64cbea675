"""Ranks, hosts, links and machines that fail in a training, and how it recovers."""
