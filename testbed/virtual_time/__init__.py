"""Run programs in virtual time: on a kernel whose clock jumps over idle time and on which computation takes no time."""
