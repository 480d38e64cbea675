"""The report's charts: each a function from a run's figures to a ``chart.Chart``."""
