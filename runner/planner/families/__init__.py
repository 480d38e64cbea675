"""Price ways to train that are no pipelines over the WAN beside the planner's answer."""
