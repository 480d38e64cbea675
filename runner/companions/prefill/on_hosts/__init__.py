"""Start the processes that serve prefill beside the training."""
