"""Model what a line lets through: TCP windows, slow start, striping, and rates that are shared max-min."""
