"""Read a run: its tables, documents and summary."""
