"""Draw experiments at random and hold the simulator against them."""
