"""Kinds of trials whose simulations are known to be off from virtual time: what each is, why, and by how much.

Ranges are of measured trials, those of ``wanbed.runner.validation.measured_cells``, which a test holds against them.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import cached_property

from wanbed.results.reading.known_misses import ALL_ITERATIONS, GOODPUT, ITERATIONS, KnownMiss
from wanbed.runner.resolve.connections import count_connections
from wanbed.runner.resolve.experiment import SweepPoint
from wanbed.runner.resolve.followed_packets import follows_packets
from wanbed.runner.resolve.packet_draws import draws_packets
from wanbed.runner.resolve.pipeline_variant import PipelineVariant
from wanbed.runner.resolve.placement import Pair
from wanbed.runner.resolve.resolved_variant import ResolvedVariant
from wanbed.runner.resolve.stage_rings import ring_pairs
from wanbed.runner.resolve.validated_range import beyond, cubic_beyond
from wanbed.runner.trainings.program.resolution import ProgramVariant
from wanbed.runner.trainings.trace.resolution import TraceVariant
from wanbed.testbed.network.topology import Topology


def known_misses(point: SweepPoint) -> tuple[KnownMiss, ...]:
    """Return what applies to the simulation of any variant of a sweep point, each once, in the order of the classes."""
    found = {
        miss for variant in point.variants for miss in misses_of(point.topology, variant, point.iterations(variant))
    }
    return tuple(each.miss for each in MISS_CLASSES if each.miss in found)


def misses_of(topology: Topology, variant: ResolvedVariant, iterations: int) -> tuple[KnownMiss, ...]:
    """Return what applies to the simulation of so many iterations of a variant, in the order of the classes.

    An ideal transport has no TCP that could be off: nothing applies to it. Where packets are followed, nothing applies
    that this settles; a ``disagreement`` is told by their simulation.
    """
    if isinstance(variant, ProgramVariant) or variant.transport.model == "ideal":
        return ()
    traffic = WanTraffic(topology, variant, iterations)
    return tuple(
        each.miss
        for each in MISS_CLASSES
        if each.applies(traffic) and not (each.is_settled_by_packets and traffic.is_followed)
    )


def misses_by_variant(point: SweepPoint) -> dict[str, list[str]]:
    """Return the names of the misses that apply to each variant of a sweep point that any apply to."""
    found = {
        variant.name: [miss.name for miss in misses_of(point.topology, variant, point.iterations(variant))]
        for variant in point.variants
    }
    return {variant: names for variant, names in found.items() if names}


@dataclass(frozen=True)
class WanTraffic:
    """The traffic of so many iterations of a variant, and of all that runs beside it, over the WAN of a topology."""

    topology: Topology
    variant: ResolvedVariant
    iterations: int

    @cached_property
    def is_followed(self) -> bool:
        """Tell whether a simulation follows its packets."""
        return follows_packets(self.topology, self.variant, self.iterations)

    @cached_property
    def pairs(self) -> tuple[Pair, ...]:
        """The places that the variant joins across the WAN."""
        return _across(self.variant.pairs)

    @cached_property
    def _connections(self) -> dict[tuple[str, str], int]:
        return count_connections(self.topology, self.pairs, self.variant.transport)

    @cached_property
    def connections(self) -> int:
        """The most TCP connections between two hosts across the WAN, 0 without any."""
        return max(self._connections.values(), default=0)

    @cached_property
    def window_over_line(self) -> float:
        """The largest ratio of what a node pair's windows have in flight to what its line holds, rate x RTT.

        0 without a limited rate: then windows alone are the limit.
        """
        counted = {
            (one.datacenter, other.datacenter, self._connections[one.host.name, other.host.name])
            for one, other in self.pairs
        }
        window_bytes = self.variant.tcp.window_bytes
        return max(
            (
                connections * window_bytes / held_bytes
                for one, other, connections in counted
                for held_bytes in self._held_bytes(one, other)
            ),
            default=0.0,
        )

    @cached_property
    def transfer_over_line(self) -> tuple[float, ...]:
        """The ratio of each transfer over the WAN to what its node pair's line holds: of pipelines, between stages.

        With temporal sharing a node pair carries its part of a transfer. () without a limited rate.
        """
        if not isinstance(self.variant, PipelineVariant):
            crossing = {(each.size_bytes, each.pair) for each in self.variant.transfers() if _across((each.pair,))}
            return tuple(
                size / held_bytes
                for size, (one, other) in crossing
                for held_bytes in self._held_bytes(one.datacenter, other.datacenter)
            )
        joined = {(one.datacenter, other.datacenter) for one, other in self.pairs}
        held = {held_bytes for ends in joined for held_bytes in self._held_bytes(*ends)}
        sizes = _crossing_bytes(self.variant)
        return tuple(size / self.variant.pipelines_per_cell / each for size in sizes for each in held)

    def _held_bytes(self, one: str, other: str) -> Iterator[float]:
        """Yield what a line of two datacenters holds, rate x RTT, in each direction in which its rate is limited."""
        for ends in ((one, other), (other, one)):
            if held_bytes := self.topology.pair_in_flight_bytes(*ends):
                yield held_bytes

    @cached_property
    def fills_a_trunk(self) -> bool:
        """Tell whether the variant's node pairs together can send more over a trunk than it carries, at any time."""
        return self._fills((self.variant,))

    @cached_property
    def fills_a_trunk_with_others(self) -> bool:
        """Tell whether it can together with the variants of other jobs that run beside it."""
        return bool(self.variant.beside) and self._fills((self.variant, *self.variant.beside))

    def _fills(self, at_once: Iterable[ResolvedVariant]) -> bool:
        asked = Counter(each for variant in at_once for each in _asked_bps(self.topology, variant))
        for link in self.topology.wan:
            for ends, _ in link.directions:
                own = [(windows_bps, count) for (way, windows_bps), count in asked.items() if way == ends]
                for conditions in self.topology.ever(*ends):
                    trunk_bps, pair_bps = conditions.rate_bps, conditions.pair_rate_bps
                    if trunk_bps is None or pair_bps is None:
                        continue
                    if sum(min(windows_bps, pair_bps) * count for windows_bps, count in own) > trunk_bps:
                        return True
        return False

    @cached_property
    def rings_cross(self) -> bool:
        """Tell whether a ring that sums more than a byte a replica crosses the WAN."""
        return any(_across(pairs) for pairs in _rings(self.variant))

    @property
    def is_drawn_as_compared(self) -> bool:
        """Tell whether packets draw losses or jitter, all of it within what was compared with virtual time.

        A trial beyond that is reported as not modelled.
        """
        if not draws_packets(self.topology, self.variant.transport):
            return False
        several = self.variant.transport.connections != 1
        is_cubic = self.variant.transport.congestion == "cubic"
        ways = [conditions for link in self.topology.wan for _, conditions in link.directions]
        return not any(
            any(beyond(conditions)) or (is_cubic and any(cubic_beyond(conditions, several=several)))
            for conditions in ways
        )

    @property
    def has_background(self) -> bool:
        """Tell whether flows that train nothing share the WAN with it."""
        return bool(self.variant.background)

    @property
    def breaks(self) -> bool:
        """Tell whether a link is down at any time of the trial."""
        return any(
            not conditions.up
            for link in self.topology.wan
            for ends, _ in link.directions
            for conditions in self.topology.ever(*ends)
        )


def _across(pairs: Iterable[Pair]) -> tuple[Pair, ...]:
    return tuple(pair for pair in pairs if pair[0].datacenter != pair[1].datacenter)


def _asked_bps(topology: Topology, variant: ResolvedVariant) -> Iterator[tuple[tuple[str, str], float]]:
    """Yield the directed datacenters of each node pair across the WAN, and what its windows let it send."""
    pairs = _across(variant.pairs)
    counts = count_connections(topology, pairs, variant.transport)
    hosts: Counter[tuple[str, str]] = Counter()
    for one, other in pairs:
        names = one.host.name, other.host.name
        hosts[names] += 1
        if hosts[names] > 1:
            # Stages that share two hosts share their node pair.
            continue
        rtt_ns = topology.rtt_ns(one.datacenter, other.datacenter)
        in_flight_bits = counts[names] * variant.tcp.window_bytes * 8
        windows_bps = in_flight_bits * 1e9 / rtt_ns if rtt_ns else float("inf")
        yield (one.datacenter, other.datacenter), windows_bps
        yield (other.datacenter, one.datacenter), windows_bps


def _crossing_bytes(variant: PipelineVariant) -> tuple[int, ...]:
    """Return the size of each transfer over a WAN boundary."""
    placement, sizes = variant.placement, variant.work.activation_bytes
    if variant.layout.chunks > 1:
        # Which messages cross is not told by boundaries between stages.
        return tuple(sizes)
    return tuple(size for boundary, size in enumerate(sizes[: placement.stages - 1]) if placement.crosses_wan(boundary))


def _rings(variant: ResolvedVariant) -> Iterator[tuple[Pair, ...]]:
    """Yield the neighbours of each ring that sums more than a byte a replica."""
    if isinstance(variant, TraceVariant):
        yield from variant.rings
    if not isinstance(variant, PipelineVariant) or variant.is_star:
        return
    for stage in range(variant.placement.stages):
        if max(variant.buckets_bytes(stage), default=0) > variant.pipelines:
            yield from (tuple(ring_pairs(ring)) for ring in variant.rings(stage).rings)


NEAR_THE_LINE = (0.9, 1.5)
"""From where to where the window of a single connection is about what the line holds."""

SHORT_TRANSFERS = (0.1, 1.0)
"""From where to where transfers are so short, against what the line holds, that windows open over several of them."""

FEW_LINES, LONG_TRANSFERS = 5.0, 3.0
"""Up to how many times what the line holds a window is short of both directions, and from when transfers are long."""

DEEP_QUEUES = 50
"""The ratio of the windows of rings to what the line holds, from which they are far beyond it."""


@dataclass(frozen=True)
class MissKind:
    """A kind of trial: what is recorded of it, and why simulations are off."""

    miss: KnownMiss
    why: str


@dataclass(frozen=True)
class MissClass(MissKind):
    """A kind of trial that is told by its experiment.

    The range is of trials that have the WAN for themselves, or if the kind ``is_shared`` of those that do not.
    """

    applies: Callable[[WanTraffic], bool]
    is_shared: bool = False
    is_settled_by_packets: bool = True


def _rings_over_connections(traffic: WanTraffic) -> bool:
    return traffic.connections > 1 and traffic.rings_cross


def _opens_over_several_transfers(traffic: WanTraffic) -> bool:
    if traffic.connections != 1 or traffic.variant.transport.congestion == "reno":
        return False
    least, most = SHORT_TRANSFERS
    short = any(least <= ratio < most for ratio in traffic.transfer_over_line)
    return traffic.window_over_line >= NEAR_THE_LINE[0] and short


def _window_near_the_line(traffic: WanTraffic) -> bool:
    least, most = NEAR_THE_LINE
    return traffic.connections == 1 and least <= traffic.window_over_line < most


def _long_transfers_both_ways(traffic: WanTraffic) -> bool:
    if traffic.connections != 1:
        return False
    is_long = any(ratio >= LONG_TRANSFERS for ratio in traffic.transfer_over_line)
    return is_long and NEAR_THE_LINE[1] <= traffic.window_over_line < FEW_LINES


def _rings_over_deep_queues(traffic: WanTraffic) -> bool:
    return traffic.rings_cross and traffic.window_over_line >= DEEP_QUEUES


def _flows(figure: str, low: float, high: float, cells: int) -> KnownMiss:
    name = "background-goodput" if figure == GOODPUT else "background"
    return KnownMiss(name, "flows in the background share the WAN", low, high, cells, figure)


MISS_CLASSES: tuple[MissClass, ...] = (
    MissClass(
        KnownMiss("unequal-connections", "several connections join a node pair", -0.44, 0.41, 211),
        "Each connection leaves cubic's slow start at another moment (HyStart) and keeps a window of another width. A "
        "transfer is whole when the narrowest has sent its chunks. The simulator takes connections for equal. With "
        "reno 15 of 16 trials were within 2 %.",
        lambda traffic: traffic.connections > 1,
    ),
    MissClass(
        KnownMiss("rings-over-connections", "rings over the WAN use several connections", -0.31, 0.41, 67),
        "As above, at every step of the ring: the last chunk of a step holds the next step up, and what follows goes "
        "ahead of it over wider connections.",
        _rings_over_connections,
    ),
    MissClass(
        KnownMiss("short-transfers", "a connection's window opens over several transfers", -0.41, 0.08, 65),
        "A transfer of a tenth to all of what the line holds is over before slow start is. Cubic's HyStart may end "
        "slow start far below the line: in one of these trials a window was at 50 to 150 segments for 16 s, where the "
        "line holds 690. The simulator ends slow start at about what the line holds.",
        _opens_over_several_transfers,
    ),
    MissClass(
        KnownMiss("window-near-the-line", "a connection's window is about what the line holds", -0.22, 0.09, 32),
        "Whether the window or the line is the limit is then decided by how a window grows after slow start and after "
        "a pause, which the simulator has as a twentieth a round.",
        _window_near_the_line,
    ),
    MissClass(
        KnownMiss(
            "long-transfers-both-ways", "a window of a few times the line carries long transfers", -0.12, 0.05, 22
        ),
        "Both directions are full, and acknowledgements wait behind the other direction's bytes: a window that is "
        "enough for the line alone is not for the line and that wait. How long they wait depends on which direction "
        "is ahead; packets settle that otherwise than the simulator's windows do.",
        _long_transfers_both_ways,
    ),
    MissClass(
        KnownMiss("full-trunk", "node pairs together fill a trunk", -0.31, 0.34, 85),
        "Real TCP shares a full trunk equally in the mean only: windows that opened earlier keep more for a while. The "
        "simulator shares it max-min at every instant.",
        lambda traffic: traffic.fills_a_trunk,
    ),
    MissClass(
        KnownMiss("rings-over-deep-queues", "rings over the WAN queue far beyond what the line holds", -0.32, 0.41, 48),
        "Both directions are full behind windows of 50 times what the line holds and more. Acknowledgements wait "
        "behind the other direction's bytes; window by window, the simulator lets them wait longer than packets do.",
        _rings_over_deep_queues,
    ),
    MissClass(
        KnownMiss("jobs-on-a-full-trunk", "jobs together fill a trunk", -0.04, 0.70, 16),
        "As of a full trunk. One trial is far off, the others are within 9 %. Its transfers are short against what the "
        "line holds as well (`short-transfers`); more is not known.",
        lambda traffic: traffic.fills_a_trunk_with_others,
        is_shared=True,
    ),
    MissClass(
        _flows(ITERATIONS, -0.36, 0.01, 16),
        "A simulation shares a trunk max-min at every instant. Real flows have their share in the mean only, by "
        "windows that opened at other moments.",
        lambda traffic: traffic.has_background,
        is_shared=True,
        is_settled_by_packets=False,
    ),
    MissClass(
        _flows(GOODPUT, -0.34, 0.02, 44),
        "The same from the side of the flows: what they carried while iterations were measured.",
        lambda traffic: traffic.has_background,
        is_shared=True,
        is_settled_by_packets=False,
    ),
    MissClass(
        KnownMiss("outage", "a link is down for a while", -0.67, 0.28, 24, ALL_ITERATIONS),
        "Training goes on with the first retransmission that finds the link up. Which one that is differs from "
        "connection to connection, and between two of them the wait doubles. The four trials that took nearly "
        "twice as long as simulated and more are also of the kind `short-transfers`: how long the outage was made no "
        "difference to them.",
        lambda traffic: traffic.breaks,
        is_settled_by_packets=False,
    ),
    MissClass(
        KnownMiss("loss-or-jitter", "packets are lost or delayed at random", -0.18, 0.13, 54),
        "Each course of losses is one of many. The trials and their intervals are on a page of their own: "
        "[lossy-links.md](lossy-links.md). Beyond what was validated there, simulations are reported as not modelled.",
        lambda traffic: traffic.is_drawn_as_compared,
        is_settled_by_packets=False,
    ),
)

AGREEMENT = 0.04
"""The most by which iteration times by packets and by the mean of connections may differ without a mark."""

DISAGREEMENT = MissKind(
    KnownMiss("packets", "packets and the mean of connections differ by more than 4 %", -0.2, 0.1, 78),
    "A single packet more or less in a round may keep a window from opening, and a microsecond may decide which "
    "connection takes the next chunk. Where that matters, the mean of connections is off, and packets may be settled "
    "in another way than hosts settle them. Where both agree within 4 %, 401 of 404 trials were within 5 %.",
)


def disagreement(by_packets_ns: float, by_mean_ns: float) -> tuple[KnownMiss, ...]:
    """Return the mark of a trial whose packets were followed, from its iteration times in both models; () for none."""
    return (DISAGREEMENT.miss,) if abs(by_packets_ns / by_mean_ns - 1) > AGREEMENT else ()
