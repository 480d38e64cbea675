"""Start and list processes in virtual time."""
