"""Draw the report's charts. Each is a function from a run's figures to a ``chart.Chart``."""
