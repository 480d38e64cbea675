"""What is recorded of traffic that shares the WAN with a training."""
