"""Commands about the emulated network and this machine."""
