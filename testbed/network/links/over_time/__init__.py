"""WAN links that change: what is written about it, and the courses that follow."""
