"""The prefill service as processes: GPUs' workers, controllers, decode hosts, and the flows between them."""
