"""What ``wanbed doctor --rack`` finds out."""
