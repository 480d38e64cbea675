"""Draw experiments at random, and compare the simulator with their runs in virtual time."""
