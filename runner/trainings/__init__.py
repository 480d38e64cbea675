"""Hold the kinds of training that are no pipelines of ours, one a folder; pipelines are what all other folders are of."""
