"""Resolve the jobs that share the WAN: their hosts, and which of their variants run at once."""
