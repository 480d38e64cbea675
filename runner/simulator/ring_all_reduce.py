"""Ring all-reduce of the replicas of one stage: when each of them has the sum.

As ``workloads.transport.ring`` does it: with P replicas the gradients are cut in P segments, and in each of 2(P-1)
steps every replica sends one to the next. Segments go through in chunks, so that a step of a replica begins as soon as
its step before has left and the first chunk of the same segment has come from the previous replica, and ends no earlier
than that segment has come. On equal lines of rate R without latency that takes ``2 (P-1)/P x A / R``.
"""

from collections.abc import Sequence

from runner.simulator.channel import PrivateChannel
from workloads.transport.ring_round import ring_chunk_bytes


def all_reduce_ends_ns(
    starts_ns: Sequence[int],
    channels: Sequence[PrivateChannel],
    size_bytes: int,
    replicas: int | None = None,
    chunk_bytes: int | None = None,
) -> list[int]:
    """When the replicas of a ring are through, each of which is ready at its start.

    ``channels[i]`` leads from replica i to the next one. Segments that differ by a byte are taken for equal. Where
    ``replicas`` are more than are given, those given repeat all around the ring. A chunk has ``chunk_bytes``
    (default: what ``workloads.transport.ring_round`` cuts).
    """
    positions = len(starts_ns)
    replicas = positions if replicas is None else replicas
    segment_bytes = -(-size_bytes // replicas)
    first_bytes = min(ring_chunk_bytes(size_bytes, 1, replicas) if chunk_bytes is None else chunk_bytes, segment_bytes)
    first_ns = list(starts_ns)
    whole_ns = list(starts_ns)
    free_ns = list(starts_ns)
    for _ in range(2 * (replicas - 1)):
        there = [(0, 0)] * positions
        for position, channel in enumerate(channels):
            _, chunk_ns = channel.transmit(max(free_ns[position], first_ns[position]), first_bytes)
            _, left_ns = channel.transmit(chunk_ns, segment_bytes - first_bytes)
            left_ns = max(left_ns, whole_ns[position])
            free_ns[position] = left_ns
            latency_ns = channel.line.latency_ns
            there[(position + 1) % positions] = chunk_ns + latency_ns, left_ns + latency_ns
        first_ns = [max(chunk_ns, start_ns) for (chunk_ns, _), start_ns in zip(there, starts_ns, strict=True)]
        whole_ns = [max(end_ns, start_ns) for (_, end_ns), start_ns in zip(there, starts_ns, strict=True)]
    return [max(whole, free) for whole, free in zip(whole_ns, free_ns, strict=True)]
