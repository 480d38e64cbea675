"""Plan a DP-cell ahead."""
