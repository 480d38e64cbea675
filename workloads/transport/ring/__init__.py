"""Ring all-reduce over the transport."""
