"""What a training learns from, and on what it is evaluated."""
