"""Find GPUs and assign them to hosts."""
