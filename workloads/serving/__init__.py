"""The prefill service as processes: GPU workers, controllers, decode hosts, and the connections between them."""
