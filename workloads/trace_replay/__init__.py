"""The process of one rank that replays its part of a trace over real connections."""
