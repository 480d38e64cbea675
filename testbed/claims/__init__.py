"""Record which process owns which testbed on this machine, and clean up abandoned ones."""
