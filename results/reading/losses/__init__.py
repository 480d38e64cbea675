"""Read the losses of a run's trials, over their own clock or over the clock of another run."""
