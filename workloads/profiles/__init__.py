"""Compute profiles: the times of a device for the stages of a model, measured or estimated."""
