"""Code that charts share: canvas, colours, interval bars, and the choice of the drawn repeat."""
