"""Simulate a hierarchical all-reduce: reduce-scatter inside each datacenter, all-reduce across, all-gather inside.

``wanbed.workloads.transport.ring.ring_passes`` describes the algorithm. A replica begins a pass when it has ended the
one before; nobody waits for replicas that are not in the same ring.
"""

from collections.abc import Sequence
from functools import partial

from wanbed.runner.simulator.event_queue import EventQueue
from wanbed.runner.simulator.rings.ring import Ring
from wanbed.runner.simulator.rings.shared_ring import Done


class NestedRing:
    """The replicas of one stage in rings inside datacenters, whose rounds are halved, and in rings across.

    Position p of the stage is at position ``p mod R`` of ring ``p // R`` inside, and the other way round across.
    """

    def __init__(self, inside: Sequence[Ring], across: Sequence[Ring], events: EventQueue) -> None:
        self._inside, self._across, self._events = inside, across, events

    def join(self, iteration: int, position: int, now_ns: int, done: Done) -> None:
        """Do as ``Ring.join`` says."""
        home, seat = divmod(position, len(self._across))

        def scattered(_: int, end_ns: int) -> None:
            self._events.at(end_ns, partial(self._join, self._across[seat], home, summed), iteration)

        def summed(_: int, end_ns: int) -> None:
            self._events.at(end_ns, partial(self._join, self._inside[home], seat, gathered), 2 * iteration + 1)

        def gathered(_: int, end_ns: int) -> None:
            done(now_ns, end_ns)

        self._inside[home].join(2 * iteration, seat, now_ns, scattered)

    @staticmethod
    def _join(ring: Ring, position: int, done: Done, now_ns: int, iteration: int) -> None:
        ring.join(iteration, position, now_ns, done)
