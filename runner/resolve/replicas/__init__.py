"""Resolve what the compute times of each GPU are, where replicas differ or times vary."""
