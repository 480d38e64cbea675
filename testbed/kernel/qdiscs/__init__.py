"""Set qdiscs, read them back, and read their statistics."""
