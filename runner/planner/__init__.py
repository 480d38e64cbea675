"""Which datacenters train, how many DP-cells, and which stages go where: Algorithm 1 of Atlas, and better searches."""
