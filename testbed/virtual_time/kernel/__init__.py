"""Build and store the kernel of the virtual-time guest."""
