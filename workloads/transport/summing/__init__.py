"""Sum over replicas in a thread beside the one that computes."""
