from typing import Any

import pytest

from tests.support.runner.planner_instances import document, random_task, task_of
from wanbed.runner.experiment.transport_spec import TransportSpec
from wanbed.runner.planner.algorithm1 import greedy_candidates
from wanbed.runner.planner.bottleneck import IterationLimits, bottleneck_of
from wanbed.runner.planner.candidate import Candidate
from wanbed.runner.planner.critical_path import Part
from wanbed.runner.planner.planning import search_space
from wanbed.runner.resolve.connections import window_bps
from wanbed.runner.simulator.simulation import Simulation
from wanbed.runner.simulator.variant_simulation import simulate_variant
from wanbed.runner.tcp.effects import effects_of

APART = Candidate(1, 1, (("a", 1), ("b", 1)))
MIB = 2**20


def found(
    link: dict[str, Any],
    transport: dict[str, Any],
    *,
    forward: str = "10ms",
    microbatches: int = 40,
    activation: str = "1MiB",
) -> tuple[IterationLimits, Simulation, float]:
    """Return the bottleneck of two stages in two datacenters, its simulation, and its measured time in seconds."""
    task = task_of(
        document(
            {"a": 1, "b": 1},
            2,
            links=[{"between": ["a", "b"], **link}],
            compute={"forward": forward, "activation": "1MiB"},
            training={"stages": 2, "microbatches": microbatches},
            variants=[{"name": "v", "schedule": "gpipe", "transport": transport}],
        )
    )
    variant = task.resolve(APART)
    simulation = simulate_variant(task.topology, variant, 2, effects=effects_of(variant.transport))
    start_ns, end_ns = simulation.windows_ns[1][0], simulation.windows_ns[-1][1]
    return bottleneck_of(task.topology, variant, simulation, 1), simulation, (end_ns - start_ns) / 1e9


FAST = {"latency": "1ms", "node_pair_rate": "10Gbit", "rate": "100Gbit"}


def test_where_gpus_compute_all_the_time_they_are_the_bottleneck() -> None:
    bottleneck, simulation, time_s = found(FAST, {"connections": 16})
    assert bottleneck.path[0].part.kind == "computing"
    assert bottleneck.share("computing") > 0.9
    # 40 forwards of 10 ms and 40 backwards of 20 ms, whichever stage it is.
    assert bottleneck.gpu.busy * time_s == pytest.approx(40 * 0.03, rel=0.001)
    assert simulation.utilization(2, 1) <= bottleneck.gpu.busy


@pytest.mark.parametrize(
    ("link", "transport", "capacity", "capacity_bps"),
    [
        ({"node_pair_rate": "200Mbit", "rate": "1Gbit"}, {"connections": 16}, "node_pair", 200e6),
        ({"node_pair_rate": "unlimited", "rate": "200Mbit"}, {"connections": 16}, "node_pair", 200e6),
        (
            {"node_pair_rate": "10Gbit", "latency": "20ms"},
            {"connections": 2, "window": "256KiB"},
            "windows",
            2 * window_bps(TransportSpec(window="256KiB"), 40_000_000) * 1514 / 1448,
        ),
    ],
)
def test_where_a_link_is_full_its_direction_and_its_capacity_are_named(
    link: dict[str, str], transport: dict[str, Any], capacity: str, capacity_bps: float
) -> None:
    bottleneck, _, time_s = found({**FAST, **link}, transport, forward="1ms")
    use = bottleneck.link
    assert use is not None
    assert bottleneck.path[0].part == Part("link", ("a", "b"))
    assert bottleneck.path[0].share > 0.8
    assert {use.source, use.destination} == {"a", "b"}
    assert use.capacity == capacity
    assert use.capacity_bps == pytest.approx(capacity_bps, rel=0.01)
    assert use.busy * capacity_bps * time_s / 8 == pytest.approx(40 * MIB * 1514 / 1448, rel=0.03)


def test_where_a_single_microbatch_travels_far_the_latency_of_the_link_is_the_bottleneck() -> None:
    far = {**FAST, "latency": "400ms"}
    bottleneck, _, time_s = found(far, {"model": "ideal"}, microbatches=1)
    link = bottleneck.path[0]
    assert link.part == Part("link", ("a", "b"))
    assert link.latency * time_s == pytest.approx(0.8)
    assert link.latency > 0.9 * link.share


def test_where_gradients_are_large_their_all_reduce_is_the_bottleneck() -> None:
    compute = {"forward": "1ms", "activation": "1KiB", "gradient": "4GiB"}
    task = task_of(document({"a": 4}, 2, compute=compute, variants=[{"name": "v", "schedule": "gpipe"}]))
    variant = task.resolve(Candidate(2, 1, (("a", 2),)))
    bottleneck = bottleneck_of(task.topology, variant, simulate_variant(task.topology, variant, 2), 1)
    assert bottleneck.path[0].part.kind == "all_reduce"
    assert bottleneck.path[0].share > 0.9


def test_a_trunk_counts_the_bytes_of_all_its_node_pairs() -> None:
    links = [{"between": ["a", "b"], **FAST, "node_pair_rate": "200Mbit", "rate": "300Mbit"}]
    compute = {"forward": "1ms", "activation": "1MiB"}
    training = {"stages": 2, "microbatches": 20}
    variants = [{"name": "v", "schedule": "gpipe", "transport": {"connections": 4}}]
    content = document({"a": 2, "b": 2}, 2, links=links, compute=compute, training=training, variants=variants)
    task = task_of(content)
    variant = task.resolve(Candidate(2, 1, (("a", 1), ("b", 1))))
    bottleneck = bottleneck_of(task.topology, variant, simulate_variant(task.topology, variant, 2), 1)
    assert bottleneck.link is not None
    assert (bottleneck.link.capacity, bottleneck.link.capacity_bps) == ("trunk", 300e6)


def test_a_single_datacenter_has_no_link() -> None:
    task = task_of(document({"a": 2}, 2, variants=[{"name": "v", "schedule": "gpipe"}]))
    variant = task.resolve(Candidate(1, 1, (("a", 2),)))
    assert bottleneck_of(task.topology, variant, simulate_variant(task.topology, variant, 2), 1).link is None


@pytest.mark.parametrize("schedule", ["gpipe", "1f1b", "varuna", "atlas", "zb-h1"])
@pytest.mark.parametrize("seed", range(4))
def test_the_parts_of_the_critical_path_add_up_to_all_of_the_time(schedule: str, seed: int) -> None:
    task = random_task(seed, schedule)
    for candidate in greedy_candidates(search_space(task)):
        variant = task.resolve(candidate)
        simulation = simulate_variant(task.topology, variant, 3)
        path = bottleneck_of(task.topology, variant, simulation, 1).path
        assert sum(each.share for each in path) == pytest.approx(1.0, abs=1e-9)
        assert all(each.latency <= each.share for each in path)
        assert list(path) == sorted(path, key=lambda each: -each.share)
