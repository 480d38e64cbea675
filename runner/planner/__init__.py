"""Plan which datacenters train, how many DP-cells, and where stages go: Algorithm 1 of Atlas, and better searches."""
