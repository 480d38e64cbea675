"""Bound from below how long the ring all-reduce of a stage's gradients takes.

With P replicas each of P segments goes once around the ring while it is summed, and once more while the sum is handed
on. So every hop carries ``2 (P - 1)`` segments, and every segment makes ``2 (P - 1)`` hops one after the other. In
buckets that overlap with the last backward, the first bucket is summed no earlier than its part of that backward has
ended, and the last one no earlier than all of it.
"""

from dataclasses import dataclass

from runner.bound.resources import Resources
from runner.resolve.placement import Pair
from runner.resolve.resolved_variant import ResolvedVariant


@dataclass(frozen=True)
class RingTimes:
    """The least times of one stage's all-reduce in nanoseconds, and what each hop of the ring carries in an iteration.

    ``after_first_ns`` is counted from when the first replica has ended its computation, ``after_last_ns`` from when the
    last one has: it has to send all of its hop's bytes itself, and what it sends has to reach all the others.
    ``begins_before_ns`` is how long before the end of its replica's computation the all-reduce may begin.
    """

    after_first_ns: float = 0.0
    after_last_ns: float = 0.0
    hops: tuple[Pair, ...] = ()
    hop_bits: float = 0.0
    begins_before_ns: float = 0.0


def ring_times(variant: ResolvedVariant, resources: Resources, stage: int, last_backward_ns: float) -> RingTimes:
    """Return the times of a stage's ring; 0 without gradients, and for an all-reduce that is not wanbed's ring.

    ``last_backward_ns`` is how long the last backward of a replica takes at most, of which buckets make use.
    """
    hops, sizes_bytes = variant.placement.ring_pairs(stage), variant.buckets_bytes(stage)
    replicas = len(hops)
    if not hops or min(sizes_bytes) < replicas or variant.transport.all_reduce != "ring":
        # With fewer bytes than replicas some segments are empty, and nobody waits for those.
        return RingTimes()
    bucket_bits = 8.0 * 2 * (replicas - 1) * (min(sizes_bytes) // replicas)
    hop_bits, hidden_ns = len(sizes_bytes) * bucket_bits, last_backward_ns * (1 - 1 / len(sizes_bytes))
    latencies_ns = [resources.latency_ns(hop) for hop in hops]
    around_ns = [2 * sum(latencies_ns) - latencies_ns[at - 1] - latencies_ns[at - 2] for at in range(replicas)]

    def busy_ns(bits: float) -> list[float]:
        return [max((each.duration_ns(bits) for each in resources.between(hop)), default=0.0) for hop in hops]

    def arrived_ns(bits: float) -> float:
        return max(busy + latency for busy, latency in zip(busy_ns(bits), latencies_ns, strict=True))

    return RingTimes(
        max(arrived_ns(hop_bits) - hidden_ns, arrived_ns(bucket_bits), *around_ns),
        max(min(busy_ns(hop_bits)) - hidden_ns, min(busy_ns(bucket_bits)), min(around_ns)),
        hops,
        hop_bits,
        hidden_ns,
    )
