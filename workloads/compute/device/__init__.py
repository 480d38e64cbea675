"""Devices: their runtime, clocks, timing, and copies between GPU and host."""
