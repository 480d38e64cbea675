"""Report the prefill that was served beside the training."""
