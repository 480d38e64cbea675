"""wanbed: training across emulated datacenters."""
