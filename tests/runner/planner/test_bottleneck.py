from typing import Any

import pytest

from runner.planner.bottleneck import Bottleneck, GpuUse, LinkUse, bottleneck_of
from runner.planner.candidate import Candidate
from runner.simulator.simulation import Simulation
from runner.simulator.variant_simulation import simulate_variant
from tests.support.runner.planner_instances import document, task_of

APART = Candidate(1, 1, (("a", 1), ("b", 1)))
MIB = 2**20


def found(
    link: dict[str, Any], transport: dict[str, Any], *, forward: str = "10ms", microbatches: int = 40
) -> tuple[Bottleneck, Simulation, float]:
    """Return the bottleneck of two stages in two datacenters, its simulation, and its measured time in seconds."""
    task = task_of(
        document(
            {"a": 1, "b": 1},
            2,
            links=[{"between": ["a", "b"], **link}],
            compute={"forward": forward, "activation": "1MiB", "gradient": "0B"},
            training={"stages": 2, "microbatches": microbatches},
            variants=[{"name": "v", "schedule": "gpipe", "transport": transport}],
        )
    )
    variant = task.resolve(APART)
    simulation = simulate_variant(task.topology, variant, 2)
    start_ns, end_ns = simulation.windows_ns[1][0], simulation.windows_ns[-1][1]
    return bottleneck_of(task.topology, variant, simulation, 1), simulation, (end_ns - start_ns) / 1e9


FAST = {"latency": "1ms", "node_pair_rate": "10Gbit", "rate": "100Gbit"}


def test_where_gpus_compute_all_the_time_the_busiest_one_is_the_bottleneck() -> None:
    bottleneck, simulation, time_s = found(FAST, {"connections": 16}, forward="10ms")
    assert bottleneck.cause == "gpu"
    assert bottleneck.gpu.busy > 0.9
    assert bottleneck.gpu.busy + sum(bottleneck.gpu.waits.values()) == pytest.approx(1.0)
    # 40 forwards of 10 ms and 40 backwards of 20 ms; the first stage recomputes too.
    assert bottleneck.gpu.busy * time_s == pytest.approx(40 * 0.03 + 40 * 0.01 * (bottleneck.gpu.stage == 0), rel=0.02)
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
            2 * 256 * 1024 * 8 / 0.04 * 1514 / 1448,
        ),
    ],
)
def test_where_a_link_is_full_its_direction_and_its_capacity_are_named(
    link: dict[str, str], transport: dict[str, Any], capacity: str, capacity_bps: float
) -> None:
    bottleneck, _, time_s = found({**FAST, **link}, transport, forward="1ms")
    use = bottleneck.link
    assert use is not None
    assert bottleneck.cause == "link"
    assert {use.source, use.destination} == {"a", "b"}
    assert use.capacity == capacity
    assert use.capacity_bps == pytest.approx(capacity_bps, rel=0.01)
    assert use.busy * capacity_bps * time_s / 8 == pytest.approx(40 * MIB * 1514 / 1448, rel=0.03)


def test_where_nothing_is_busy_the_longest_wait_of_the_busiest_gpu_is_the_bottleneck() -> None:
    far = {**FAST, "latency": "400ms"}
    bottleneck, _, _ = found(far, {"connections": 16, "window": "16MiB"}, microbatches=1)
    assert bottleneck.gpu.busy < 0.5
    assert list(bottleneck.gpu.waits.values()) == sorted(bottleneck.gpu.waits.values(), reverse=True)
    assert bottleneck.cause == f"waits:{next(iter(bottleneck.gpu.waits))}"
    assert bottleneck.cause in {"waits:link", "waits:fill_drain"}


def test_a_trunk_counts_the_bytes_of_all_its_node_pairs() -> None:
    links = [{"between": ["a", "b"], **FAST, "node_pair_rate": "200Mbit", "rate": "300Mbit"}]
    compute = {"forward": "1ms", "activation": "1MiB", "gradient": "0B"}
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
    assert bottleneck_of(task.topology, variant, simulate_variant(task.topology, variant, 1), 0).link is None


@pytest.mark.parametrize(
    ("gpu", "link", "cause"),
    [(0.9, 0.8, "gpu"), (0.8, 0.9, "link"), (0.4, 0.45, "waits:link"), (0.9, None, "gpu"), (0.3, 0.9, "link")],
)
def test_the_busiest_is_the_bottleneck_if_it_is_busy_half_of_the_time(
    gpu: float, link: float | None, cause: str
) -> None:
    use = None if link is None else LinkUse("a", "b", "trunk", 1e9, link)
    assert Bottleneck(GpuUse(0, "a", gpu, {"link": 0.5, "schedule": 0.1}), use).cause == cause
