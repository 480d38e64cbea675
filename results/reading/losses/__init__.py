"""What the trials of a run learnt, over their own clock or that of another run."""
