"""Simulated replicas that synchronise seldom, over rings and over a star; a quorum does not wait for the slow."""

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.runner.simulator.variants import all_reduces_ns
from tests.support.runner.small_experiment import sweep_point
from tests.support.simulator.events import run_all
from tests.support.simulator.simulation_of import simulation_of
from wanbed.flow.channel import PrivateChannel
from wanbed.flow.event_queue import EventQueue
from wanbed.flow.line import Line
from wanbed.flow.striping import Striping
from wanbed.flow.window import TcpWindow
from wanbed.runner.resolve.connections import count_connections
from wanbed.runner.resolve.tcp_effects import IDEAL, TcpEffects, effects_of
from wanbed.runner.simulator.channels.network import Network
from wanbed.runner.simulator.simulation import KIND_CODES, Simulation
from wanbed.runner.simulator.variant_simulation import simulate_variant
from wanbed.runner.trainings.local_updates.simulation import PartCut, Star, star_ends
from wanbed.workloads.transport.frame import HEADER_BYTES
from wanbed.workloads.transport.quorum_rounds import StarPart

MS = 10**6

ITERATIONS, ITERATION_MS = 8, 4 * 15 + 5

ALL_REDUCE = KIND_CODES["all_reduce"]


def simulated(options: dict[str, Any], *, stages: int = 1, symmetry: bool = True, **sections: Any) -> Simulation:
    own = sweep_point(
        {
            "topology": {
                "datacenters": [{"name": name, "hosts": 2} for name in ("east", "central", "west")],
                "wan": {"latency": "10ms", "rate": "100Mbit"},
            },
            "compute": {"forward": "5ms", "backward": "10ms", "optimizer": "5ms", "activation": "1KiB"}
            | {"gradient": "480KiB"},
            "training": {"stages": stages, "pipelines": 3, "microbatches": 4, "iterations": ITERATIONS, "warmup": 0}
            | {"precision": "fp32"},
            "variants": [{"name": "d", "schedule": "diloco", "options": options, "transport": {"model": "ideal"}}],
            "engine": "simulate",
            **sections,
        }
    )
    (variant,) = own.variants
    effects = effects_of(variant.transport)
    return simulate_variant(own.topology, variant, ITERATIONS, effects=effects, symmetry=symmetry)


def end_ms(simulation: Simulation) -> float:
    return float(simulation.spans.end_ns.max()) / MS


def test_a_synchronisation_takes_what_its_bytes_take() -> None:
    simulation = simulated({"sync_every": 4})
    took = all_reduces_ns(simulation)
    assert len(took) == 3 * ITERATIONS // 4
    assert max(took) / MS == pytest.approx(4 * (480 * 1024 / 3 * 8 / 100e6 * 1e3 + 10), rel=0.05)
    assert end_ms(simulation) == pytest.approx(ITERATIONS * ITERATION_MS + 2 * max(took) / MS, rel=1e-3)


def test_a_delay_hides_a_synchronisation_behind_the_iterations_beside_it() -> None:
    simulation = simulated({"sync_every": 4, "delay": 2})
    assert max(all_reduces_ns(simulation)) / MS < 2 * ITERATION_MS
    assert end_ms(simulation) == ITERATIONS * ITERATION_MS


def test_what_a_delay_does_not_hide_is_waited_for() -> None:
    spans = simulated({"sync_every": 2, "delay": 1}, compute={"forward": "1ms", "gradient": "2MB"}).spans
    summing = spans.kind == ALL_REDUCE
    assert summing.sum() == 3 * ITERATIONS // 2
    rows = zip(spans.rank[summing], spans.iteration[summing], spans.end_ns[summing], strict=True)
    for rank, iteration, end_ns in rows:
        later = (spans.rank == rank) & (spans.iteration > iteration) & ~summing
        assert iteration == ITERATIONS - 1 or spans.start_ns[later].min() == end_ns


def test_fragments_and_wire_formats_divide_the_bytes() -> None:
    def sent(options: dict[str, Any]) -> int:
        traffic = simulated(options).spans
        return int(traffic.size_bytes[traffic.kind == ALL_REDUCE].sum())

    whole = 3 * 2 * 480 * 1024
    assert [sent({"sync_every": 4, **more}) for more in ({}, {"fragments": 4}, {"wire": "bf16"})] == [
        whole,
        whole,
        whole // 2,
    ]
    assert sent({"sync_every": 4, "wire": "int8"}) == pytest.approx(whole / 4, rel=0.01)
    assert sent({"sync_every": 2}) == 2 * whole


@pytest.mark.parametrize(
    ("options", "iterations"),
    [
        ({"sync_every": 4, "fragments": 2, "delay": 1}, [1, 3, 5, 7]),
        # One that would be applied after the last iteration is not begun.
        ({"sync_every": 3, "delay": 1}, [2, 5]),
    ],
)
def test_spans_name_the_iteration_after_which_they_are_applied(options: dict[str, Any], iterations: list[int]) -> None:
    spans = simulated(options).spans
    assert sorted(set(spans.iteration[spans.kind == ALL_REDUCE].tolist())) == iterations


@given(
    buckets=st.integers(1, 12),
    backward_ms=st.integers(10, 200),
    each_ms=st.integers(1, 40),
    delay=st.integers(0, 1),
)
@settings(max_examples=25, deadline=None)
def test_a_synchronisation_that_begins_in_a_backward_takes_the_time_of_its_buckets(
    buckets: int, backward_ms: int, each_ms: int, delay: int
) -> None:
    # Two replicas on 100 Mbit/s, without latency: a bucket in fp32 takes each_ms.
    bucket_bytes = each_ms * 12_500
    size_bytes = buckets * bucket_bytes
    period, periods, forward_ms = 3, 2, 7
    spans = simulated(
        {"sync_every": period, "delay": delay},
        topology={
            "datacenters": [{"name": "east", "hosts": 1}, {"name": "west", "hosts": 1}],
            "wan": {"latency": "0ms", "node_pair_rate": "100Mbit"},
        },
        compute={"forward": f"{forward_ms}ms", "backward": f"{backward_ms}ms", "activation": "1B"}
        | {"gradient": f"{size_bytes}B"},
        training={"stages": 1, "pipelines": 2, "microbatches": 1, "iterations": ITERATIONS, "warmup": 0}
        | {"precision": "fp32"},
        variants=[
            {
                "name": "d",
                "schedule": "diloco",
                "options": {"sync_every": period, "delay": delay},
                "transport": {"model": "ideal", "all_reduce_overlap": True, "bucket": f"{max(bucket_bytes, 4096)}B"},
            }
        ],
    ).spans
    iteration_ms = forward_ms + backward_ms
    after_begin_ms = max(backward_ms / buckets + buckets * each_ms, backward_ms + each_ms)
    waited_ms = max(after_begin_ms - backward_ms - delay * iteration_ms, 0)
    summing = spans.kind == ALL_REDUCE
    assert summing.sum() == 2 * periods * buckets
    assert spans.size_bytes[summing].sum() == 2 * periods * size_bytes
    assert spans.end_ns.max() / MS == pytest.approx(ITERATIONS * iteration_ms + periods * waited_ms, abs=0.01)


def test_every_stage_synchronises_with_its_own_replicas() -> None:
    spans = simulated({"sync_every": 4}, stages=2).spans
    assert np.bincount(spans.rank[spans.kind == ALL_REDUCE]).tolist() == [ITERATIONS // 4] * 6


@pytest.mark.parametrize("options", [{"sync_every": 2}, {"sync_every": 4, "fragments": 2, "delay": 1}])
def test_simulating_one_of_several_equal_parts_changes_nothing(options: dict[str, Any]) -> None:
    topology = {"datacenters": [{"name": "east", "hosts": 6}, {"name": "west", "hosts": 1}], "wan": {"latency": "1ms"}}
    home = [["east"] * 2] * 3
    variants = [{"name": "d", "schedule": "diloco", "options": options, "placement": home}]
    one, all_of_them = (
        simulated(options, stages=2, symmetry=symmetry, topology=topology, variants=variants).spans
        for symmetry in (True, False)
    )
    for name in ("rank", "kind", "iteration", "start_ns", "end_ns", "size_bytes"):
        assert (getattr(one, name) == getattr(all_of_them, name)).all()


SIZE_BYTES = 1_000_000


def channel(rate_bps: int, latency_ns: int) -> PrivateChannel:
    return PrivateChannel(Line(rate_bps, latency_ns, headers=False), TcpWindow(2 * latency_ns, None, None))


class Played:
    """A star whose replicas are ready for each sum so long after they have the one before."""

    def __init__(
        self, periods_ns: list[int], rates_bps: list[int], latency_ns: int, *, sums: int, quorum: int | None
    ) -> None:
        self.events = EventQueue()
        self.periods_ns, self.sums = periods_ns, sums
        ways = [[channel(rate_bps, latency_ns) for rate_bps in rates_bps] for _ in range(2)]
        cut = PartCut.of(SIZE_BYTES, 1, headers=False)
        connections = [1] * len(rates_bps)
        self.star = Star(*ways, connections, self.events, cuts=[cut], sums=sums, quorum=quorum)
        self.ends_ns: list[list[int]] = [[] for _ in periods_ns]
        self.waits_ns: list[list[int]] = [[] for _ in periods_ns]
        for position, period_ns in enumerate(periods_ns):
            self.events.at(period_ns, self._join, (position, 0))
        run_all(self.events)

    def _join(self, now_ns: int, what: tuple[int, int]) -> None:
        position, number = what

        def done(ready_ns: int, end_ns: int) -> None:
            self.ends_ns[position].append(end_ns)
            self.waits_ns[position].append(end_ns - ready_ns)
            if number + 1 < self.sums:
                self.events.at(end_ns + self.periods_ns[position], self._join, (position, number + 1))

        self.star.join(number, position, now_ns, done)


@given(st.integers(2, 6), st.integers(10**7, 10**10), st.integers(0, 10**8), st.integers(1, 4))
def test_a_sum_of_all_takes_the_way_there_and_back(replicas: int, rate_bps: int, latency_ns: int, sums: int) -> None:
    played = Played([5 * MS] * replicas, [rate_bps] * (replicas - 1), latency_ns, sums=sums, quorum=None)
    one_way_ns = -(-SIZE_BYTES * 8 * 10**9 // rate_bps) + latency_ns
    for waits_ns in played.waits_ns[1:]:
        assert waits_ns == pytest.approx([2 * one_way_ns] * sums, abs=3)
    assert played.waits_ns[0][0] == pytest.approx(one_way_ns, abs=2)


def test_without_a_quorum_all_wait_for_the_slowest() -> None:
    played = Played([10 * MS, 10 * MS, 90 * MS], [8 * 10**9] * 2, 5 * MS, sums=3, quorum=None)
    assert all(done.late == 0 and len(done.parts) == 3 for _, done in played.star.gathered)
    assert played.star.gathered[0][0] == 96 * MS


def test_a_quorum_waits_for_no_other_and_late_parts_count_in_the_next_sum() -> None:
    played = Played([10 * MS, 10 * MS, 90 * MS], [8 * 10**9] * 2, 5 * MS, sums=6, quorum=2)
    gathered = played.star.gathered
    # 10 ms of computing, 1 ms and 5 ms to the one that gathers, and the same way back.
    assert [time_ns for time_ns, _ in gathered] == [16 * MS + 22 * MS * number for number in range(6)]
    parts = [part for _, done in gathered for part in done.parts]
    assert [part for part in parts if part.replica < 2] == [StarPart(each % 2, each // 2) for each in range(12)]
    assert [(done.number, done.late) for _, done in gathered if done.late] == [(4, 1)]
    # The slow replica is always late, and so it never waits.
    assert played.waits_ns[2] == [0] * 6


def test_a_slow_uplink_holds_up_its_replica_alone() -> None:
    # Its part takes 100 ms to leave. The sum is there before, and its next part waits until the network has taken it.
    played = Played([MS] * 3, [8 * 10**9, 8 * 10**7], MS, sums=4, quorum=2)
    assert [time_ns for time_ns, _ in played.star.gathered] == [3 * MS + 5 * MS * number for number in range(4)]
    assert len(played.ends_ns[2]) == 4
    assert played.ends_ns[2][-1] > 300 * MS


class Failing:
    """A star of three on lines of 8 Gbit/s and 5 ms: a part takes 6 ms there, and the sum as long back."""

    def __init__(self, *, sums: int = 3, rate_bps: int = 8 * 10**9) -> None:
        self.events = EventQueue()
        self.inwards, self.outwards = ([channel(rate_bps, 5 * MS) for _ in range(2)] for _ in range(2))
        self.cut = PartCut.of(SIZE_BYTES, 1, headers=False)
        self.star = Star(self.inwards, self.outwards, [1, 1], self.events, cuts=[self.cut], sums=sums, quorum=None)
        self.has: list[tuple[int, int, float]] = []
        self.begun: list[tuple[float, int]] = []

    def at(self, time_ms: float, do: Callable[[int], None]) -> None:
        self.events.at(round(time_ms * MS), lambda now_ns, _: do(now_ns), None)

    def join(self, time_ms: float, number: int, *positions: int) -> None:
        def join(position: int, now_ns: int) -> None:
            self.star.join(number, position, now_ns, lambda _, end_ns: self.has.append((number, position, end_ns / MS)))

        for position in positions:
            self.at(time_ms, partial(join, position))

    def kill(self, time_ms: float, position: int = 2) -> None:
        """Kill a replica, which is noticed 5 ms later."""
        self.at(time_ms, lambda _: self.star.kill(position))
        self.at(time_ms + 5, lambda now_ns: self.star.lose(position, now_ns))

    def admit(self, time_ms: float, sums: int, position: int = 2) -> None:
        self.at(
            time_ms,
            lambda now_ns: self.star.admit(
                position, sums, self.cut, now_ns, lambda at_ns, who: self.begun.append((at_ns / MS, who))
            ),
        )

    def run(self) -> list[tuple[float, list[int]]]:
        """Return when each sum was complete, and whose parts it has."""
        run_all(self.events)
        return [(time_ns / MS, sorted(part.replica for part in done.parts)) for time_ns, done in self.star.gathered]


def test_a_sum_is_complete_without_a_replica_once_its_end_is_noticed() -> None:
    failing = Failing()
    failing.join(0, 0, 0, 1)
    failing.kill(50)
    assert failing.run() == [(55, [0, 1])]
    assert sorted(failing.has) == [(0, 0, 55), (0, 1, 61)]
    # Nothing is sent to the one that has ended.
    assert failing.outwards[0].history
    assert not failing.outwards[1].history


@pytest.mark.parametrize(("killed_ms", "gathered"), [(5.5, (10.5, [0, 1])), (6.5, (6, [0, 1, 2]))])
def test_a_part_counts_if_it_has_arrived_before_its_sender_ended(
    killed_ms: float, gathered: tuple[float, list[int]]
) -> None:
    failing = Failing()
    failing.join(0, 0, 0, 1, 2)
    failing.kill(killed_ms)
    assert failing.run() == [gathered]
    # The one that has ended never has the sum.
    assert {position for _, position, _ in failing.has} == {0, 1}


def test_the_next_sum_waits_for_those_that_are_left() -> None:
    failing = Failing()
    failing.join(0, 0, 0, 1, 2)
    failing.kill(20)
    failing.join(30, 1, 0, 1)
    assert failing.run() == [(6, [0, 1, 2]), (36, [0, 1])]


def test_a_replica_that_comes_back_begins_when_it_has_what_it_begins_with_and_counts_from_then_on() -> None:
    failing = coming_back()
    failing.join(40, 1, 0, 1, 2)
    assert failing.run() == [(6, [0, 1]), (46, [0, 1, 2])]
    assert failing.begun == [(26, 2)]
    assert (1, 2, 52) in failing.has


def coming_back(sums: int = 1, rate_bps: int = 8 * 10**9) -> Failing:
    """A star whose third replica is killed before the first sum, and comes back at 20 ms with so many sums."""
    failing = Failing(rate_bps=rate_bps)
    failing.kill(1)
    failing.join(0, 0, 0, 1)
    failing.admit(20, sums=sums)
    return failing


def test_what_it_begins_with_takes_its_time_on_the_line() -> None:
    failing = coming_back(rate_bps=2 * 10**9)
    failing.run()
    assert failing.begun == [(20 + 4 + 5, 2)]


def test_it_gets_the_sums_that_are_not_in_what_it_begins_with() -> None:
    failing = coming_back(sums=0)
    # What it begins with arrives at 26 ms, and the sum right behind it.
    failing.join(26, 0, 2)
    failing.run()
    assert failing.begun == [(26, 2)]
    assert (0, 2, 27) in failing.has


def test_a_killed_replicas_network_is_free_for_the_one_that_comes_back() -> None:
    failing = Failing(sums=2)
    failing.join(0, 0, 2)
    failing.kill(0.5)
    failing.join(0, 0, 0, 1)
    failing.admit(10, sums=1)
    failing.join(20, 1, 0, 1, 2)
    assert failing.run()[1] == (26, [0, 1, 2])


def test_a_ways_latency_is_that_of_its_line() -> None:
    inwards, outwards = [channel(10**9, MS), channel(10**9, 2 * MS)], [channel(10**9, MS)] * 2
    cuts = [PartCut.of(8, 1, headers=False)]
    star = Star(inwards, outwards, [3, 2], EventQueue(), cuts=cuts, sums=1, quorum=None)
    assert [star.latency_ns(position) for position in (1, 2)] == [MS, 2 * MS]


def test_each_chunk_of_a_part_has_a_header_and_goes_over_one_of_its_connections() -> None:
    bare, framed = (PartCut.of(10_000_001, 4, headers=headers) for headers in (False, True))
    assert bare.framed_bytes == 10_000_001
    assert framed.framed_bytes == 10_000_001 + framed.chunks * HEADER_BYTES
    assert (framed.chunks - 1) * framed.largest_bytes < 10_000_001 <= framed.chunks * framed.largest_bytes
    assert framed.striping(1) is None
    assert framed.striping(3) == Striping(3, framed.chunks, framed.largest_bytes)


COMPUTING_MS = 4 * 15
"""Four microbatches of 5 ms forward and 10 ms backward."""


def document(*, hosts: tuple[int, int, int] = (1, 1, 1), gradient: str = "1000KB", **options: int) -> dict[str, Any]:
    """Three replicas of one stage, a byte a microsecond and 10 ms apart, that sum every second iteration."""
    return {
        "topology": {
            "datacenters": [
                {"name": name, "hosts": count}
                for name, count in zip(("east", "central", "west"), hosts, strict=True)
                if count
            ],
            "intra": {"latency": "3ms"},
            "wan": {"latency": "10ms", "node_pair_rate": "8Mbit"},
        },
        "compute": {"forward": "5ms", "backward": "10ms", "activation": "1KiB", "gradient": gradient},
        "training": {"stages": 1, "pipelines": 3, "microbatches": 4, "iterations": 4, "warmup": 0},
        "variants": [
            {
                "name": "star",
                "schedule": "diloco",
                "options": {"sync_every": 2, "topology": "star", **options},
                "transport": {"connections": 1},
            }
        ],
        "engine": "simulate",
    }


def simulated_star(written: dict[str, Any], iterations: int = 4, effects: TcpEffects = IDEAL) -> Simulation:
    return simulation_of(written, iterations, effects=effects)


def sums_ms(simulation: Simulation, rank: int) -> list[tuple[float, float]]:
    """Return when a rank was ready for each sum and when it had it."""
    spans = simulation.spans
    own = (spans.rank == rank) & (spans.kind == ALL_REDUCE)
    return list(zip((spans.start_ns[own] / MS).tolist(), (spans.end_ns[own] / MS).tolist(), strict=True))


def test_every_other_replica_sends_to_the_first_and_has_the_sum_a_way_there_and_back_later() -> None:
    simulation = simulated_star(document())
    # A part has four bytes for each two of gradients. It takes two seconds and 10 ms to the first, and the sum back.
    way_ms = 2000 + 10
    first_ms = 2 * COMPUTING_MS
    after_ms = first_ms + way_ms + 2 * COMPUTING_MS
    assert sums_ms(simulation, 0)[0] == (first_ms, first_ms + way_ms)
    for rank in (1, 2):
        assert sums_ms(simulation, rank) == [
            (first_ms, first_ms + 2 * way_ms),
            # The first replica is ready again before, and waits for the others.
            (after_ms + way_ms, after_ms + 3 * way_ms),
        ]
    assert sums_ms(simulation, 0)[1] == (after_ms, after_ms + 2 * way_ms)
    assert simulation.sums == ((3, 0), (3, 0))
    assert simulation.dropped == 0


def test_a_part_and_a_sum_cross_each_way_for_each_synchronization() -> None:
    traffic = simulated_star(document()).traffic
    ways = {(each.source, each.destination): int(each.wire_bytes[-1]) for each in traffic}
    names = [("central-0", "east-0"), ("west-0", "east-0")]
    assert ways == dict.fromkeys([*names, *(way[::-1] for way in names)], 2 * 2_000_000)
    # What stays in a datacenter does not cross.
    within = simulated_star(document(hosts=(2, 1, 0))).traffic
    assert {(each.source, each.destination) for each in within} == {("east-0", "central-0"), ("central-0", "east-0")}
    # None is begun whose end no iteration would await.
    assert simulated_star(document(), iterations=1).traffic == ()


def test_parts_are_cut_into_chunks_with_headers_where_headers_count() -> None:
    headers = TcpEffects(window=False, slow_start=False, headers=True)
    # 20,000 bytes are one chunk, 80,000 are four of 16 KiB at least.
    for gradient, part_bytes in (("10KB", 20_000 + HEADER_BYTES), ("40KB", 80_000 + 4 * HEADER_BYTES)):
        traffic = simulated_star(document(gradient=gradient), 2, headers).traffic
        assert [each.wire_bytes[-1] for each in traffic] == [part_bytes * 1514 // 1448] * 4


def test_stars_have_the_ways_of_the_replicas_of_each_stage() -> None:
    point = sweep_point(document())
    (variant,) = point.variants
    connections = count_connections(point.topology, variant.pairs, variant.transport)
    found = star_ends(Network(point.topology, connections, variant, IDEAL))
    ways = {stage: [(one.pipeline, other.pipeline) for one, other in ends] for stage, ends in found.items()}
    assert ways == {0: [(1, 0), (2, 0), (0, 1), (0, 2)]}


def test_a_quorum_does_not_wait_for_a_replica_that_is_far_away() -> None:
    far = [{"between": ["east", "west"], "latency": "1s"}]
    first_ms, sending_ms = 2 * COMPUTING_MS, 2000
    for quorum, latency_ms in ((None, 1000), (3, 1000), (2, 10)):
        written = document() if quorum is None else document(quorum=quorum)
        written["topology"]["links"] = far
        assert sums_ms(simulated_star(written), 0)[0] == (first_ms, first_ms + sending_ms + latency_ms)
