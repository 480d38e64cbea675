"""Sum over a star: every replica sends its part to the one that gathers, which sends the sum back to all."""
