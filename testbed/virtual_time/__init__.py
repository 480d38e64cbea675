"""Run things on a kernel whose clock jumps over idle time, and to which computation costs nothing."""
