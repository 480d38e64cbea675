"""Resolve an experiment into what runs: placements, connections, stage costs and plans."""
