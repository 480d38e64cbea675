"""Simulate TCP packet by packet, over the gateways that the kernel would be given."""
