"""One iteration of GPipe on a fluid network, with ring all-reduces: written for tests alone, one connection each.

A fluid network, written for tests alone: everything that is sent has its max-min fair rate at every instant.

It is naive on purpose. After each event all rates are filled progressively from nothing, in exact fractions, with no
knowledge of what is alike or what has changed.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from heapq import heappop, heappush
from itertools import count

from wanbed.runner.resolve.pipeline_variant import PipelineVariant
from wanbed.runner.resolve.placement import Pair
from wanbed.workloads.transport.ring_round import ring_chunk_bytes

BITS_NS = 8 * 10**9

Then = Callable[[], None]

Resource = tuple[str, object]
"""A kind, and whose it is."""


@dataclass
class FluidChannel:
    """What one place sends to another, first come, first served; each transfer with what follows when it has left."""

    hosts: tuple[str, str]
    waiting: list[tuple[Fraction, Then]] = field(default_factory=list)


class FluidNetwork:
    """Node pairs that share resources, and channels that share node pairs evenly.

    ``crossed`` gives the names of the resources that a node pair crosses, ``capacities_bps`` their capacities.
    """

    def __init__(
        self, crossed: Callable[[tuple[str, str]], Sequence[Resource]], capacities_bps: Callable[[Resource], int]
    ) -> None:
        self._crossed, self._capacities_bps = crossed, capacities_bps
        self._channels: dict[object, FluidChannel] = {}
        self._agenda: list[tuple[Fraction, int, Then]] = []
        self._added = count()
        self.now_ns = Fraction(0)

    def after(self, delay_ns: Fraction | int, then: Then) -> None:
        """Do something later."""
        heappush(self._agenda, (self.now_ns + delay_ns, next(self._added), then))

    def send(self, channel: object, hosts: tuple[str, str], size_bytes: int, then: Then) -> None:
        """Send bytes over a channel between two hosts, and do something when the last one has left."""
        own = self._channels.setdefault(channel, FluidChannel(hosts))
        own.waiting.append((Fraction(size_bytes * BITS_NS), then))

    def run(self) -> None:
        """Go on until nothing is left to do."""
        while True:
            sending = [channel for channel in self._channels.values() if channel.waiting]
            rates = self._rates({channel.hosts for channel in sending})
            sharing = [channel.hosts for channel in sending]
            rate = {
                id(channel): rates[channel.hosts] / sharing.count(channel.hosts)
                for channel in sending
                if channel.hosts in rates
            }
            unlimited = [channel for channel in sending if channel.hosts not in rates]
            if unlimited:
                unlimited[0].waiting.pop(0)[1]()
                continue
            ends = [channel.waiting[0][0] / rate[id(channel)] for channel in sending]
            events = [time_ns - self.now_ns for time_ns, _, _ in self._agenda[:1]]
            if not ends and not events:
                return
            step_ns = min([*ends, *events])
            self.now_ns += step_ns
            left = []
            for channel in sending:
                bits_ns, then = channel.waiting[0]
                channel.waiting[0] = bits_ns - rate[id(channel)] * step_ns, then
                if not channel.waiting[0][0]:
                    left.append(channel)
            for channel in left:
                channel.waiting.pop(0)[1]()
            while self._agenda and self._agenda[0][0] == self.now_ns:
                heappop(self._agenda)[2]()

    def _rates(self, pairs: set[tuple[str, str]]) -> dict[tuple[str, str], Fraction]:
        """Return the max-min fair rate of each node pair that crosses any resource."""
        crossed = {pair: self._crossed(pair) for pair in pairs if self._crossed(pair)}
        rates: dict[tuple[str, str], Fraction] = {}
        while len(rates) < len(crossed):
            shares = {}
            for resource in {each for resources in crossed.values() for each in resources}:
                over = [pair for pair, resources in crossed.items() if resource in resources]
                rest = [pair for pair in over if pair not in rates]
                if rest:
                    taken = sum((rates[pair] for pair in over if pair in rates), Fraction(0))
                    shares[resource] = (self._capacities_bps(resource) - taken) / len(rest)
            least = min(shares.values())
            full = [resource for resource, share in shares.items() if share == least]
            for pair, resources in crossed.items():
                if pair not in rates and any(resource in full for resource in resources):
                    rates[pair] = least
        return rates


SpanEnd = tuple[str, int, int]
"""The kind of a span, its rank, and its microbatch, -1 for none."""

NO_MICROBATCH = -1


@dataclass(frozen=True)
class Limits:
    """The capacities of every node pair between datacenters, trunk and port, None for no limit; and latencies."""

    pair_bps: int | None
    trunk_bps: int | None
    port_bps: int | None
    wan_ns: int
    intra_ns: int


class FluidTraining:
    """Finds when each span ends, in nanoseconds: ``ends_ns`` after ``run``."""

    def __init__(self, variant: PipelineVariant, limits: Limits) -> None:
        self.variant, self._limits = variant, limits
        self._home = {place.host.name: place.datacenter for place in variant.placement.places}
        self.network = FluidNetwork(self._crossed, self._capacity_bps)
        self.ends_ns: dict[SpanEnd, Fraction] = {}
        self._inputs: set[SpanEnd] = set()
        self._left = [
            [(kind, microbatch) for kind in ("forward", "backward") for microbatch in range(variant.microbatches)]
            for _ in variant.placement.places
        ]
        self._busy = [False] * len(self._left)
        self._rings: dict[int, FluidRing] = {}
        for stage in range(variant.placement.stages):
            if variant.pipelines > 1 and variant.work.gradient_bytes[stage]:
                self._rings[stage] = FluidRing(self, stage)

    def run(self) -> dict[SpanEnd, Fraction]:
        """Return when each span ends."""
        for rank in range(len(self._left)):
            self._go_on(rank)
        self.network.run()
        return self.ends_ns

    def end(self, kind: str, rank: int, microbatch: int) -> None:
        """Note that a span ends now."""
        self.ends_ns[kind, rank, microbatch] = self.network.now_ns

    def send(self, channel: object, ends: Pair, size_bytes: int, left: Then, there: Then) -> None:
        """Send bytes; the last one arrives a latency after it has left."""

        def has_left() -> None:
            left()
            self.network.after(self.latency_ns(ends), there)

        self.network.send(channel, (ends[0].host.name, ends[1].host.name), size_bytes, has_left)

    def latency_ns(self, ends: Pair) -> int:
        """Return the latency between two places."""
        one, other = ends
        if one.host == other.host:
            return 0
        return self._limits.intra_ns if one.datacenter == other.datacenter else self._limits.wan_ns

    def _go_on(self, rank: int) -> None:
        """Begin the next of GPipe's computations when what it needs is there; join the ring after the last one."""
        work, stages = self.variant.work, self.variant.placement.stages
        stage = rank % stages
        if self._busy[rank] or not self._left[rank]:
            return
        kind, microbatch = self._left[rank][0]
        from_before = kind == "forward" and stage > 0
        from_after = kind == "backward" and stage < stages - 1
        if (from_before or from_after) and (kind, rank, microbatch) not in self._inputs:
            return
        self._busy[rank] = True

        def done() -> None:
            self._busy[rank] = False
            self._left[rank].pop(0)
            self.end(kind, rank, microbatch)
            peer = rank + (1 if kind == "forward" else -1)
            if 0 <= stage + peer - rank < stages:
                self._hand_over(kind, rank, peer, microbatch)
            if not self._left[rank] and stage in self._rings:
                self._rings[stage].join(rank // stages)
            self._go_on(rank)

        self.network.after((work.forward_ns if kind == "forward" else work.backward_ns)[stage], done)

    def _hand_over(self, kind: str, rank: int, peer: int, microbatch: int) -> None:
        def there() -> None:
            self.end("receive", peer, microbatch if kind == "forward" else self.variant.microbatches + microbatch)
            self._inputs.add((kind, peer, microbatch))
            self._go_on(peer)

        places, stages = self.variant.placement.places, self.variant.placement.stages
        size_bytes = self.variant.work.activation_bytes[min(rank, peer) % stages]
        self.send((rank, peer), (places[rank], places[peer]), size_bytes, _nothing, there)

    def _crossed(self, hosts: tuple[str, str]) -> list[Resource]:
        ends = self._home[hosts[0]], self._home[hosts[1]]
        if hosts[0] == hosts[1]:
            return []
        names: list[Resource] = [("port", hosts[1])]
        if ends[0] != ends[1]:
            names += [("pair", hosts), ("trunk", ends)]
        return [name for name in names if self._capacity(name) is not None]

    def _capacity(self, resource: Resource) -> int | None:
        limits = self._limits
        return {"port": limits.port_bps, "pair": limits.pair_bps, "trunk": limits.trunk_bps}[resource[0]]

    def _capacity_bps(self, resource: Resource) -> int:
        capacity_bps = self._capacity(resource)
        assert capacity_bps is not None
        return capacity_bps


class FluidRing:
    """The all-reduce of one stage: every replica passes segments on, in ``2 (P - 1)`` steps.

    A step's segment leaves as a first chunk and the rest. A step begins when the first chunk of the step before and all
    of the one before that are there, and its segment arrives no earlier than what it passes on.
    """

    def __init__(self, training: FluidTraining, stage: int) -> None:
        variant = training.variant
        self._training, self._stage = training, stage
        self._replicas = replicas = variant.pipelines
        self._places = variant.rings(stage).rings[0]
        self._position = {place.pipeline: position for position, place in enumerate(self._places)}
        size_bytes = variant.work.gradient_bytes[stage]
        segment_bytes = -(-size_bytes // replicas)
        first_bytes = min(ring_chunk_bytes(size_bytes, 1, replicas), segment_bytes)
        self._parts_bytes = [first_bytes, segment_bytes - first_bytes][: 1 if first_bytes == segment_bytes else 2]
        self._steps = 2 * (replicas - 1)
        self._joined = [False] * replicas
        self._begun = [0] * replicas
        self._left: list[set[int]] = [set() for _ in range(replicas)]
        self._passed = [0] * replicas
        self._first = [0] * replicas
        self._whole = [0] * replicas
        self._done = [False] * replicas

    def join(self, pipeline: int) -> None:
        """Handle that the replica of a pipeline is ready."""
        replica = self._position[pipeline]
        self._joined[replica] = True
        self._go_on(replica)

    def _go_on(self, replica: int) -> None:
        if not self._joined[replica]:
            return
        while (step := self._begun[replica]) < self._steps and (
            self._first[replica] >= step and self._whole[replica] >= step - 1
        ):
            self._begun[replica] += 1
            self._send(replica, step)
        following, training = (replica + 1) % self._replicas, self._training
        while self._passed[replica] in self._left[replica] and self._whole[replica] >= self._passed[replica]:
            self._passed[replica] += 1
            training.network.after(training.latency_ns(self._hop(replica)), self._arrival(following))
        if self._whole[replica] == self._steps and len(self._left[replica]) == self._steps and not self._done[replica]:
            self._done[replica] = True
            rank = self._places[replica].pipeline * training.variant.placement.stages + self._stage
            training.end("all_reduce", rank, NO_MICROBATCH)

    def _hop(self, replica: int) -> Pair:
        return self._places[replica], self._places[(replica + 1) % self._replicas]

    def _arrival(self, following: int) -> Then:
        def there() -> None:
            self._whole[following] += 1
            self._go_on(following)

        return there

    def _send(self, replica: int, step: int) -> None:
        following = (replica + 1) % self._replicas

        def first_there() -> None:
            self._first[following] = max(self._first[following], step + 1)
            self._go_on(following)

        def last_left() -> None:
            self._left[replica].add(step)
            self._go_on(replica)

        last = len(self._parts_bytes) - 1
        for part, size_bytes in enumerate(self._parts_bytes):
            self._training.send(
                ("ring", self._stage, replica),
                self._hop(replica),
                size_bytes,
                last_left if part == last else _nothing,
                first_there if part == 0 else _nothing,
            )


def _nothing() -> None:
    pass
