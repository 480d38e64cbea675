"""Find the rings over which the replicas of a stage all-reduce: one, one in the other, or one for each two of them."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations

from wanbed.runner.resolve.placement import Pair, StagePlace, ring_order

Ring = tuple[StagePlace, ...]


def ring_pairs(ring: Ring) -> tuple[Pair, ...]:
    """Return each place of a ring with the next one."""
    return tuple(zip(ring, [*ring[1:], *ring[:1]], strict=True))


def most_connections(pairs: Iterable[Pair], connections: Mapping[tuple[str, str], int]) -> int:
    """Return the highest number of connections of some pairs; ``connections`` has each pair of hosts once."""
    hosts = [(one.host.name, other.host.name) for one, other in pairs]
    return max(connections[pair if pair in connections else pair[::-1]] for pair in hosts)


@dataclass(frozen=True)
class StageRings:
    """The rings of one stage, level by level. Every replica is in one ring of each level.

    There is one level with a ring of all replicas, in an order that enters each datacenter once. Or, hierarchical, two:
    a ring of the replicas of each datacenter, and rings of counterparts, with one replica of each datacenter. All rings
    of a level are equally large. There is none for a single replica.

    A ``butterfly`` of so many replicas is one level, with a ring of two for each two of them: a part of one goes there,
    and the sum of it back, so that such a ring sums the parts of both. Every replica is in all rings of its own pairs.

    Of a ``chained`` ring the data is one segment. It is reduced on the way from the second replica around to the first,
    and then broadcast on the way from the first to the last.
    """

    levels: tuple[tuple[Ring, ...], ...]
    butterfly: int | None = None
    chained: bool = False

    @staticmethod
    def of(
        replicas: Sequence[StagePlace], *, hierarchical: bool = False, butterfly: bool = False, chained: bool = False
    ) -> "StageRings":
        """Return the rings of replicas. Hierarchical ones in one datacenter, or with one in each, are a single ring.

        Raise ValueError if hierarchical rings differ in size.
        """
        if len(replicas) == 1:
            return StageRings(())
        if butterfly:
            return StageRings((tuple(combinations(replicas, 2)),), len(replicas))
        inside = tuple(by_datacenter(replicas).values())
        if not hierarchical or len(inside) == 1 or len(inside) == len(replicas):
            return StageRings(((ring_order(replicas),),), chained=chained)
        return StageRings((inside, tuple(zip(*inside, strict=True))))

    @property
    def rings(self) -> tuple[Ring, ...]:
        """Every ring."""
        return tuple(ring for level in self.levels for ring in level)

    @property
    def pairs(self) -> tuple[Pair, ...]:
        """Each place with the next one of each of its rings."""
        return tuple(pair for ring in self.rings for pair in ring_pairs(ring))

    @property
    def sizes(self) -> tuple[int, ...]:
        """The number of replicas in a ring of each level."""
        return tuple(len(level[0]) for level in self.levels)

    @property
    def wan_ratio(self) -> float:
        """The bytes that cross between datacenters for each byte that a replica sums, over all rings together.

        On each hop of a ring of n it is 2 (n - 1) / n of what that ring sums; on those of a chain as ``hop_passes``.
        """
        if self.chained:
            return float(sum(count for (a, b), count in self.hop_passes() if a.datacenter != b.datacenter))
        found, share = 0.0, 1.0 if self.butterfly is None else 2 / self.butterfly
        for level, size in zip(self.levels, self.sizes, strict=True):
            crossing = sum(one.datacenter != other.datacenter for ring in level for one, other in ring_pairs(ring))
            found += share * crossing * 2 * (size - 1) / size
            share /= size
        return found

    def hop_passes(self) -> tuple[tuple[Pair, int], ...]:
        """Return each hop of a chained ring with how often the data goes over it.

        The reduce leaves out the hop from the first replica, and the broadcast the one to it.
        """
        return tuple((hop, (number > 0) + (number < len(self.pairs) - 1)) for number, hop in enumerate(self.pairs))

    def cut(self, size: int) -> tuple[int, int]:
        """Return into how many segments a ring of ``size`` cuts its data, and how many cross a hop at most."""
        return (1, 2) if self.chained else (size, 2 * (size - 1))

    def with_place(self, place: StagePlace) -> tuple[Ring, ...]:
        """Return the rings of each level that a place is in: one, but of a butterfly one for each other replica."""
        return tuple(ring for level in self.levels for ring in level if place in ring)

    def summed_bytes(self, size_bytes: int) -> tuple[int, ...]:
        """Return how much data the rings of each level sum, rounded up: all, then one segment of the level before.

        The rings of a butterfly sum the parts of two replicas each.
        """
        if self.butterfly is not None:
            return (2 * -(-size_bytes // self.butterfly),)
        found = []
        for size in self.sizes:
            found.append(size_bytes)
            size_bytes = -(-size_bytes // size)
        return tuple(found)


def by_datacenter(replicas: Sequence[StagePlace]) -> dict[str, Ring]:
    """Return the replicas of each datacenter, in order of the first one of each."""
    found: dict[str, list[StagePlace]] = {}
    for place in replicas:
        found.setdefault(place.datacenter, []).append(place)
    return {name: tuple(places) for name, places in found.items()}
