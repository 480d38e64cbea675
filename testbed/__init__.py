"""Provide the hosts and links: topology models, netem substrates, Mininet hosts, calibration."""
