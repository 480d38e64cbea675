"""Simulate how replicas that train alone synchronise: over rings beside their iterations, or over a star.

A rank behaves like ``wanbed.workloads.replica_sums``: after an iteration it joins the all-reduce of a
fragment, and after the iteration that is ``delay`` later it waits for the end of it. Encoding and the outer step take
no time.

The rules of a star, with or without a quorum, are those of ``wanbed.workloads.transport.star``: every replica sends its
part to the one that gathers, which sends the sum to all others as soon as it is complete. Adding takes no time. A
replica gives no part before its network has taken the one before, and goes on when the whole sum has arrived: at once
where it is late. With parts of A bytes, all ready at once, on lines of their own of rate R and latency l that takes
``2 (A / R + l)``.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial

from wanbed.flow.channel import Channel
from wanbed.flow.event_queue import EventQueue, Handler
from wanbed.flow.number_rows import NumberRows
from wanbed.flow.striping import Striping
from wanbed.runner.resolve.pipeline_variant import PipelineVariant
from wanbed.runner.simulator.channels.network import Ends, Network
from wanbed.runner.simulator.channels.wan_traffic import Crossing
from wanbed.runner.simulator.rings.ring_all_reduce import BucketSum, Done
from wanbed.runner.simulator.simulated_ranks import RankState
from wanbed.runner.simulator.simulation import KIND_CODES, NO_PEER
from wanbed.runner.simulator.surroundings import AllReduce
from wanbed.runner.trainings.local_updates.resolution import LocalUpdatesVariant
from wanbed.workloads.transport.frame import HEADER_BYTES, Cutting
from wanbed.workloads.transport.quorum_rounds import QuorumRounds, StarPart, StarSum


@dataclass(frozen=True)
class PartCut:
    """The shape of a fragment's part on its way: its bytes with the headers of its frames, in so many chunks."""

    framed_bytes: int
    chunks: int
    largest_bytes: int

    @staticmethod
    def of(size_bytes: int, connections: int, *, headers: bool) -> "PartCut":
        """Cut as ``wanbed.workloads.transport.star`` does; ``connections`` is the most between two of the ranks."""
        cutting = Cutting(size_bytes, 1, connections)
        framed_bytes = size_bytes + cutting.chunks * HEADER_BYTES if headers else size_bytes
        return PartCut(framed_bytes, cutting.chunks, cutting.largest_bytes)

    def striping(self, connections: int) -> Striping | None:
        """Return the striping over so many connections, None for a single one."""
        return Striping(connections, self.chunks, self.largest_bytes) if connections > 1 else None


class Star:
    """The replicas of one stage; position 0 gathers.

    ``inwards[i]`` leads from position i + 1 to it and ``outwards[i]`` back, over ``connections[i]`` TCP connections.
    ``cuts`` are those of each fragment. There are ``sums`` sums; each waits for ``quorum`` replicas, for all if None.
    """

    def __init__(
        self,
        inwards: Sequence[Channel],
        outwards: Sequence[Channel],
        connections: Sequence[int],
        events: EventQueue,
        *,
        cuts: Sequence[PartCut],
        sums: int,
        quorum: int | None,
    ) -> None:
        replicas = len(inwards) + 1
        self._inwards = inwards
        self._outwards = outwards
        self._connections = connections
        self._events = events
        self._cuts = cuts
        self._rounds = QuorumRounds(range(replicas), quorum or replicas, sums, len(cuts))
        self._there: list[set[int]] = [set() for _ in range(replicas)]
        self._waiting: list[tuple[int, int, Done] | None] = [None] * replicas
        self._given = [-1] * replicas
        self._leaving: set[int] = set()
        self._lives = [0] * replicas
        self._lost: set[int] = set()
        self.gathered: list[tuple[int, StarSum]] = []
        """Each sum, with the time at which it was complete."""

    @property
    def dropped(self) -> int:
        """The number of parts that came after the last sum of their fragment."""
        return len(self._rounds.dropped)

    def kill(self, position: int) -> None:
        """Handle that a replica has ended: what it gave before still leaves, and nothing reaches it."""
        self._lives[position] += 1
        self._waiting[position] = None
        self._given[position] = -1
        self._there[position].clear()
        self._leaving.discard(position)

    def lose(self, position: int, now_ns: int) -> None:
        """Handle that the replica that gathers has noticed the end of another."""
        self._lost.add(position)
        if (done := self._rounds.lose(position)) is not None:
            self._complete(now_ns, done)

    def admit(self, position: int, sums: int, cut: PartCut, now_ns: int, begin: Handler) -> None:
        """Send a replica that comes back what it begins with after ``sums`` sums, and those that are complete since.

        ``begin`` is called when it has the former, with the time and the position.
        """
        self._lost.discard(position)
        self._rounds.rejoin(position)
        channel, events = self._outwards[position - 1], self._events

        def left(_: int, end_ns: int) -> None:
            arrival_ns = max(channel.arrival_ns(end_ns), events.now_ns)
            events.at(arrival_ns, begin, position)

        channel.queue(now_ns, cut.framed_bytes, left, cut.striping(self._connections[position - 1]))
        for _, done in self.gathered:
            if done.number >= sums:
                self._send(channel, position, done.number, now_ns)

    def latency_ns(self, position: int) -> int:
        """Return the latency from a replica to the one that gathers."""
        return self._inwards[position - 1].arrival_ns(self._events.now_ns) - self._events.now_ns

    @property
    def connections(self) -> int:
        """The most connections between two of the ranks."""
        return max(self._connections)

    def join(self, number: int, position: int, now_ns: int, done: Done) -> None:
        """Handle that a replica gives its part of sum ``number``. Call ``done`` when it has the sum."""
        self._waiting[position] = number, now_ns, done
        if position not in self._leaving:
            self._give(now_ns, position, number)

    def _give(self, now_ns: int, position: int, number: int) -> None:
        self._given[position] = number
        if position == 0:
            self._arrived(now_ns, (StarPart(0, number), 0))
        else:
            self._leaving.add(position)
            self._send(self._inwards[position - 1], position, number, now_ns)
        self._go_on(position, now_ns)

    def _send(self, channel: Channel, position: int, number: int, now_ns: int) -> None:
        """Send the part of the replica at ``position`` to the one that gathers, or the sum back over ``outwards``."""
        cut, events = self._cuts[number % len(self._cuts)], self._events
        gives, life = channel is self._inwards[position - 1], self._lives[position]

        def left(_: int, end_ns: int) -> None:
            arrival_ns = max(channel.arrival_ns(end_ns), events.now_ns)
            if gives:
                events.at(arrival_ns, self._arrived, (StarPart(position, number), life))
            else:
                events.at(arrival_ns, self._has, (position, number, life))

        def accepted(at_ns: int) -> None:
            events.at(max(at_ns, events.now_ns), self._taken, (position, life))

        striping = cut.striping(self._connections[position - 1])
        channel.queue(now_ns, cut.framed_bytes, left, striping, accepted=accepted if gives else None)

    def _taken(self, now_ns: int, what: tuple[int, int]) -> None:
        """Handle that the network has taken all of a replica's part."""
        position, life = what
        if life != self._lives[position]:
            return
        self._leaving.discard(position)
        waiting = self._waiting[position]
        if waiting is not None and self._given[position] < waiting[0]:
            self._give(now_ns, position, waiting[0])

    def _arrived(self, now_ns: int, what: tuple[StarPart, int]) -> None:
        part, life = what
        if part.replica in self._lost or life != self._lives[part.replica]:
            # Its sender has ended before all of it had left.
            return
        if (done := self._rounds.give(part)) is not None:
            self._complete(now_ns, done)

    def _complete(self, now_ns: int, done: StarSum) -> None:
        self.gathered.append((now_ns, done))
        self._has(now_ns, (0, done.number, self._lives[0]))
        for position, channel in enumerate(self._outwards, start=1):
            if position not in self._lost:
                self._send(channel, position, done.number, now_ns)

    def _has(self, now_ns: int, what: tuple[int, int, int]) -> None:
        position, number, life = what
        if life != self._lives[position]:
            return
        self._there[position].add(number)
        self._go_on(position, now_ns)

    def _go_on(self, position: int, now_ns: int) -> None:
        """Let a replica go on that has given its part and has the sum."""
        waiting = self._waiting[position]
        if waiting is None or waiting[0] not in self._there[position] or self._given[position] < waiting[0]:
            return
        number, ready_ns, done = waiting
        self._waiting[position] = None
        self._there[position].remove(number)
        done(ready_ns, now_ns)


GoOn = Callable[[int, RankState], None]
"""Is called once a rank's iteration is over, at that time."""

_NO_MICROBATCH = -1


@dataclass(slots=True)
class _UnderWay:
    """A rank's synchronisation, the ``number``-th of its stage, whose buckets have so many bytes.

    ``end_ns`` is its end, possibly future, None until it is known.
    """

    applied_after: int
    number: int
    buckets_bytes: Sequence[int]
    end_ns: int | None = None
    go_on: GoOn | None = None


class Synchronizations:
    """The synchronisations of a training; none if the variant sums gradients in every iteration.

    Their spans are added to ``rows``, as all-reduces of the iteration after which they are applied.
    """

    def __init__(
        self, variant: PipelineVariant, iterations: int, events: EventQueue, rings: AllReduce, rows: NumberRows
    ) -> None:
        seldom = variant if isinstance(variant, LocalUpdatesVariant) else None
        self._synchronization = None if seldom is None else seldom.synchronization
        stages = range(0 if seldom is None else seldom.placement.stages)
        self._buckets_bytes = [seldom.fragments_buckets_bytes(stage) for stage in stages if seldom is not None]
        self._virtual_stages = variant.shape.virtual_stages
        self._iterations = iterations
        self._events = events
        self._rings = rings
        self._rows = rows
        self._under_way: dict[int, _UnderWay] = {}
        self.begin_beside_backward = seldom is not None and seldom.begins_beside_backward
        """Tell whether a synchronisation begins in the backward that completes an iteration's gradients."""

    def compute_gradients(self, rank: RankState, start_ns: int, end_ns: int) -> None:
        """Begin a synchronisation in the backward that completes an iteration's gradients, if one begins then."""
        under_way = self._begun(rank)
        if under_way is not None:
            join, summed = partial(self._join, rank, under_way), partial(self._summed, rank, under_way)
            buckets = len(under_way.buckets_bytes)
            BucketSum(self._events, buckets, join, summed, self._virtual_stages).begin(start_ns, end_ns)

    def end_iteration(self, now_ns: int, rank: RankState, go_on: GoOn) -> None:
        """Begin the synchronisation that begins after the rank's iteration, and await the one that is applied then.

        Call ``go_on`` when the rank may begin its next iteration, maybe at once.
        """
        begun = None if self.begin_beside_backward else self._begun(rank)
        if begun is not None:
            self._join(rank, begun, 0, now_ns, partial(self._summed, rank, begun, 0))
        under_way = self._under_way.get(rank.number)
        if under_way is None or under_way.applied_after > rank.iteration:
            go_on(now_ns, rank)
            return
        under_way.go_on = go_on
        self._apply(rank, under_way)

    def is_under_way(self, rank: RankState) -> bool:
        """Return whether a rank has begun a synchronisation that it has not applied."""
        return rank.number in self._under_way

    def forget(self, rank: RankState) -> None:
        """Handle that a rank has been killed."""
        self._under_way.pop(rank.number, None)

    def _begun(self, rank: RankState) -> _UnderWay | None:
        """Return the synchronisation that begins in the rank's iteration, as its one under way, None if none does."""
        each = self._synchronization
        fragment = None if each is None else each.fragment_begun(rank.iteration)
        if each is None or fragment is None or each.applied_after(rank.iteration) >= self._iterations:
            return None
        applied_after = each.applied_after(rank.iteration)
        begun = _UnderWay(applied_after, each.count(applied_after + 1) - 1, self._buckets_bytes[rank.stage][fragment])
        self._under_way[rank.number] = begun
        return begun

    def _join(self, rank: RankState, each: _UnderWay, bucket: int, now_ns: int, done: Done) -> None:
        number = each.number * len(each.buckets_bytes) + bucket
        self._rings.join(rank.stage, number, rank.pipeline, now_ns, done)

    def _summed(self, rank: RankState, each: _UnderWay, bucket: int, start_ns: int, end_ns: int) -> None:
        about = (rank.rank, KIND_CODES["all_reduce"], each.applied_after, _NO_MICROBATCH)
        self._rows.extend((*about, start_ns, end_ns, each.buckets_bytes[bucket], NO_PEER))
        if bucket + 1 == len(each.buckets_bytes):
            each.end_ns = end_ns
            self._apply(rank, each)

    def _apply(self, rank: RankState, under_way: _UnderWay) -> None:
        """Let the rank go on if it waits and the end of its synchronisation is known."""
        if under_way.end_ns is not None and under_way.go_on is not None:
            del self._under_way[rank.number]
            self._events.at(max(under_way.end_ns, self._events.now_ns), under_way.go_on, rank)


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
