"""Wire formats of pseudo-gradients: sizes, encoding, and addition of what is encoded."""
