"""Fit a link with a FIFO queue to a log: base delay, bottleneck rate, buffer, random loss and cross traffic."""
