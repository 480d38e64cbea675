"""Find equal parts of a variant. All equal parts do the same at the same time, so simulating one of them suffices.

A part is one or more DP-cells. Parts that share no host affect each other in two places only:

- On a trunk, max-min fairness gives K equal parts equal rates. Each has the rate that it would have alone on a trunk of
  1/K of the capacity: rates are whole numbers rounded down, and rounding down twice is rounding down once.
- In the ring of a stage, replicas at the same position of their parts are ready at the same time. What the last replica
  of a part sends to the first one of the next part arrives at a port that is as busy as the port at which this part
  receives from the previous one.
"""

from wanbed.runner.resolve.pipeline_variant import PipelineVariant


def equal_parts(variant: PipelineVariant) -> int:
    """Return the largest number of provably equal parts into which the pipelines divide, 1 if there are none.

    Each stage must be in a single datacenter, no ring may have empty segments, replicas may not synchronise over a
    star or sum in a butterfly, along a chain or as Gloo does, no optimizer step may wait for a number that goes round
    all ranks, and no compute times may be drawn. A part consists of consecutive pipelines in whole DP-cells. No other
    part uses its hosts, its places share hosts in the same way in every part, and the GPUs there have the same times.
    """
    placement, pipelines = variant.placement, variant.pipelines
    if (
        variant.varies
        or variant.is_star
        or variant.norm_ring
        or variant.transport.is_butterfly
        or variant.transport.is_chain
        or variant.transport.is_gloo
        or any(
            0 < size_bytes < pipelines
            for stage in range(placement.stages)
            for size_bytes in variant.buckets_bytes(stage)
        )
    ):
        return 1
    for stage in range(placement.stages):
        if len({place.datacenter for place in placement.replicas(stage)}) > 1:
            return 1
    for size in range(variant.pipelines_per_cell, pipelines // 2 + 1, variant.pipelines_per_cell):
        if pipelines % size == 0 and _all_equal(variant, size):
            return pipelines // size
    return 1


def _all_equal(variant: PipelineVariant, size: int) -> bool:
    """Return whether parts of ``size`` pipelines share no host, and have equal times and places on hosts."""
    if variant.replicas is not None:
        times, ranks = variant.replicas.durations, size * variant.placement.stages
        if any(times[first : first + ranks] != times[:ranks] for first in range(0, len(times), ranks)):
            return False
    seen: set[str] = set()
    pattern: list[int] = []
    for first in range(0, variant.pipelines, size):
        order: dict[str, int] = {}
        own = [
            order.setdefault(place.host.name, len(order))
            for pipeline in variant.placement.pipelines[first : first + size]
            for place in pipeline
        ]
        if not seen.isdisjoint(order):
            return False
        seen |= order.keys()
        pattern = pattern or own
        if own != pattern:
            return False
    return True
