"""Share among charts: canvas, colours, bars with intervals, and the repeat that is drawn."""
