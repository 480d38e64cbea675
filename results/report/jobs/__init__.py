"""Show what jobs that share the WAN cost each other."""
