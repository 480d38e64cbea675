"""The networks of sweep points: which stay up from one point to the next, and what was measured of them."""
