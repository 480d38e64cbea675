"""Optimizer steps that wait for all stages: iterations no longer overlap, and a number goes round all ranks."""

from typing import Any

import numpy as np
import pytest

from tests.runner.simulator.variants import sweep_point
from wanbed.runner.bound.lower_bound import lower_bounds
from wanbed.runner.simulator.simulation import KIND_CODES, Simulation
from wanbed.runner.simulator.variant_simulation import simulate_variant
from wanbed.runner.validation.case import IDEAL, chain, side_by_side

MS = 1_000_000
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
    ends_ns = [end_ns for _, end_ns in simulation.windows_ns]
    return [each / MS for each in np.diff(ends_ns)]


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
    simulation = trained(NEAR, "1f1b", compute=compute, stages=2, pipelines=2, microbatches=3, **ALL_STAGES)
    spans = simulation.spans
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
