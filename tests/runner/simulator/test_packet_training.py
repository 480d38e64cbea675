"""Training whose packets are followed: it ends, the same every time, and about when the mean says."""

from pathlib import Path
from typing import Any

import pytest

from wanbed.runner.planner.experiment_file import parse_experiment
from wanbed.runner.simulator.simulation import KIND_CODES, Simulation
from wanbed.runner.simulator.variant_simulation import simulate_variant


def simulated(
    model: str,
    transport: dict[str, Any],
    schedule: str = "1f1b",
    training: dict[str, Any] | None = None,
    inside: dict[str, str] | None = None,
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
            "intra": {"latency": "50us", "rate": "1Gbit", **(inside or {})},
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
        ({"sharing": "temporal"}, "1f1b", {}),
        ({"sharing": "temporal", "pipelines_per_cell": 2}, "gpipe", {"pipelines": 4, "stages": 2}),
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


@pytest.mark.parametrize("schedule", ["atlas", "gpipe"])
def test_cell_mates_hand_chunks_on_through_windows_of_their_own(schedule: str) -> None:
    """The way to a mate and back has a longer round trip here than the WAN, and the same window."""
    transport, training = {"sharing": "temporal", "connections": 1, "window": "64KiB"}, {"microbatches": 1}

    def first_receive_ms(latency_ms: float) -> float:
        inside = {"latency": f"{latency_ms}ms", "rate": "unlimited"}
        spans = simulated("packets", transport, schedule, training, inside).spans
        received = spans.kind == KIND_CODES["receive"]
        return float(spans.end_ns[received].min()) / 1e6

    # Two ways of 40 ms, and at least two round trips of 80 ms until windows have let out half of a transfer.
    assert first_receive_ms(40) - first_receive_ms(0.05) > 2 * 40 + 2 * 80
