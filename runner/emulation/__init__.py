"""Run trials over an emulated network."""
