"""Check settings of the map in virtual time, shrunk so that this takes minutes."""
