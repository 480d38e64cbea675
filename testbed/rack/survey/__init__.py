"""Survey machines for a rack, and the plain network between them. No run is needed for it."""
