"""Bound from below how long the all-reduce of a stage's gradients takes.

With P replicas each of P segments goes once around the ring while it is summed, and once more while the sum is handed
on. So every hop carries ``2 (P - 1)`` segments, and every segment makes ``2 (P - 1)`` hops one after the other. In
buckets that overlap with the last backward, the first bucket is summed no earlier than its part of that backward has
ended, and the last one no earlier than all of it.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from wanbed.runner.bound.resources import Resources
from wanbed.runner.resolve.pipeline_variant import PipelineVariant
from wanbed.runner.resolve.placement import Pair
from wanbed.runner.resolve.stage_rings import Ring, StageRings, ring_pairs


@dataclass(frozen=True)
class RingTimes:
    """The least times of one stage's all-reduce in nanoseconds, and what each hop of the ring carries in an iteration.

    ``after_first_ns`` is counted from when the first replica has ended its computation, ``after_last_ns`` from when the
    last one has: it has to send all of its hop's bytes itself, and what it sends has to reach all the others.
    ``own_ns`` is from the end of computation to the end of the all-reduce of the same replica, the one that takes
    longest. ``loads`` are those hops with their bits. ``begins_before_ns`` is how long before the end of its replica's
    computation the all-reduce may begin.
    """

    after_first_ns: float = 0.0
    after_last_ns: float = 0.0
    own_ns: float = 0.0
    loads: tuple[tuple[Pair, float], ...] = ()
    begins_before_ns: float = 0.0


def ring_times(variant: PipelineVariant, resources: Resources, stage: int, last_backward_ns: float) -> RingTimes:
    """Return the times of a stage's rings; 0 without gradients, and for an all-reduce that is not wanbed's own.

    ``last_backward_ns`` is how long the last backward of a replica takes at most, of which buckets make use.
    """
    rings, sizes_bytes = variant.rings(stage), variant.buckets_bytes(stage)
    if not rings.levels or min(sizes_bytes) < variant.pipelines or not variant.transport.sums_over_transport:
        # With fewer bytes than replicas some segments are empty, and nobody waits for those.
        return RingTimes()
    hidden_ns = last_backward_ns * (1 - 1 / len(sizes_bytes))
    if len(rings.levels) > 1:
        return _nested_times(rings, resources, sizes_bytes, hidden_ns)
    hops, replicas = rings.pairs, variant.pipelines
    bucket_bits = 8.0 * 2 * (replicas - 1) * (min(sizes_bytes) // replicas)
    hop_bits = len(sizes_bytes) * bucket_bits
    latencies_ns = [resources.latency_ns(hop) for hop in hops]
    around_ns = [2 * sum(latencies_ns) - latencies_ns[at - 1] - latencies_ns[at - 2] for at in range(replicas)]

    def busy_ns(bits: float) -> list[float]:
        return [max((each.duration_ns(bits) for each in resources.between(hop)), default=0.0) for hop in hops]

    def arrived_ns(bits: float) -> float:
        return max(busy + latency for busy, latency in zip(busy_ns(bits), latencies_ns, strict=True))

    loads = tuple((hop, hop_bits) for hop in hops)
    return RingTimes(
        max(arrived_ns(hop_bits) - hidden_ns, arrived_ns(bucket_bits), *around_ns),
        max(min(busy_ns(hop_bits)) - hidden_ns, min(busy_ns(bucket_bits)), min(around_ns)),
        _own_ns(resources, loads, hidden_ns),
        loads,
        hidden_ns,
    )


def _nested_times(rings: StageRings, resources: Resources, sizes_bytes: Sequence[int], hidden_ns: float) -> RingTimes:
    """Return the times of rings inside datacenters and across, whose passes follow each other at every replica."""
    inside, across = rings.sizes
    segment_bytes, buckets = min(sizes_bytes) // inside, len(sizes_bytes)
    inside_bits, across_bits = 8.0 * (inside - 1) * segment_bytes, 8.0 * 2 * (across - 1) * (segment_bytes // across)
    within = _pass_times([_ring_pass(ring, resources, inside_bits, 1) for ring in rings.levels[0]])
    between = _pass_times([_ring_pass(ring, resources, across_bits, 2) for ring in rings.levels[1]])
    every_ns = 2 * within.every_ns + between.every_ns
    after_first_ns = max(
        within.first_ns + between.last_ns + within.last_ns,
        within.every_ns + between.first_ns + within.last_ns,
        within.every_ns + between.every_ns + within.first_ns,
    )
    after_last_ns = 2 * within.last_ns + between.last_ns
    before_ns = max(0.0, (buckets - 1) * every_ns - hidden_ns)
    loads = [(hop, 2 * buckets * inside_bits) for ring in rings.levels[0] for hop in ring_pairs(ring)]
    loads += [(hop, buckets * across_bits) for ring in rings.levels[1] for hop in ring_pairs(ring)]
    own_ns = _own_ns(resources, loads, hidden_ns)
    return RingTimes(after_first_ns + before_ns, after_last_ns + before_ns, own_ns, tuple(loads), hidden_ns)


def _own_ns(resources: Resources, loads: Sequence[tuple[Pair, float]], hidden_ns: float) -> float:
    """Return how long the replica of the slowest hop sends, after its computation.

    It ends with what it sends last in its send buffers, which hold a window of each connection. Half of it at least has
    been sent: it has come back around the ring, summed.
    """
    sent_ns = 0.0
    for hop, bits in loads:
        left_bits = max(bits / 2, bits - resources.buffered_bits(hop))
        sent_ns = max(sent_ns, *(each.duration_ns(left_bits) for each in resources.between(hop)), 0.0)
    return max(0.0, sent_ns - hidden_ns)


@dataclass(frozen=True)
class _PassTimes:
    """The least times of one pass of a ring, or of one of several rings.

    ``first_ns`` is from when all may begin until one replica has ended, ``every_ns`` until any of them has. ``last_ns``
    is from when any replica, the last one, begins until one has ended.
    """

    first_ns: float
    every_ns: float
    last_ns: float


def _pass_times(rings: Sequence[_PassTimes]) -> _PassTimes:
    return _PassTimes(
        max(ring.first_ns for ring in rings),
        min(ring.every_ns for ring in rings),
        min(ring.last_ns for ring in rings),
    )


def _ring_pass(ring: Ring, resources: Resources, bits: float, rounds: int) -> _PassTimes:
    """Return the times of a pass in which each hop carries ``bits``, and a segment goes ``rounds`` times around.

    In each round it makes all hops but one.
    """
    hops = ring_pairs(ring)
    latencies_ns = [resources.latency_ns(hop) for hop in hops]
    sent_ns = [
        max((each.duration_ns(bits) for each in resources.between(hop)), default=0.0) + latency_ns
        for hop, latency_ns in zip(hops, latencies_ns, strict=True)
    ]
    replicas, around_ns = len(hops), rounds * sum(latencies_ns)
    from_ns = [around_ns - sum(latencies_ns[at - back] for back in range(1, rounds + 1)) for at in range(replicas)]
    # What begins at a position ends as many before it as there are rounds.
    to_ns = [max(sent_ns[at - 1], from_ns[(at + rounds) % replicas]) for at in range(replicas)]
    return _PassTimes(max(to_ns), min(to_ns), min(max(sent, path) for sent, path in zip(sent_ns, from_ns, strict=True)))
