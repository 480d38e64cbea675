"""Write the report of one run or several."""
