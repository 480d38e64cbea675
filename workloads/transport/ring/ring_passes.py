"""Divide an all-reduce over rings, one in the other, into passes: some steps of one ring each.

With a single ring there is one pass: all its steps. With two, each replica is in a ring of its datacenter and in one of
its counterparts in the others. Three passes follow each other: reduce-scatter inside, after which every replica has one
segment of its datacenter's sum; all-reduce of that segment across; all-gather inside. Of G bytes over D datacenters of
R replicas, a replica sends ``2 (D-1)/D x G/R`` across and ``2 (R-1)/R x G`` inside. Source: Mikami et al., "Massively
distributed SGD: ImageNet/ResNet-50 training in a flash", 2018 (2D-torus all-reduce).
"""

from collections.abc import Sequence
from dataclasses import dataclass

from wanbed.workloads.transport.ring.ring_round import cut_segments


@dataclass(frozen=True, slots=True)
class RingPass:
    """Some steps of the ring with that number, one after the other."""

    ring: int
    steps: range


def ring_passes(replicas: Sequence[int]) -> tuple[RingPass, ...]:
    """Return the passes over rings of so many replicas each, the first of which is all around the next."""
    last = len(replicas) - 1
    scatters = [RingPass(ring, range(replicas[ring] - 1)) for ring in range(last)]
    gathers = [RingPass(ring, range(replicas[ring] - 1, 2 * (replicas[ring] - 1))) for ring in range(last)]
    return (*scatters, RingPass(last, range(2 * (replicas[last] - 1))), *gathers[::-1])


def summed_segment(data: memoryview, element_bytes: int, position: int, replicas: int) -> memoryview:
    """Return the segment of ``data`` that the replica at ``position`` has the sum of after a reduce-scatter."""
    start, end = cut_segments(data.nbytes, element_bytes, replicas)[(position + 1) % replicas]
    return data[start:end]
