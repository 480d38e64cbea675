"""A kernel whose clock jumps over idle time, and to which computation costs nothing."""
