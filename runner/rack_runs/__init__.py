"""Runs over the machines of a Ray cluster. No other package uses Ray, and here it is imported when it is used."""
