"""Variants whose stages hold several virtual stages each."""
