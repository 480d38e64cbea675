"""Hierarchical all-reduces: by arithmetic, with their bytes over the WAN, and against the ring."""

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.runner.simulator.variants import all_reduces_ns, sweep_point
from wanbed.runner.bound.lower_bound import lower_bounds
from wanbed.runner.simulator.simulation import Simulation
from wanbed.runner.simulator.variant_simulation import simulate_variant
from wanbed.runner.tcp.effects import IDEAL, TcpEffects

MS = 1_000_000


def document(datacenters: int, seats: int, **changes: Any) -> dict[str, Any]:
    """A single stage, with as many replicas in each datacenter."""
    return {
        "topology": {
            "datacenters": [{"name": f"dc{number}", "hosts": seats} for number in range(datacenters)],
            "intra": changes.get("intra", {"latency": "0ms", "rate": "unlimited"}),
            **({"wan": changes.get("wan", {"node_pair_rate": "80Mbit", "latency": "10ms"})} if datacenters > 1 else {}),
        },
        "compute": {"forward": "1ms", "backward": "2ms", "activation": "1B", "gradient": "12MB"}
        | changes.get("compute", {}),
        "training": {
            "stages": 1,
            "pipelines": datacenters * seats,
            "microbatches": 1,
            "iterations": 2,
            "warmup": 0,
        },
        "engine": "simulate",
        "variants": [
            {
                "name": "any",
                "schedule": "dp",
                "transport": {"all_reduce": "hierarchical", **changes.get("transport", {})},
            }
        ],
    }


def simulated(written: dict[str, Any], effects: TcpEffects = IDEAL) -> Simulation:
    point = sweep_point(written)
    return simulate_variant(point.topology, point.variants[0], 2, effects=effects)


@pytest.mark.parametrize(("datacenters", "seats"), [(2, 2), (3, 2), (3, 4), (2, 6)])
def test_without_limits_inside_it_takes_what_the_wan_takes(datacenters: int, seats: int) -> None:
    across_ms = 2 * (datacenters - 1) / datacenters * 1200 / seats + 10
    for took_ns in all_reduces_ns(simulated(document(datacenters, seats))):
        assert took_ns / MS == pytest.approx(across_ms, rel=1e-6)


def test_latencies_add_up_pass_by_pass_where_nothing_limits_the_rate() -> None:
    written = document(3, 4, wan={"latency": "10ms"}, intra={"latency": "1ms", "rate": "unlimited"})
    assert max(all_reduces_ns(simulated(written))) == (2 * 3 * 1 + 2 * 2 * 10) * MS


@pytest.mark.parametrize("buckets", [{}, {"all_reduce_overlap": True, "bucket": "3MB"}])
def test_every_node_pair_carries_its_share_over_the_wan(buckets: dict[str, Any]) -> None:
    simulation = simulated(document(3, 4, transport=buckets))
    assert len(simulation.traffic) == 12
    for each in simulation.traffic:
        assert int(each.wire_bytes[-1]) == pytest.approx(2 * 2 * 2 / 3 * 12e6 / 4, rel=1e-6)


def test_rings_across_share_a_trunk() -> None:
    written = document(2, 4, wan={"rate": "80Mbit", "latency": "0ms"})
    assert max(all_reduces_ns(simulated(written))) / MS == pytest.approx(1200, rel=1e-6)


@pytest.mark.parametrize(("datacenters", "seats"), [(1, 4), (4, 1)])
def test_one_datacenter_or_one_replica_in_each_takes_as_long_as_the_ring(datacenters: int, seats: int) -> None:
    intra = {"latency": "1ms", "rate": "80Mbit"}
    written = document(datacenters, seats, intra=intra)
    ring = document(datacenters, seats, intra=intra, transport={"all_reduce": "ring"})
    assert all_reduces_ns(simulated(written)) == all_reduces_ns(simulated(ring))


def test_buckets_follow_each_other_through_all_rings() -> None:
    buckets = {"all_reduce_overlap": True, "bucket": "6MB"}
    simulation = simulated(document(2, 2, transport=buckets))
    ((begin_ns, end_ns), _) = simulation.windows_ns
    assert (end_ns - begin_ns) / MS == pytest.approx(1 + 1 + 2 * (300 + 10), rel=1e-6)


@settings(max_examples=40, deadline=None)
@given(
    datacenters=st.integers(2, 4),
    seats=st.integers(2, 4),
    connections=st.sampled_from([1, 3, 8]),
    wan=st.sampled_from(
        [
            {"latency": "30ms", "node_pair_rate": "200Mbit"},
            {"latency": "5ms", "rate": "300Mbit"},
            {"latency": "20ms"},
        ]
    ),
    rate=st.sampled_from(["1Gbit", "100Mbit", "unlimited"]),
    gradient=st.sampled_from(["32B", "100kB", "5MB"]),
    buckets=st.sampled_from([{}, {"all_reduce_overlap": True, "bucket": "1MB"}]),
    slower=st.sampled_from([{}, {"slower": [{"pipeline": 1, "factor": 9}]}]),
    model=st.sampled_from(["tcp", "ideal"]),
)
def test_no_iteration_is_shorter_than_its_lower_bound(
    *,
    datacenters: int,
    seats: int,
    connections: int,
    wan: dict[str, str],
    rate: str,
    gradient: str,
    buckets: dict[str, Any],
    slower: dict[str, Any],
    model: str,
) -> None:
    written = document(
        datacenters,
        seats,
        wan=wan,
        intra={"latency": "50us", "rate": rate},
        compute={"gradient": gradient, **slower},
        transport={**buckets, "model": model, **({"connections": connections} if model == "tcp" else {})},
    )
    point = sweep_point(written)
    bounds = lower_bounds(point.topology, point.variants[0], 2)
    simulation = simulated(written, TcpEffects() if model == "tcp" else IDEAL)
    assert bounds is not None
    assert 0 < bounds.makespan.time_ns <= min(end_ns - begin_ns for begin_ns, end_ns in simulation.windows_ns)
    assert 0 < bounds.period.time_ns <= simulation.windows_ns[-1][1] / 2


def test_the_bound_is_reached_where_the_wan_decides() -> None:
    point = sweep_point(document(3, 4, transport={"model": "ideal"}))
    bounds = lower_bounds(point.topology, point.variants[0])
    assert bounds is not None
    for bound in (bounds.makespan, bounds.period):
        assert (round(bound.time_ns / MS, 3), bound.part) == (3 + 400 + 10, "all-reduce of stage 0")


def test_windows_are_those_of_each_node_pair() -> None:
    # 4 node pairs of one window each, where the ring has one between two datacenters.
    effects = TcpEffects(window=True, slow_start=False, headers=False)
    wide = {"wan": {"latency": "50ms"}}
    nested = simulated(document(3, 4, transport={"window": "140kB"}, **wide), effects)
    flat = simulated(document(3, 4, transport={"all_reduce": "ring", "window": "140kB"}, **wide), effects)
    assert max(all_reduces_ns(nested)) / MS >= 4 / 3 * 3e6 / 140e3 * 100 - 100
    assert 3 < max(all_reduces_ns(flat)) / max(all_reduces_ns(nested)) < 6
