"""What is done on a device: clocks, copies, and its runtime."""
