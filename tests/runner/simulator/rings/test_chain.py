"""Reduce and broadcast along a chain by arithmetic, against the bound, and with replicas that differ."""

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.runner.simulator.rings.replicas_apart import replicas_apart, simulated
from tests.runner.simulator.variants import all_reduces_ns
from tests.support.present import present
from tests.support.runner.small_experiment import sweep_point
from tests.support.simulator.simulation_of import simulation_of
from wanbed.runner.bound.lower_bound import lower_bounds
from wanbed.runner.resolve.tcp_effects import TcpEffects
from wanbed.runner.simulator.rings.chain import ChainCut

MS = 1_000_000
PIECE_BYTES = 256 * 1024


def document(replicas: int, **changes: Any) -> dict[str, Any]:
    """One replica in each datacenter, and 40 pieces of 256 KiB."""
    placement = changes.pop("placement", [[f"dc{number}"] for number in range(replicas)])
    return replicas_apart("chain", "10MiB", replicas, placement=placement, **changes)


@pytest.mark.parametrize("replicas", [2, 3, 4, 6])
def test_the_data_goes_there_and_back_a_piece_and_a_latency_behind_for_each_further_hop(replicas: int) -> None:
    hop_ms, data_ms = PIECE_BYTES / 1e4, 40 * PIECE_BYTES / 1e4
    expected_ms = 2 * data_ms + 2 * (replicas - 2) * hop_ms + 2 * (replicas - 1) * 10
    # The first iteration ends when the last replica has the sum; replicas end at different times.
    assert max(all_reduces_ns(simulated(document(replicas)))) / MS == pytest.approx(expected_ms, rel=1e-6)


def test_the_reduce_leaves_out_the_hop_from_the_first_replica_and_the_broadcast_the_one_to_it() -> None:
    simulation = simulated(document(4))
    sent = {
        (each.source, each.destination): int(each.wire_bytes[-1]) / (2 * 40 * PIECE_BYTES)
        for each in simulation.traffic
    }
    assert sent == pytest.approx(
        {("dc0-0", "dc1-0"): 1, ("dc1-0", "dc2-0"): 2, ("dc2-0", "dc3-0"): 2, ("dc3-0", "dc0-0"): 1}, rel=1e-4
    )


@pytest.mark.parametrize("late", range(3))
def test_all_wait_for_a_late_replica_and_only_what_follows_it_is_left(late: int) -> None:
    compute = {"forward": "10ms", "backward": "20ms"}
    slower = {**compute, "slower": [{"host": f"dc{late}-0", "factor": 1000}]}
    hop_ms, data_ms = PIECE_BYTES / 1e4, 40 * PIECE_BYTES / 1e4
    hops = {0: 2, 1: 4, 2: 3}[late]
    # What has been reduced up to it waits there: it sends all at once, and if it is the first the broadcast is left.
    passes = 1 if late == 0 else 2
    took_ms = max(all_reduces_ns(simulated(document(3, compute=slower)))) / MS
    assert took_ms == pytest.approx(30_000 - 30 + passes * data_ms + (hops - passes) * hop_ms + hops * 10, rel=1e-3)


@settings(max_examples=25, deadline=None)
@given(
    replicas=st.integers(2, 5),
    gradient=st.integers(1, 30_000_000),
    latency_ms=st.integers(0, 200),
    slow=st.integers(5, 200),
    late=st.integers(0, 4),
)
def test_it_is_never_quicker_than_the_bound(
    replicas: int, gradient: int, latency_ms: int, slow: int, late: int
) -> None:
    links = [{"between": ["dc0", "dc1"], "latency": f"{latency_ms}ms", "node_pair_rate": f"{slow}Mbit"}]
    slower = [{"host": f"dc{late % replicas}-0", "factor": 50}]
    written = document(replicas, compute={"gradient": f"{gradient}B", "slower": slower}, links=links)
    point = sweep_point(written)
    simulation = simulated(written)
    bounds = present(lower_bounds(point.topology, point.variants[0], 2))
    assert 0 < bounds.makespan.time_ns <= min(end_ns - begin_ns for begin_ns, end_ns in simulation.windows_ns)
    assert 0 < bounds.period.time_ns <= simulation.windows_ns[-1][1] / 2


@settings(max_examples=15, deadline=None)
@given(
    stages=st.integers(2, 3),
    gradient=st.integers(1, 8_000_000),
    activation=st.integers(1, 2_000_000),
    latency_ms=st.integers(0, 100),
)
def test_pipelines_are_never_quicker_than_the_bound(
    stages: int, gradient: int, activation: int, latency_ms: int
) -> None:
    written = document(
        2 * stages,
        schedule="gpipe",
        training={"stages": stages, "pipelines": 2, "microbatches": 3, "iterations": 3},
        placement=[[f"dc{pipeline * stages + stage}" for stage in range(stages)] for pipeline in range(2)],
        compute={"gradient": f"{gradient}B", "activation": f"{activation}B"},
        wan={"node_pair_rate": "80Mbit", "latency": f"{latency_ms}ms"},
    )
    point = sweep_point(written)
    simulation = simulation_of(written, 3, effects=TcpEffects())
    bounds = present(lower_bounds(point.topology, point.variants[0], 3))
    assert bounds.makespan.time_ns <= min(end_ns - begin_ns for begin_ns, end_ns in simulation.windows_ns)
    assert bounds.period.time_ns <= simulation.windows_ns[-1][1] / 3


def test_tcp_takes_longer_and_the_same_file_gives_the_same_times() -> None:
    written = document(3, transport={"connections": 2})
    ideal, tcp = simulated(written), simulated(written, TcpEffects())
    assert max(all_reduces_ns(ideal)) < max(all_reduces_ns(tcp)) < 1.4 * max(all_reduces_ns(ideal))
    assert (simulated(written, TcpEffects()).spans.end_ns == tcp.spans.end_ns).all()


@given(st.integers(1, 10**9), st.integers(1, 8))
def test_pieces_are_the_data(size_bytes: int, connections: int) -> None:
    cut = ChainCut.of(size_bytes, connections)
    assert sum(cut.pieces_bytes) == size_bytes
    assert all(0 < piece <= cut.piece_bytes for piece in cut.pieces_bytes)
    assert len(cut.pieces_bytes) <= 256
    assert cut.window >= len(cut.pieces_bytes) - 1
