"""Gloo's ring by arithmetic, against the bound, and with replicas that differ."""

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

MS = 1_000_000
MIB_MS = 2**20 / 1e4
"""What 1 MiB takes at 80 Mbit/s."""


def document(replicas: int, gradient: str = "16MiB", **changes: Any) -> dict[str, Any]:
    placement = changes.pop("placement", [[f"dc{number}"] for number in range(replicas)])
    return replicas_apart("gloo", gradient, replicas, placement=placement, **changes)


def pass_ms(chunks: int, chunk_ms: float, latency_ms: float) -> float:
    """Two passes of so many chunks: two in a round trip and a chunk's time, or each in a chunk's time."""
    if chunk_ms >= 2 * latency_ms:
        return 2 * (2 * latency_ms + chunks * chunk_ms)
    return 2 * (-(-chunks // 2) * (2 * latency_ms + chunk_ms) + (chunk_ms if chunks % 2 == 0 else 0))


@pytest.mark.parametrize(
    ("replicas", "mib", "latency_ms", "chunks", "chunk_mib"),
    [
        (2, 16, 10, 8, 1),
        (4, 16, 10, 12, 1),
        (4, 16, 200, 12, 1),
        (4, 1, 10, 6, 1 / 8),
        (4, 12, 200, 9, 1),
        (8, 64, 100, 56, 1),
    ],
)
def test_two_chunks_are_under_way_and_each_waits_for_its_announcement(
    replicas: int, mib: int, latency_ms: int, chunks: int, chunk_mib: float
) -> None:
    wan = {"node_pair_rate": "80Mbit", "latency": f"{latency_ms}ms"}
    took_ms = max(all_reduces_ns(simulated(document(replicas, f"{mib}MiB", wan=wan)))) / MS
    assert took_ms == pytest.approx(pass_ms(chunks, chunk_mib * MIB_MS, latency_ms), rel=1e-6)


def test_each_hop_carries_all_segments_but_one_in_each_pass() -> None:
    simulation = simulated(document(4))
    sent = [int(each.wire_bytes[-1]) / 2 for each in simulation.traffic]
    assert sent == pytest.approx([2 * 12 * 2**20] * 4)


@pytest.mark.parametrize("late", range(3))
def test_all_wait_for_a_late_replica(late: int) -> None:
    slower = {"slower": [{"host": f"dc{late}-0", "factor": 1000}]}
    at_once, later = (simulated(document(3, "12MiB", compute=compute)) for compute in ({}, slower))
    took_ms = max(all_reduces_ns(later)) / MS
    # Until it is ready nobody gets more than two chunks: what is left takes as long as if all had begun together.
    assert took_ms == pytest.approx(3000 - 3 + max(all_reduces_ns(at_once)) / MS, abs=2 * MIB_MS + 20)


@settings(max_examples=25, deadline=None)
@given(
    replicas=st.integers(2, 5),
    gradient=st.integers(1, 40) | st.integers(1, 30_000_000),
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


def test_a_ring_of_wanbeds_own_is_quicker_where_latency_is_long() -> None:
    wan = {"node_pair_rate": "80Mbit", "latency": "200ms"}
    announced = max(all_reduces_ns(simulated(document(4, wan=wan))))
    ring = max(all_reduces_ns(simulated(replicas_apart("ring", "16MiB", 4, wan=wan))))
    assert announced > 1.5 * ring


def test_tcp_takes_longer_and_the_same_file_gives_the_same_times() -> None:
    written = document(3, transport={"connections": 2})
    ideal, tcp = simulated(written), simulated(written, TcpEffects())
    assert max(all_reduces_ns(ideal)) < max(all_reduces_ns(tcp)) < 1.4 * max(all_reduces_ns(ideal))
    assert (simulated(written, TcpEffects()).spans.end_ns == tcp.spans.end_ns).all()
