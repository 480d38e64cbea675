"""The processes of traffic in the background: one sends, one receives and counts."""
