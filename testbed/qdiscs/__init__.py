"""Handle queueing disciplines over netlink: encode, classify, and read back what the kernel holds."""
