"""Implement ``wanbed profile``: choose what to measure on which device, check that it fits, and measure a profile."""
