"""Queueing disciplines over netlink: encoding, classification, and reading back what the kernel holds."""
