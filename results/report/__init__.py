"""Draw a report of one run or several."""
