"""Training whose packets are followed: it ends, the same every time, and about when the mean says."""

from pathlib import Path
from typing import Any

import pytest

from wanbed.runner.planner.experiment_file import parse_experiment
from wanbed.runner.simulator.simulation import Simulation
from wanbed.runner.simulator.variant_simulation import simulate_variant


def simulated(
    model: str, transport: dict[str, Any], schedule: str = "1f1b", training: dict[str, Any] | None = None
) -> Simulation:
    own: dict[str, Any] = {
        "name": "own",
        "schedule": schedule,
        "transport": {"model": model, "connections": 3, **transport},
    }
    if transport.get("all_reduce"):
        own["placement"] = [["east"], ["west"]] * 2
    document = {
        "topology": {
            "datacenters": [{"name": name, "hosts": 2, "gpus_per_host": 2} for name in ("east", "west")],
            "wan": {"latency": "10ms", "node_pair_rate": "200Mbit", "rate": "300Mbit"},
            "intra": {"latency": "50us", "rate": "1Gbit"},
        },
        "compute": {"forward": "10ms", "activation": "512KiB", "gradient": "1MiB"},
        "training": {"stages": 2, "pipelines": 2, "microbatches": 4, "iterations": 3, **(training or {})},
        "variants": [own],
        "engine": "simulate",
    }
    (point,) = parse_experiment(document, "exp.yaml", Path()).points()
    (variant,) = point.variants
    return simulate_variant(point.topology, variant, point.iterations(variant))


@pytest.mark.parametrize(
    ("transport", "schedule", "training"),
    [
        ({}, "1f1b", {}),
        ({"overlap": False}, "1f1b", {}),
        ({"receive": "blocks"}, "1f1b", {}),
        ({"receive": "blocks", "overlap": False}, "gpipe", {}),
        ({"receive": "blocks"}, "interleaved-1f1b", {"virtual_stages": 2}),
        ({"sharing": "temporal"}, "atlas", {}),
        ({"sharing": "temporal", "overlap": False}, "atlas", {}),
        ({"all_reduce": "hierarchical"}, "gpipe", {"stages": 1, "pipelines": 4}),
        ({"all_reduce": "butterfly"}, "gpipe", {"stages": 1, "pipelines": 4}),
        ({"all_reduce_overlap": True, "bucket": "256KiB"}, "1f1b", {}),
        ({"slow_start_after_idle": False, "window": "64KiB"}, "varuna", {}),
        ({"congestion": "reno"}, "zb-2p", {}),
        ({}, "interleaved-1f1b", {"virtual_stages": 2}),
        ({"connections": "auto"}, "zb-v", {"virtual_stages": 2}),
    ],
)
def test_each_way_to_train_is_followed(transport: dict[str, Any], schedule: str, training: dict[str, Any]) -> None:
    followed = simulated("packets", transport, schedule, training)
    spans = followed.spans
    assert (spans.start_ns <= spans.end_ns).all()
    mean = simulated("mean", transport, schedule, training)
    assert len(spans.rank) == len(mean.spans.rank)
    assert followed.iteration_time_ns(1) == pytest.approx(mean.iteration_time_ns(1), rel=0.25)
    assert followed.traffic != ()
    # The same file gives the same bytes.
    assert (simulated("packets", transport, schedule, training).spans.end_ns == spans.end_ns).all()
