"""Experiments that are shipped with wanbed: each a file, in ``programs`` with what trains, in ``paper`` those of the paper."""
