"""Create, join and use the hosts of an emulated network."""
