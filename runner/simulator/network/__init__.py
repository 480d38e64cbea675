"""Simulate the network: lines, channels, and who shares what."""
