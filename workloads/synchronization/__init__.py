"""Training that synchronises seldom: replicas take several steps alone, then exchange pseudo-gradients."""
