"""No simulated iteration is shorter than its bound, nor all together than so many periods; what decides is named."""

from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from tests.support.runner.small_experiment import sweep_point
from wanbed.runner.bound.lower_bound import LowerBound, LowerBounds, lower_bounds
from wanbed.runner.resolve.equal_parts import equal_parts
from wanbed.runner.resolve.tcp_effects import effects_of
from wanbed.runner.simulator.simulation import Simulation
from wanbed.runner.simulator.variant_simulation import simulate_variant
from wanbed.runner.validation.random_experiments import draw_experiment

MS = 1_000_000


COMPUTE: list[dict[str, Any]] = [
    {},
    {},
    {"slower": [{"pipeline": 0, "factor": 1.7}]},
    {"jitter": {"distribution": "gamma", "spread": "20%"}},
]


def holds(bounds: LowerBounds | None, simulation: Simulation) -> None:
    assert bounds is not None
    assert 0 < bounds.makespan.time_ns <= min(end_ns - start_ns for start_ns, end_ns in simulation.windows_ns)
    # A period over few iterations may be shorter: the iteration before them may have ended late, by its slow start.
    assert 0 < bounds.period.time_ns <= simulation.windows_ns[-1][1] / len(simulation.windows_ns)


@settings(max_examples=60, deadline=None)
@example(
    seed=891,
    number=9,
    model="ideal",
    compute={},
    transport={"all_reduce_overlap": True, "bucket": "1MiB"},
    training={"optimizer_waits": "own"},
)
@given(
    seed=st.integers(0, 1000),
    number=st.integers(0, 1000),
    model=st.sampled_from(["auto", "ideal"]),
    compute=st.sampled_from(COMPUTE),
    transport=st.sampled_from([{}, {"overlap": False}, {"all_reduce_overlap": True, "bucket": "1MiB"}]),
    training=st.fixed_dictionaries(
        {
            "optimizer_waits": st.sampled_from(["own", "all stages"]),
            "accumulate": st.sampled_from([1, 1, 3]),
            "summed": st.sampled_from(["once", "every flush"]),
        }
    ),
)
def test_no_simulated_iteration_is_shorter_than_its_bound(
    *, seed: int, number: int, model: str, compute: dict[str, Any], transport: dict[str, Any], training: dict[str, Any]
) -> None:
    drawn = draw_experiment(seed, number)
    (variant_of_all,) = drawn["variants"]
    written = {**variant_of_all["transport"], **transport}
    if "virtual_stages" in drawn["training"]:
        # The times of a stage's parts are not known if they differ between GPUs or vary.
        compute = {}
    if written.get("all_reduce_overlap"):
        training = {**training, "summed": "once"}
    if model == "ideal":
        written = {name: value for name, value in written.items() if name not in {"connections", "window"}}
    document = {
        **drawn,
        "compute": {**drawn["compute"], **compute},
        "training": {**drawn["training"], **training},
        "variants": [{**variant_of_all, "transport": {**written, "model": model}}],
        "engine": "simulate",
        "clock": "real",
    }
    point = sweep_point(document)
    variant, iterations = point.variants[0], point.spec.training.iterations
    bounds = lower_bounds(point.topology, variant, iterations)
    holds(bounds, simulate_variant(point.topology, variant, iterations, effects=effects_of(variant.transport)))


@pytest.mark.parametrize("rate", ["unlimited", "2Gbit", "100Mbit"])
@pytest.mark.parametrize("gradient", ["64MiB", "2GiB"])
@pytest.mark.parametrize("sharing", ["none", "temporal"])
def test_equal_parts_are_bounded_as_all_pipelines_are(
    monkeypatch: pytest.MonkeyPatch, rate: str, gradient: str, sharing: str
) -> None:
    cells = {"sharing": sharing, **({"pipelines_per_cell": 2} if sharing == "temporal" else {})}
    point = sweep_point(
        {
            "topology": {
                "datacenters": [{"name": "east", "hosts": 12}, {"name": "west", "hosts": 12}],
                "intra": {"latency": "50us", "rate": "10Gbit"},
                "wan": {"latency": "30ms", "rate": rate, "node_pair_rate": "500Mbit"},
            },
            "compute": {"forward": "10ms", "backward": "20ms", "activation": "4MiB", "gradient": gradient},
            "training": {"stages": 4, "pipelines": 6, "microbatches": 8, "iterations": 2, "warmup": 1},
            "variants": [{"name": "v", "schedule": "atlas", "transport": {"connections": 4, **cells}}],
            "engine": "simulate",
        }
    )
    variant = point.variants[0]
    assert equal_parts(variant) > 1
    of_first = lower_bounds(point.topology, variant, 2)
    monkeypatch.setattr("wanbed.runner.bound.lower_bound.equal_parts", lambda _: 1)
    assert of_first == lower_bounds(point.topology, variant, 2)


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
            "iterations": 4,
            "virtual_stages": chunks,
        },
        "variants": [
            {
                "name": "v",
                "schedule": schedule,
                "transport": {
                    "model": data.draw(st.sampled_from(["auto", "ideal"])),
                    "all_reduce_overlap": data.draw(st.booleans()),
                },
            }
        ],
        "engine": "simulate",
    }
    point = sweep_point(document)
    variant = point.variants[0]
    holds(
        lower_bounds(point.topology, variant, 4),
        simulate_variant(point.topology, variant, 4, effects=effects_of(variant.transport)),
    )


def bounds_of(schedule: str = "gpipe", **changes: Any) -> LowerBounds | None:
    """The bounds of two stages of 10 + 20 ms, 4 microbatches of 1 MiB, over 10 ms and 1 Gbit/s a node pair."""
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
    return lower_bounds(point.topology, point.variants[0])


def ms(bound: LowerBound) -> tuple[float, str]:
    return round(bound.time_ns / MS, 3), bound.part


def both(bounds: LowerBounds | None) -> tuple[tuple[float, str], tuple[float, str]]:
    """The makespan's bound and the period's, in milliseconds."""
    assert bounds is not None
    return ms(bounds.makespan), ms(bounds.period)


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({}, (10 + 10 + 4 * 30 + 10 + 20, "gpu of stage 1")),
        # A GPU does the work of all its virtual stages.
        (
            {
                "schedule": "interleaved-1f1b",
                "compute": {"backward": "20ms"},
                "training": {"microbatches": 16, "virtual_stages": 2},
            },
            (5 + 10 + 16 * 30 + 10 + 10, "gpu of stage 1"),
        ),
        # Of GPUs that differ the slowest decides.
        ({"compute": {"slower": [{"stage": 1, "factor": 2}]}}, (10 + 10 + 4 * 60 + 10 + 20, "gpu of stage 1")),
        ({"wan": {"latency": "200ms"}}, (10 + 200 + 4 * 30 + 200 + 20, "fill and drain")),
        ({"training": {"memory_bound": 1}, "schedule": "1f1b"}, (4 * (60 + 20), "memory of stage 0")),
        ({"compute": {"activation": "12500000B"}}, (10 + 400 + 10 + 30 + 110 + 20, "node pair east-0 to west-0")),
        (
            {"compute": {"activation": "4MiB"}, "variant": {"transport": {"connections": 1, "window": "128KiB"}}},
            (10 + 127 * 20 + 10 + 30 + 31 * 20 + 10 + 20, "windows of 1 connection east-0 to west-0"),
        ),
    ],
)  # fmt: skip
def test_where_every_stage_waits_for_the_first_one_the_period_is_the_makespan(
    changes: dict[str, Any], expected: tuple[float, str]
) -> None:
    assert both(bounds_of(**changes)) == (expected, expected)


@pytest.mark.parametrize(("split", "alike"), [("never", "varuna"), ("always", "zb-2p"), ("auto", "zb-2p")])
def test_the_bound_of_a_plan_is_that_of_the_backwards_that_it_has(split: str, alike: str) -> None:
    own = bounds_of("atlas", variant={"options": {"split": split}}, training={"memory_bound": 4})
    assert both(own) == both(bounds_of(alike, training={"memory_bound": 4}))


def test_a_stage_with_weight_gradients_to_compute_does_not_wait_for_the_fill_of_the_pipeline() -> None:
    # Two stages whose three parts take 10 ms each, 20 ms apart. The second one begins 30 ms after the first.
    split = bounds_of("zb-h1", compute={"backward": "20ms"}, training={"microbatches": 8}, wan={"latency": "20ms"})
    assert both(split) == ((30 + 8 * 30, "gpu of stage 1"), (8 * 30, "gpu of stage 0"))


@pytest.mark.parametrize(("gradient", "period_ms"), [("1B", 800), ("2B", 800 + 10 + 30 + 110 + 20 + 10)])
def test_a_trunk_rests_between_iterations_if_its_pipelines_wait_for_each_other(gradient: str, period_ms: int) -> None:
    # A byte of gradients cannot be cut in two, so that nothing is summed.
    compute, training = {"activation": "12500000B", "gradient": gradient}, {"pipelines": 2}
    makespan, period = both(bounds_of(compute=compute, training=training, wan={"rate": "1Gbit"}))
    assert makespan == (pytest.approx(10 + 800 + 10 + 30 + 110 + 20, abs=0.2), "trunk east to west")
    assert period == (pytest.approx(period_ms, abs=0.2), "trunk east to west")


def test_an_all_reduce_is_part_of_every_iteration() -> None:
    makespan, period = both(bounds_of(compute={"gradient": "12.5GB"}, training={"pipelines": 2}))
    assert makespan == (170 + 1000 + 0.05, "all-reduce of stage 0")
    assert period == (170 + 1000, "all-reduce of stage 0")


def test_a_ring_is_as_slow_as_its_slowest_hop() -> None:
    # Two replicas in the east and one in the west: each hop carries 2 x 2/3 of the gradient, two of them over the WAN.
    placement = [["east"], ["east"], ["west"]]
    training = {"stages": 1, "pipelines": 3}
    found = bounds_of(compute={"gradient": "187.5MB"}, training=training, variant={"placement": placement})
    makespan, (period_ms, part) = both(found)
    assert makespan == (4 * 30 + 2000 + 10, "all-reduce of stage 0")
    # What is sent last may still be in the send buffers, when computation goes on.
    assert (part, 4 * 30 + 1000 < period_ms < 4 * 30 + 2000) == ("all-reduce of stage 0", True)


def test_an_all_reduce_that_overlaps_begins_with_the_first_bucket_of_the_last_backward() -> None:
    def of(**transport: Any) -> LowerBounds | None:
        document = {
            "topology": {"datacenters": [{"name": "east", "hosts": 2}], "intra": {"latency": "0ms", "rate": "1Gbit"}},
            "compute": {"forward": "10ms", "backward": "20ms", "gradient": "125000000B"},
            "training": {"stages": 1, "pipelines": 2, "microbatches": 4},
            "variants": [{"name": "v", "schedule": "dp", "transport": {"model": "ideal", **transport}}],
            "engine": "simulate",
        }
        point = sweep_point(document)
        return lower_bounds(point.topology, point.variants[0])

    expected = 120 + 1000, "all-reduce of stage 0"
    assert both(of(all_reduce_overlap=False)) == (expected, expected)
    expected = 120 - 16 + 1000, "all-reduce of stage 0"
    assert both(of(all_reduce_overlap=True, bucket="25000000B")) == (expected, expected)


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
    assert lower_bounds(point.topology, point.variants[0]) is None
