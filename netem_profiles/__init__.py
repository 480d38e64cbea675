"""Named sets of WAN link conditions, and their loader."""
