"""Traffic in the background of a training: other people's flows, which share the WAN and train nothing."""
