"""Swapping: train a whole model on one device, which holds two neighbouring groups of its layers at a time."""
