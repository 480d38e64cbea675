"""Butterfly all-reduces by arithmetic, against the bound, and with replicas that differ."""

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.runner.simulator.rings.replicas_apart import replicas_apart, simulated
from tests.runner.simulator.variants import all_reduces_ns
from tests.support.present import present
from tests.support.runner.small_experiment import sweep_point
from wanbed.runner.bound.lower_bound import lower_bounds
from wanbed.runner.resolve.tcp_effects import TcpEffects
from wanbed.runner.simulator.rings.butterfly import ButterflyCut

MS = 1_000_000


def document(replicas: int, **changes: Any) -> dict[str, Any]:
    """One replica in each datacenter, and 12 MB."""
    return replicas_apart("butterfly", "12MB", replicas, **changes)


@pytest.mark.parametrize("replicas", [2, 3, 4, 6])
def test_between_each_two_a_part_and_a_sum_take_their_time_and_one_latency(replicas: int) -> None:
    for took_ns in all_reduces_ns(simulated(document(replicas))):
        assert took_ns / MS == pytest.approx(2 * 1200 / replicas + 10, rel=1e-6)


def test_without_rates_the_way_to_the_farthest_owner_and_back_is_left() -> None:
    written = document(4, wan={"latency": "10ms"}, links=[{"between": ["dc0", "dc3"], "latency": "70ms"}])
    # What one end of the long link owns waits for the other end, and goes back there.
    assert max(all_reduces_ns(simulated(written))) == 2 * 70 * MS


def test_every_node_pair_carries_a_part_and_a_sum() -> None:
    simulation = simulated(document(4))
    assert len(simulation.traffic) == 12
    for each in simulation.traffic:
        assert int(each.wire_bytes[-1]) == pytest.approx(2 * 2 * 12e6 / 4, rel=1e-6)


def test_flows_share_a_trunk_and_the_port_where_they_arrive() -> None:
    trunk = document(3, wan={"rate": "40Mbit", "latency": "0ms"})
    assert max(all_reduces_ns(simulated(trunk))) / MS == pytest.approx(1600, rel=1e-6)
    port = document(4, wan={"latency": "0ms"})
    port["topology"]["intra"] = {"rate": "80Mbit"}
    # Three parts and three sums arrive at each host, 3 MB each.
    assert max(all_reduces_ns(simulated(port))) / MS == pytest.approx(6 * 300, rel=0.02)


def test_two_replicas_take_as_long_as_a_ring_of_two() -> None:
    ring = document(2, transport={"all_reduce": "ring"})
    assert all_reduces_ns(simulated(document(2))) == pytest.approx(all_reduces_ns(simulated(ring)), rel=1e-6)


@pytest.mark.parametrize("gradient", ["1B", "3B"])
def test_segments_without_bytes_are_not_waited_for(gradient: str) -> None:
    took_ns = all_reduces_ns(simulated(document(4, compute={"gradient": gradient}, wan={"latency": "10ms"})))
    assert max(took_ns) == 20 * MS


def test_buckets_follow_each_other() -> None:
    whole = simulated(document(4)).iteration_time_ns(0)
    halves = {"all_reduce_overlap": True, "bucket": "6MB"}
    written = document(4, compute={"backward": "10ms"}, transport=halves)
    # The first of two begins after half of the backward. Each is 3 MB between each two, and pays a latency.
    assert simulated(written).iteration_time_ns(0) / MS == pytest.approx(1 + 5 + 2 * 310, rel=1e-6)
    assert whole / MS == pytest.approx(3 + 610, rel=1e-6)


def test_a_late_replica_holds_up_all_others_and_its_part_waits_for_it() -> None:
    compute = {"forward": "10ms", "backward": "20ms", "gradient": "300MB"}
    slower = {**compute, "slower": [{"host": "dc2-0", "factor": 1000}]}
    simulation = simulated(document(3, compute=slower))
    late_ns, part_ns = 30_000 * MS, 10_000 * MS
    took_ns = max(all_reduces_ns(simulation))
    # The part for the late one, 100 MB, is there before. Its own parts and the sums of them are what counts.
    assert took_ns == pytest.approx(late_ns + 2 * part_ns, rel=0.01)
    (way,) = (each for each in simulation.traffic if (each.source, each.destination) == ("dc0-0", "dc2-0"))
    times_ns, sent_bytes = way.counts()
    waiting = max(int(sent) for at_ns, sent in zip(times_ns, sent_bytes, strict=True) if at_ns < late_ns)
    assert waiting == 100_000_000


@settings(max_examples=25, deadline=None)
@given(
    replicas=st.integers(2, 5),
    gradient=st.integers(1, 30_000_000),
    latency_ms=st.integers(0, 200),
    slow=st.integers(5, 200),
)
def test_it_is_never_quicker_than_the_bound(replicas: int, gradient: int, latency_ms: int, slow: int) -> None:
    links = [{"between": ["dc0", "dc1"], "latency": f"{latency_ms}ms", "node_pair_rate": f"{slow}Mbit"}]
    written = document(replicas, compute={"gradient": f"{gradient}B"}, links=links)
    point = sweep_point(written)
    simulation = simulated(written)
    bounds = present(lower_bounds(point.topology, point.variants[0], 2))
    assert 0 < bounds.makespan.time_ns <= min(end_ns - begin_ns for begin_ns, end_ns in simulation.windows_ns)
    assert 0 < bounds.period.time_ns <= simulation.windows_ns[-1][1] / 2


def test_tcp_takes_longer_and_the_same_file_gives_the_same_times() -> None:
    written = document(3, transport={"connections": 2})
    ideal, tcp = simulated(written), simulated(written, TcpEffects())
    assert max(all_reduces_ns(ideal)) < max(all_reduces_ns(tcp)) < 1.4 * max(all_reduces_ns(ideal))
    assert (simulated(written, TcpEffects()).spans.end_ns == tcp.spans.end_ns).all()


@given(st.integers(0, 10**9), st.integers(2, 40), st.integers(1, 8))
def test_pieces_are_the_segments(size_bytes: int, replicas: int, connections: int) -> None:
    cut = ButterflyCut.of(size_bytes, replicas, connections)
    assert sum(map(sum, cut.pieces_bytes)) == size_bytes
    assert len(cut.pieces_bytes) == replicas
    assert all(0 < piece <= cut.piece_bytes for pieces in cut.pieces_bytes for piece in pieces)
    assert max(map(len, cut.pieces_bytes)) <= 32
    assert cut.window >= 1
