"""Run the gateways and their qdiscs in the machine's own kernel or in the gateway guest."""
