"""Resolve what connections hold and the treatment of single packets, as far as the experiment says."""
