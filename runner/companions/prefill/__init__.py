"""BubbleTea: prefill of a served model in the bubbles of a training, and on GPUs of its own."""
