"""Who owns what on this machine, and how it is cleaned."""
