"""What a machine offers to a rack, and the plain network between machines. Nothing of a run is needed for it."""
