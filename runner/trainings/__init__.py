"""Hold the kinds of training that are no pipelines of ours, one a folder. Pipelines are in all other folders."""
