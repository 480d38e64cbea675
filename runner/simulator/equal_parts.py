"""Find equal parts of a variant: all of them do the same at the same time, so that one stands for all.

A part is some DP-cells. Parts that share no host meet in two places only. On a trunk, max-min fairness gives K equal
parts equal rates, each what it would have alone on a trunk of 1/K: rates are whole numbers rounded down, and rounding
down twice is rounding down once. In the ring of a stage, replicas of one position in their parts are ready at the same
time, and what the last replica of a part sends to the first one of the next comes to a port that is as busy as the one
at which the part before arrives here.
"""

from runner.resolve.resolved_variant import ResolvedVariant


def equal_parts(variant: ResolvedVariant) -> int:
    """Return the largest number of parts, provably equal, into which the pipelines divide; 1 if there are none.

    Each stage must lie in one datacenter, and no ring may have empty segments. A part is of consecutive pipelines,
    whole DP-cells, on hosts that no other part uses, and its places share hosts in the same way in every part.
    """
    placement, pipelines = variant.placement, variant.pipelines
    if any(0 < size_bytes < pipelines for size_bytes in variant.work.gradient_bytes):
        return 1
    for stage in range(placement.stages):
        if len({place.datacenter for place in placement.replicas(stage)}) > 1:
            return 1
    for size in range(variant.pipelines_per_cell, pipelines // 2 + 1, variant.pipelines_per_cell):
        if pipelines % size == 0 and _all_equal(variant, size):
            return pipelines // size
    return 1


def _all_equal(variant: ResolvedVariant, size: int) -> bool:
    """Return whether parts of so many pipelines are equal: their hosts differ, and look alike from within."""
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
