"""Send a user's own files to the machines of a rack."""
