"""How far the clocks of machines are apart, and how exactly that is known."""
