"""Read a run back: its tables, documents and summary."""
