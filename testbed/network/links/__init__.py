"""The conditions of WAN links: what is written, what is resolved, and how they change during a trial."""
