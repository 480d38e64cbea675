"""Share GPUs between training and prefill."""
