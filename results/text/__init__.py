"""Write numbers and tables as text."""
