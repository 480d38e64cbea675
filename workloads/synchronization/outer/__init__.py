"""The outer optimizer: what replicas do with the average of their pseudo-gradients."""
