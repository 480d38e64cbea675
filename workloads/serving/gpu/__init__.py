"""Share a GPU between training and prefill."""
