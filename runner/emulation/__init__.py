"""The engine that runs trials over an emulated network."""
