"""Define the records of traffic that shares the WAN with a training."""
