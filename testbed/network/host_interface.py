"""Name the only interface of an emulated host beside its loopback."""

HOST_INTERFACE = "eth0"
