"""Links as a run's manifest has them: their figures, and which of them changed."""
