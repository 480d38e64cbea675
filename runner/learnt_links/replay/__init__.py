"""Send a log's packets again through models of its link, and compare delays and loss with the log."""
