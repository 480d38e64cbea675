"""Read an experiment file as its user wrote it, and check it field by field."""
