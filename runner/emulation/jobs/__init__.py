"""Let the ranks of several jobs train at once over one emulated network."""
