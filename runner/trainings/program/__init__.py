"""Training programs of users, which run as they are."""
