"""An experiment as its user wrote it, checked field by field."""
