"""Build and keep the kernel of virtual time."""
