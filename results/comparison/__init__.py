"""Two runs held against each other: what may be compared, how much slower or faster, and how sure that is."""
