"""Spread simulations over a rack: the trials of a sweep, the candidates of a plan."""
