"""A run's folder, its manifest, and how far it is."""
