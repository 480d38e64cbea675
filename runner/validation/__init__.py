"""Compare the simulator with arithmetic, to the nanosecond, and with the emulation, within stated limits."""
