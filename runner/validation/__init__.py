"""The simulator, held against arithmetic to the nanosecond and against the emulation within stated limits."""
