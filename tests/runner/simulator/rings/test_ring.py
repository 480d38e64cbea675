"""Hierarchical all-reduces by arithmetic and against the ring, and optimizer steps that wait for all stages."""

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.runner.simulator.variants import all_reduces_ns
from tests.support.present import present
from tests.support.runner.small_experiment import sweep_point
from tests.support.simulator.simulation_of import simulation_of
from wanbed.runner.bound.lower_bound import lower_bounds
from wanbed.runner.resolve.tcp_effects import IDEAL, TcpEffects
from wanbed.runner.simulator.simulation import KIND_CODES, Simulation
from wanbed.runner.simulator.variant_simulation import simulate_variant
from wanbed.runner.validation.case import chain, side_by_side

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
    return simulation_of(written, 2, effects=effects)


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
    ((begin_ns, end_ns), _) = simulated(document(2, 2, transport=buckets)).windows_ns
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
    model=st.sampled_from(["auto", "ideal"]),
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
        transport={**buckets, "model": model, **({"connections": connections} if model == "auto" else {})},
    )
    point = sweep_point(written)
    bounds = lower_bounds(point.topology, point.variants[0], 2)
    simulation = simulated(written, TcpEffects() if model == "auto" else IDEAL)
    assert bounds is not None
    assert 0 < bounds.makespan.time_ns <= min(end_ns - begin_ns for begin_ns, end_ns in simulation.windows_ns)
    assert 0 < bounds.period.time_ns <= simulation.windows_ns[-1][1] / 2


def test_the_bound_is_reached_where_the_wan_decides() -> None:
    point = sweep_point(document(3, 4, transport={"model": "ideal"}))
    bounds = present(lower_bounds(point.topology, point.variants[0]))
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


NEAR: dict[str, Any] = {"datacenters": [{"name": "east", "hosts": 8}], "intra": {"latency": "0ns"}}
ALL_STAGES = {"optimizer_waits": "all stages"}


def trained(
    topology: dict[str, Any], schedule: str, *, compute: dict[str, Any] | None = None, **training: Any
) -> Simulation:
    point = sweep_point(
        {
            "topology": topology,
            "compute": {"forward": "100ms", "backward": "200ms", "activation": "1B", "gradient": "1B"}
            | (compute or {}),
            "training": {"iterations": 4, **training},
            "variants": [{"name": "v", "schedule": schedule}],
        }
    )
    return simulate_variant(point.topology, point.variants[0], 4, effects=IDEAL)


def periods_ms(simulation: Simulation) -> list[float]:
    return [each / MS for each in np.diff([end_ns for _, end_ns in simulation.windows_ns])]


def makespans_ms(simulation: Simulation) -> list[float]:
    return [(end_ns - start_ns) / MS for start_ns, end_ns in simulation.windows_ns]


def times(simulation: Simulation, kind: str) -> tuple[np.ndarray, np.ndarray]:
    chosen = simulation.spans.kind == KIND_CODES[kind]
    return simulation.spans.start_ns[chosen], simulation.spans.end_ns[chosen]


@pytest.mark.parametrize(("stages", "microbatches"), [(1, 3), (2, 4), (4, 8)])
def test_the_period_of_1f1b_is_its_makespan(stages: int, microbatches: int) -> None:
    waiting = trained(NEAR, "1f1b", stages=stages, microbatches=microbatches, **ALL_STAGES)
    expected = (microbatches + stages - 1) * 300
    assert periods_ms(waiting) == [expected] * 3
    assert makespans_ms(waiting) == [expected] * 4


def test_zero_bubble_loses_what_its_iterations_overlap() -> None:
    size = {"stages": 4, "microbatches": 8}
    compute = {"backward_weight": "100ms"}
    own, waiting = (trained(NEAR, "zb-2p", compute=compute, **size, **waits) for waits in ({}, ALL_STAGES))
    assert (periods_ms(own)[-1], makespans_ms(own)[-1]) == (2400, 2700)
    assert (periods_ms(waiting)[-1], makespans_ms(waiting)[-1]) == (2700, 2700)


def test_no_optimizer_step_begins_before_the_last_gradient_of_any_stage_and_pipeline() -> None:
    compute = {"optimizer": "7ms", "slower": [{"pipeline": 1, "stage": 0, "factor": 1.5}]}
    spans = trained(NEAR, "1f1b", compute=compute, stages=2, pipelines=2, microbatches=3, **ALL_STAGES).spans
    for iteration in range(4):
        own = spans.iteration == iteration
        computed, stepped = (own & (spans.kind == KIND_CODES[kind]) for kind in ("backward", "optimizer"))
        assert spans.start_ns[stepped].min() >= spans.end_ns[computed].max()
        assert int((own & (spans.kind == KIND_CODES["norm"])).sum()) == 4


def test_the_number_goes_round_the_ring_twice_and_each_hop_takes_its_latency() -> None:
    """The last of three replicas begins, after sums of one byte that went the same way."""
    topology = chain([10 * MS, 10 * MS], latency="10ms")
    simulation = trained(topology, "dp", stages=1, pipelines=3, microbatches=1, **ALL_STAGES)
    start_ns, end_ns = (each[:: len(each) // 3] / MS for each in times(simulation, "norm"))
    assert start_ns.tolist() == [340, 320, 330]
    # From 2 at 330 to 0 and 1, which completes the sum, and on to 2 and 0.
    assert end_ns.tolist() == [370, 350, 360]


def test_what_other_traffic_shares_a_node_pair_with_it_is_counted_once() -> None:
    topology = side_by_side(1, latency="5ms", node_pair_rate="100Mbit")
    own, waiting = (
        trained(topology, "dp", compute={"gradient": "1MB"}, stages=1, pipelines=2, microbatches=2, **waits)
        for waits in ({}, ALL_STAGES)
    )
    sent = [sum(flow.wire_bytes[-1] for flow in simulation.traffic) for simulation in (own, waiting)]
    # Two hops of one number of 4 bytes an iteration, either way.
    assert sent[1] - sent[0] == 4 * 2 * 4


@pytest.mark.parametrize("schedule", ["1f1b", "zb-2p", "varuna"])
def test_the_bound_has_the_fill_and_the_drain_and_no_period_is_below_it(schedule: str) -> None:
    document = {
        "topology": side_by_side(4, latency="5ms", node_pair_rate="1Gbit"),
        "compute": {"forward": "20ms", "backward": "40ms", "optimizer": "3ms", "activation": "1MB", "gradient": "2MB"},
        "training": {"stages": 4, "pipelines": 2, "microbatches": 4, "iterations": 4},
        "variants": [
            {"name": "own", "schedule": schedule},
            {"name": "all", "schedule": schedule, "training": ALL_STAGES},
        ],
    }
    point = sweep_point(document)
    own, waiting = (lower_bounds(point.topology, variant, 4) for variant in point.variants)
    assert own is not None
    assert waiting is not None
    assert waiting.period.time_ns >= max(own.period.time_ns, own.makespan.time_ns)
    simulation = simulate_variant(point.topology, point.variants[1], 4)
    assert min(periods_ms(simulation)) * MS >= waiting.period.time_ns


def test_symmetry_changes_nothing() -> None:
    point = sweep_point(
        {
            "topology": side_by_side(4, latency="5ms", node_pair_rate="1Gbit"),
            "compute": {"forward": "20ms", "backward": "40ms", "activation": "1MB", "gradient": "2MB"},
            "training": {"stages": 2, "pipelines": 4, "microbatches": 3, "iterations": 2, **ALL_STAGES},
            "variants": [{"name": "v", "schedule": "1f1b"}],
        }
    )
    one, every = (
        simulate_variant(point.topology, point.variants[0], 2, symmetry=symmetry) for symmetry in (True, False)
    )
    assert np.array_equal(one.spans.end_ns, every.spans.end_ns)
