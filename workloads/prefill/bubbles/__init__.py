"""Forecast bubbles and fill them."""
