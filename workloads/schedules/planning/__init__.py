"""Plan the actions and transfers of a DP-cell before it runs."""
