"""Compute profiles: how long a GPU takes for the stages of a model, measured or estimated."""
