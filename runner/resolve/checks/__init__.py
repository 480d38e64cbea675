"""Check that a resolved experiment can run."""
