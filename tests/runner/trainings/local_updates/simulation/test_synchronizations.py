"""Simulated replicas that synchronise seldom."""

from typing import Any

import numpy as np
import pytest

from tests.runner.simulator.variants import all_reduces_ns, sweep_point
from wanbed.runner.simulator.simulation import KIND_CODES, Simulation
from wanbed.runner.simulator.variant_simulation import simulate_variant
from wanbed.runner.tcp.effects import effects_of

MS = 1_000_000
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
    simulation = simulated({"sync_every": 2, "delay": 1}, compute={"forward": "1ms", "gradient": "2MB"})
    spans = simulation.spans
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

    whole = sent({"sync_every": 4})
    assert whole == 3 * 2 * 480 * 1024
    assert sent({"sync_every": 4, "fragments": 4}) == whole
    assert sent({"sync_every": 4, "wire": "bf16"}) == whole // 2
    assert sent({"sync_every": 4, "wire": "int8"}) == pytest.approx(whole / 4, rel=0.01)
    assert sent({"sync_every": 2}) == 2 * whole


def test_spans_name_the_iteration_after_which_they_are_applied() -> None:
    spans = simulated({"sync_every": 4, "fragments": 2, "delay": 1}).spans
    assert sorted(set(spans.iteration[spans.kind == ALL_REDUCE].tolist())) == [1, 3, 5, 7]


def test_one_that_would_be_applied_after_the_last_iteration_is_not_begun() -> None:
    spans = simulated({"sync_every": 3, "delay": 1}).spans
    assert sorted(set(spans.iteration[spans.kind == ALL_REDUCE].tolist())) == [2, 5]


def test_every_stage_synchronises_with_its_own_replicas() -> None:
    spans = simulated({"sync_every": 4}, stages=2).spans
    summing = spans.rank[spans.kind == ALL_REDUCE]
    assert np.bincount(summing).tolist() == [ITERATIONS // 4] * 6


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
