"""Provide hosts and links: topology models, netem substrates, emulated hosts, calibration."""
