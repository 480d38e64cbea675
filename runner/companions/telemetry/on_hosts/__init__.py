"""Sample links, connections, GPUs and the machine while a trial runs."""
