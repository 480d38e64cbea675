"""Reproduce the paper: run its experiments, and compare the results with the simulator and with its claims."""
