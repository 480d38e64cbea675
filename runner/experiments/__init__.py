"""Experiments that are shipped with wanbed, each a file; those of the paper are in ``paper``."""
