"""Define the interface of all simulated rings, and build two of them from other rings.

``NestedRing`` is a hierarchical all-reduce: reduce-scatter inside each datacenter, all-reduce across, all-gather inside
(``wanbed.workloads.transport.ring_round``). A replica begins a pass when it has ended the one before; nobody
waits for replicas that are not in the same ring. ``NormRing`` is the all-reduce of the gradient norm over all ranks.
"""

from collections.abc import Collection, Mapping, Sequence
from functools import partial
from typing import Protocol

from wanbed.flow.channel import Channel
from wanbed.flow.event_queue import EventQueue
from wanbed.runner.resolve.pipeline_variant import PipelineVariant
from wanbed.runner.resolve.stage_rings import ring_pairs
from wanbed.runner.simulator.channels.network import Ends, Network
from wanbed.runner.simulator.channels.wan_traffic import Crossing
from wanbed.runner.simulator.rings.ring_all_reduce import Done, SparseRing
from wanbed.workloads.transport.links_config import NORM_BYTES


class Ring(Protocol):
    """The all-reduce of one stage, or one ring of it."""

    def join(self, iteration: int, position: int, now_ns: int, done: Done) -> None:
        """Handle that the replica at ``position`` is ready. Call ``done`` when its result is known.

        ``iteration`` counts the all-reduces: there may be several in an iteration, or some under way at once.
        """


class NormRing:
    """The ring of all ranks, round which one number goes over ``channels``, which others may use too."""

    def __init__(self, network: Network[PipelineVariant], channels: Mapping[Ends, Channel], events: EventQueue) -> None:
        ring, placement = network.variant.norm_ring, network.variant.placement
        self._hops = {pair: channels[pair] for pair in ring_pairs(ring)}
        self._positions = {placement.rank(place): position for position, place in enumerate(ring)}
        self._ring = SparseRing(list(self._hops.values()), NORM_BYTES, 2 * (len(self._hops) - 1), events, NORM_BYTES)

    def join(self, iteration: int, rank: int, now_ns: int, done: Done) -> None:
        """Handle that the gradients of a rank are complete. Call ``done`` when it has the norm of all."""
        self._ring.join(iteration, self._positions[rank], now_ns, done)

    def crossed(self, others: Collection[Ends]) -> list[Crossing]:
        """Return the channels over the WAN that have carried traffic and are not among ``others``, with their ends."""
        return [
            (pair, channel)
            for pair, channel in self._hops.items()
            if pair[0].datacenter != pair[1].datacenter and pair not in others and channel.history
        ]


class NestedRing:
    """The replicas of one stage in rings inside datacenters, whose rounds are halved, and in rings across.

    Position p of the stage is at position ``p mod R`` of ring ``p // R`` inside, and the other way round across.
    """

    def __init__(self, inside: Sequence[Ring], across: Sequence[Ring], events: EventQueue) -> None:
        self._inside, self._across, self._events = inside, across, events

    def join(self, iteration: int, position: int, now_ns: int, done: Done) -> None:
        """Join as in any ``Ring``."""
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
