"""Report the prefill that was served during training."""
