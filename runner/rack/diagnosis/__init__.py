"""Diagnose a rack for ``wanbed doctor --rack``."""
