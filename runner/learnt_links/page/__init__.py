"""Show a learnt link on one self-contained page."""
