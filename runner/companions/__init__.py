"""Hold what happens beside a training, a feature a folder."""
