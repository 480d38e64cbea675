"""Name the one interface that an emulated host has beside its loopback."""

HOST_INTERFACE = "eth0"
