"""What connections hold and what happens to single packets, as far as it follows from the experiment."""
