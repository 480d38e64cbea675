"""No simulated iteration is shorter than the bound of its trial, which names what decides."""

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from runner.bound.lower_bound import LowerBound, lower_bound
from runner.simulator.variant_simulation import simulate_variant
from runner.tcp.effects import effects_of
from runner.validation.random.random_experiments import draw_experiment
from tests.runner.simulator.variants import sweep_point

MS = 1_000_000


COMPUTE: list[dict[str, Any]] = [
    {},
    {},
    {"slower": [{"pipeline": 0, "factor": 1.7}]},
    {"jitter": {"distribution": "gamma", "spread": "20%"}},
]


@settings(max_examples=60, deadline=None)
@given(
    st.integers(0, 1000),
    st.integers(0, 1000),
    st.sampled_from(["tcp", "ideal"]),
    st.sampled_from(COMPUTE),
    st.sampled_from([{}, {"overlap": False}, {"all_reduce_overlap": True, "bucket": "1MiB"}]),
)
def test_no_simulated_iteration_is_shorter_than_its_bound(
    seed: int, number: int, model: str, compute: dict[str, Any], transport: dict[str, Any]
) -> None:
    drawn = draw_experiment(seed, number)
    (variant_of_all,) = drawn["variants"]
    written = {**variant_of_all["transport"], **transport}
    if model == "ideal":
        written = {name: value for name, value in written.items() if name not in {"connections", "window"}}
    document = {
        **drawn,
        "compute": {**drawn["compute"], **compute},
        "variants": [{**variant_of_all, "transport": {**written, "model": model}}],
        "engine": "simulate",
        "clock": "real",
    }
    point = sweep_point(document)
    variant, iterations = point.variants[0], point.spec.training.iterations
    bound = lower_bound(point.topology, variant, iterations)
    simulation = simulate_variant(point.topology, variant, iterations, effects=effects_of(variant.transport))
    assert bound is not None
    assert 0 < bound.time_ns <= min(end_ns - start_ns for start_ns, end_ns in simulation.windows_ns)


@settings(max_examples=40, deadline=None)
@given(st.data())
def test_no_simulated_iteration_of_virtual_stages_is_shorter_than_its_bound(data: st.DataObject) -> None:
    stages, groups = data.draw(st.integers(1, 4)), data.draw(st.integers(1, 3))
    schedule, chunks = data.draw(st.sampled_from([("interleaved-1f1b", 2), ("interleaved-1f1b", 3), ("zb-v", 2)]))
    document = {
        "topology": {
            "datacenters": [{"name": "east", "hosts": 4}, {"name": "west", "hosts": 4}],
            "intra": {"latency": "50us", "rate": "10Gbit"},
            "wan": {
                "latency": data.draw(st.sampled_from(["1ms", "30ms"])),
                "rate": "1Gbit",
                "node_pair_rate": "500Mbit",
            },
        },
        "compute": {
            "forward": data.draw(st.sampled_from(["1ms", "7ms"])),
            "backward": "20ms",
            "recompute": data.draw(st.sampled_from(["0ms", "5ms"])),
            "activation": data.draw(st.sampled_from(["1B", "300KiB"])),
            "gradient": data.draw(st.sampled_from(["1B", "4MiB"])),
        },
        "training": {
            "stages": stages,
            "pipelines": data.draw(st.integers(1, 2)),
            "microbatches": stages * groups,
            "iterations": 2,
            "virtual_stages": chunks,
        },
        "variants": [
            {
                "name": "v",
                "schedule": schedule,
                "transport": {
                    "model": data.draw(st.sampled_from(["tcp", "ideal"])),
                    "all_reduce_overlap": data.draw(st.booleans()),
                },
            }
        ],
        "engine": "simulate",
    }
    point = sweep_point(document)
    variant = point.variants[0]
    bound = lower_bound(point.topology, variant, 2)
    simulation = simulate_variant(point.topology, variant, 2, effects=effects_of(variant.transport))
    assert bound is not None
    assert 0 < bound.time_ns <= min(end_ns - start_ns for start_ns, end_ns in simulation.windows_ns)


def test_a_gpu_does_the_work_of_all_its_virtual_stages() -> None:
    virtual: dict[str, Any] = {"compute": {"backward": "20ms"}, "schedule": "interleaved-1f1b"}
    virtual["training"] = {"stages": 2, "microbatches": 16, "virtual_stages": 2}
    assert ms(bound_of(**virtual)) == (5 + 10 + 16 * 30 + 10 + 10, "gpu of stage 1")


def bound_of(schedule: str = "gpipe", **changes: Any) -> LowerBound | None:
    """The bound of two stages of 10 + 20 ms, 4 microbatches of 1 MiB, over 10 ms and 1 Gbit/s a node pair."""
    variant = {"name": "v", "schedule": schedule, **changes.pop("variant", {})}
    document = {
        "topology": {
            "datacenters": [{"name": "east", "hosts": 2}, {"name": "west", "hosts": 2}],
            "intra": {"latency": "50us", "rate": "100Gbit"},
            "wan": {"latency": "10ms", "rate": "100Gbit", "node_pair_rate": "1Gbit", **changes.pop("wan", {})},
        },
        "compute": {"forward": "10ms", "activation": "1B", "gradient": "1B", **changes.pop("compute", {})},
        "training": {"stages": 2, "microbatches": 4, **changes.pop("training", {})},
        "variants": [{"transport": {"connections": "auto"}, **variant}],
        **changes,
    }
    point = sweep_point(document)
    return lower_bound(point.topology, point.variants[0])


def ms(bound: LowerBound | None) -> tuple[float, str]:
    assert bound is not None
    return round(bound.time_ns / MS, 3), bound.part


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({}, (10 + 10 + 4 * 30 + 10 + 20, "gpu of stage 1")),
        ({"wan": {"latency": "200ms"}}, (10 + 200 + 4 * 30 + 200 + 20, "fill and drain")),
        ({"training": {"memory_bound": 1}, "schedule": "1f1b"}, (4 * (60 + 20), "memory of stage 0")),
        ({"compute": {"activation": "12500000B"}}, (10 + 400 + 10 + 30 + 110 + 20, "node pair east-0 to west-0")),
        (
            {"compute": {"activation": "12500000B"}, "training": {"pipelines": 2}, "wan": {"rate": "1Gbit"}},
            (10 + 800 + 10 + 30 + 110 + 20, "trunk east to west"),
        ),
        (
            {"compute": {"gradient": "12.5GB"}, "training": {"pipelines": 2}},
            (170 + 1000 + 0.05, "all-reduce of stage 0"),
        ),
        (
            {"compute": {"activation": "4MiB"}, "variant": {"transport": {"connections": 1, "window": "128KiB"}}},
            (10 + 127 * 20 + 10 + 30 + 31 * 20 + 10 + 20, "windows of 1 connection east-0 to west-0"),
        ),
    ],
)  # fmt: skip
def test_the_part_that_decides_is_named(changes: dict[str, Any], expected: tuple[float, str]) -> None:
    assert ms(bound_of(**changes)) == expected


def test_a_ring_is_as_slow_as_its_slowest_hop() -> None:
    # Two replicas in the east and one in the west: each hop carries 2 x 2/3 of the gradient, two of them over the WAN.
    placement = [["east"], ["east"], ["west"]]
    training = {"stages": 1, "pipelines": 3}
    found = bound_of(compute={"gradient": "187.5MB"}, training=training, variant={"placement": placement})
    assert ms(found) == (4 * 30 + 2000 + 10, "all-reduce of stage 0")


def test_an_all_reduce_that_overlaps_begins_with_the_first_bucket_of_the_last_backward() -> None:
    def of(**transport: Any) -> LowerBound | None:
        document = {
            "topology": {"datacenters": [{"name": "east", "hosts": 2}], "intra": {"latency": "0ms", "rate": "1Gbit"}},
            "compute": {"forward": "10ms", "backward": "20ms", "gradient": "125000000B"},
            "training": {"stages": 1, "pipelines": 2, "microbatches": 4},
            "variants": [{"name": "v", "schedule": "dp", "transport": {"model": "ideal", **transport}}],
            "engine": "simulate",
        }
        point = sweep_point(document)
        return lower_bound(point.topology, point.variants[0])

    assert ms(of(all_reduce_overlap=False)) == (120 + 1000, "all-reduce of stage 0")
    assert ms(of(all_reduce_overlap=True, bucket="25000000B")) == (120 - 16 + 1000, "all-reduce of stage 0")


def test_of_gpus_that_differ_the_slowest_decides() -> None:
    slower = {"slower": [{"stage": 1, "factor": 2}]}
    assert ms(bound_of(compute=slower)) == (10 + 10 + 4 * 60 + 10 + 20, "gpu of stage 1")


def test_torchs_own_schedules_have_no_bound() -> None:
    point = sweep_point(
        {
            "topology": {"datacenters": [{"name": "east", "hosts": 2}]},
            "model": "gpt-tiny",
            "compute": {"kind": "torch", "checkpointing": False},
            "training": {"stages": 2, "microbatches": 4},
            "variants": [{"name": "v", "schedule": "torch-gpipe"}],
        }
    )
    assert lower_bound(point.topology, point.variants[0]) is None
