"""Describe a variant whose replicas train alone, and synchronise seldom."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from typing import Any, Self

from wanbed.runner.resolve.pipeline_variant import PipelineVariant
from wanbed.runner.resolve.placement import Pair
from wanbed.workloads.swapping.grouping import Grouping
from wanbed.workloads.synchronization.fragments import fragments_bytes
from wanbed.workloads.synchronization.synchronization import SumTopology, Synchronization


@dataclass(frozen=True, kw_only=True)
class LocalUpdatesVariant(PipelineVariant):
    """A variant whose replicas exchange pseudo-gradients as ``synchronization`` says, and sum no gradients.

    ``spec`` and ``schedule`` are those within each replica. ``parameters`` are those of each stage. ``grouping`` are
    the groups of layers that each replica swaps through its GPU, None where it swaps none; the times in ``work`` then
    include the waits for them.
    """

    synchronization: Synchronization
    parameters: tuple[int, ...]
    grouping: Grouping | None = None

    @classmethod
    def of(
        cls,
        replica: PipelineVariant,
        synchronization: Synchronization,
        parameters: tuple[int, ...],
        grouping: Grouping | None,
    ) -> Self:
        """Return the variant whose replicas train as ``replica`` does."""
        own = {each.name: getattr(replica, each.name) for each in fields(replica)}
        return cls(**own, synchronization=synchronization, parameters=parameters, grouping=grouping)

    @property
    def overlaps_all_reduce(self) -> bool:
        """Whether all-reduces overlap: there are none."""
        return False

    def buckets_bytes(self, stage: int) -> tuple[int, ...]:
        """Return the size of the largest fragment of a stage, which is summed at once."""
        return (max(self.fragments_bytes(stage)),)

    def fragments_bytes(self, stage: int) -> tuple[int, ...]:
        """Return the size on the wire of each fragment of a stage."""
        each = self.synchronization
        return fragments_bytes(self.parameters[stage], each.fragments, each.wire)

    def state_bytes(self, stage: int) -> int:
        """Return the size of what a replica begins with that comes back: global parameters and momentum, in fp32."""
        return 2 * 4 * self.parameters[stage]

    @property
    def sums_every_iteration(self) -> bool:
        """Whether an optimizer step waits for a sum: only now and then."""
        return False

    @property
    def is_star(self) -> bool:
        """Whether replicas synchronise over a star, whose first replica gathers."""
        return self.synchronization.topology is SumTopology.STAR

    @property
    def goes_on_without(self) -> frozenset[int]:
        """The ranks that the others can lose and train on: those of a star with a quorum which do not gather.

        Of replicas with several stages there are none: a rank's neighbours in its pipeline cannot lose it.
        """
        if self.synchronization.quorum is None or self.placement.stages > 1:
            return frozenset()
        return frozenset(range(1, self.pipelines))

    def summing_pairs(self, stage: int) -> tuple[Pair, ...]:
        """Return the replicas of a stage that exchange what they sum: neighbours in a ring, or the star's."""
        if not self.is_star:
            return super().summing_pairs(stage)
        first, *others = self.placement.replicas(stage)
        return tuple((first, other) for other in others)

    def wan_ratio(self, stage: int) -> float:
        """Return how many bytes cross between datacenters for each byte that a replica of a stage sums.

        Over a star every replica's part makes its way to the first one, and the sum makes it back.
        """
        if self.is_star:
            return 2.0 * sum(one.datacenter != other.datacenter for one, other in self.summing_pairs(stage))
        return super().wan_ratio(stage)

    def document(self) -> Mapping[str, Any]:
        """Return what the experiment file leaves open, as resolved, in plain JSON types."""
        stages = range(self.placement.stages)
        return {
            **super().document(),
            **({} if self.grouping is None else {"swapping": self.grouping.document()}),
            "synchronization": {
                # As it was when wanbed's folders were packages of their own: hashes of runs from then stay the same.
                "schedule": self.schedule.removeprefix("wanbed."),
                **asdict(self.synchronization),
                "parameters": list(self.parameters),
                "fragments_bytes": [list(self.fragments_bytes(stage)) for stage in stages],
            },
        }
