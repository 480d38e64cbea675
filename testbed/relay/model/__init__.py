"""Decide when what a connection sends leaves and arrives: lanes with own and shared rates, windows, latency."""
