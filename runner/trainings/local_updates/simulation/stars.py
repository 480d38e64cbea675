"""Simulate the stars over which the replicas of each stage synchronise."""

from collections.abc import Mapping

from wanbed.runner.resolve.pipeline_variant import PipelineVariant
from wanbed.runner.simulator.channels.network import Ends, Network
from wanbed.runner.simulator.channels.wan_traffic import Crossing
from wanbed.runner.simulator.event_queue import EventQueue
from wanbed.runner.simulator.rings.ring_all_reduce import Done
from wanbed.runner.tcp.channel import Channel
from wanbed.runner.trainings.local_updates.resolution.local_updates_variant import LocalUpdatesVariant
from wanbed.runner.trainings.local_updates.simulation.star import PartCut, Star


def star_ends(network: Network[PipelineVariant]) -> dict[int, list[Ends]]:
    """Return the two places of each way of each stage's star: from every other replica to the first, then back."""
    found: dict[int, list[Ends]] = {}
    for stage in range(network.variant.placement.stages):
        first, *others = network.variant.placement.replicas(stage)
        found[stage] = [*((other, first) for other in others), *((first, other) for other in others)]
    return found


class Stars:
    """The stars of all stages: one for each stage, of all its replicas, in ``iterations`` iterations."""

    def __init__(
        self,
        network: Network[PipelineVariant],
        channels: Mapping[Ends, Channel],
        events: EventQueue,
        iterations: int,
    ) -> None:
        variant = network.variant
        if not isinstance(variant, LocalUpdatesVariant):
            raise TypeError(f"{variant.name}: its replicas synchronise over no star")
        synchronization = variant.synchronization
        self._ends = star_ends(network)
        self._channels = channels
        self.of_stages: dict[int, Star] = {}
        for stage, ends in self._ends.items():
            half = len(ends) // 2
            connections = [network.connections_between(pair) for pair in ends[:half]]
            self.of_stages[stage] = Star(
                [channels[pair] for pair in ends[:half]],
                [channels[pair] for pair in ends[half:]],
                connections,
                events,
                cuts=[
                    PartCut.of(size_bytes, max(connections), headers=network.effects.headers)
                    for size_bytes in variant.fragments_bytes(stage)
                ],
                sums=synchronization.count(iterations),
                quorum=synchronization.quorum,
            )

    @property
    def sums(self) -> tuple[tuple[int, int], ...]:
        """The number of parts of each sum so far, and of those that were late."""
        return tuple((len(done.parts), done.late) for star in self.of_stages.values() for _, done in star.gathered)

    @property
    def dropped(self) -> int:
        """The number of parts that came too late for any sum."""
        return sum(star.dropped for star in self.of_stages.values())

    def has_gradients(self, stage: int) -> bool:
        """Return whether the replicas of ``stage`` have anything to sum: those of a star always have."""
        return stage in self.of_stages

    def join(self, stage: int, iteration: int, pipeline: int, now_ns: int, done: Done) -> None:
        """Handle that the replica of ``stage`` in ``pipeline`` is ready. ``iteration`` counts the sums."""
        self.of_stages[stage].join(iteration, pipeline, now_ns, done)

    def crossed(self) -> list[Crossing]:
        """Return the channels over the WAN that have carried traffic, each with its ends."""
        every = [(pair, self._channels[pair]) for ends in self._ends.values() for pair in ends]
        return [
            (pair, channel) for pair, channel in every if pair[0].datacenter != pair[1].datacenter and channel.history
        ]
