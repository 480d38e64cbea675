"""Describe what all simulated rings do: a replica joins, and is told when it has the result."""

from typing import Protocol

from wanbed.runner.simulator.rings.shared_ring import Done


class Ring(Protocol):
    """The all-reduce of one stage, or one ring of it."""

    def join(self, iteration: int, position: int, now_ns: int, done: Done) -> None:
        """Handle that the replica at ``position`` is ready. Call ``done`` when its result is known.

        ``iteration`` counts the all-reduces: there may be several in an iteration, or some under way at once.
        """
