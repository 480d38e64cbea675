"""Draw the charts of a report; each is one module and one line in the list of charts."""
