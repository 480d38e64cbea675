"""Start processes inside virtual time."""
