"""Fit a User-Mode Linux kernel to the processor that it is about to run on."""
