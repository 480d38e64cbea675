"""Carry all connections between hosts through one unprivileged process that imposes the WAN and models TCP."""
