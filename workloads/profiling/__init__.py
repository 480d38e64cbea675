"""Measure this machine's GPU or CPU: the times of a model's stages, and of prefilling prompts."""
