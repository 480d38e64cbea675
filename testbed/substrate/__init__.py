"""Run the gateways and their qdiscs in the host's own kernel, or in a guest kernel in the middle."""
