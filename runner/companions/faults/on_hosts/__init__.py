"""Let hosts, ranks and gateways fail during a trial, and let training go on without them."""
