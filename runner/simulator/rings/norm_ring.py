"""Simulate the all-reduce of the gradient norm over all ranks, for which every optimizer step waits."""

from collections.abc import Collection, Mapping

from wanbed.runner.resolve.pipeline_variant import PipelineVariant
from wanbed.runner.resolve.stage_rings import ring_pairs
from wanbed.runner.simulator.event_queue import EventQueue
from wanbed.runner.simulator.network.network import Ends, Network
from wanbed.runner.simulator.network.wan_traffic import Crossing
from wanbed.runner.simulator.rings.shared_ring import Done
from wanbed.runner.simulator.rings.sparse_ring import SparseRing
from wanbed.runner.tcp.channel import Channel
from wanbed.workloads.transport.links_config import NORM_BYTES


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
