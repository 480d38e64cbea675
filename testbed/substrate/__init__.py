"""Where the gateways and their qdiscs live: the host's own kernel, or a guest kernel in the middle."""
