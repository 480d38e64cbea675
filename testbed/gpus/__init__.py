"""Find real GPUs and assign them to hosts."""
