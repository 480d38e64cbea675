"""Where hosts and links come from: topology models, netem substrates, Mininet hosts, calibration."""
