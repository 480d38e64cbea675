"""What begins on all machines at one instant."""
