"""The losses of a training, and those of its snapshots on held-out text."""
