"""Schedules whose stages hold several parts of the model each: virtual stages."""
