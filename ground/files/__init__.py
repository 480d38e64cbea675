"""Read and write files: whole or not at all, regular ones only, and in the user's cache."""
