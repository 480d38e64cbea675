"""Compare the simulator with closed forms, to the nanosecond, and with emulated runs, within stated limits."""
