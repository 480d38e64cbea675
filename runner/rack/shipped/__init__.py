"""What of a user's own goes to the machines of a rack."""
