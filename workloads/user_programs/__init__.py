"""Run a user's own training program on a host: its process, its output, and the marks of its iterations."""
