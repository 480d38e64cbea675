from pathlib import Path
from typing import Any

import numpy as np
import pytest

from studies.paper.volume import Volume, iteration_bytes, volume_table
from wanbed.runner.planner.experiment_file import parse_experiment
from wanbed.runner.simulator.simulation import KIND_CODES
from wanbed.runner.simulator.variant_simulation import simulate_variant

MB = 1_000_000
TOPOLOGY = {
    "datacenters": [{"name": "east", "hosts": 4}, {"name": "west", "hosts": 4}],
    "wan": {"latency": "10ms", "rate": "10Gbit", "node_pair_rate": "1Gbit"},
}


def experiment(**sections: Any) -> Any:
    document = {
        "topology": TOPOLOGY,
        "compute": {"forward": "10ms", "activation": "1MB", "gradient": "3MB"},
        "training": {"stages": 4, "pipelines": 2, "microbatches": 3, "iterations": 2, "warmup": 1},
        **sections,
    }
    return parse_experiment(document, "test", Path())


def test_volume_counts_activations_gradients_and_all_reduces() -> None:
    (point,) = experiment().points()
    crossings = 2 * 3 * 2 * 3  # pipelines, boundaries, both ways, microbatches
    assert iteration_bytes(point.variants[0]) == crossings * MB + 4 * 2 * 3 * MB


def test_a_transfer_that_is_shared_is_scattered_and_gathered_on_top() -> None:
    shared = {"name": "shared", "schedule": "atlas", "transport": {"connections": 2, "sharing": "temporal"}}
    shared["transport"]["pipelines_per_cell"] = 2  # type: ignore[index]
    plain = {"name": "plain", "schedule": "atlas", "transport": {"connections": 2}}
    (point,) = experiment(variants=[shared, plain]).points()
    with_sharing, without = map(iteration_bytes, point.variants)
    wan_crossings = 2 * 1 * 2 * 3
    assert with_sharing - without == wan_crossings * 2 * MB // 2


@pytest.mark.parametrize("schedule", ["gpipe", "1f1b", "varuna"])
def test_volume_equals_simulated_bytes(schedule: str) -> None:
    (point,) = experiment(
        training={"stages": 4, "microbatches": 3, "iterations": 1, "warmup": 0},
        variants=[{"name": "one", "schedule": schedule}],
    ).points()
    spans = simulate_variant(point.topology, point.variants[0], 1).spans
    sent = int(np.sum(spans.size_bytes[spans.kind == KIND_CODES["send"]]))
    assert iteration_bytes(point.variants[0]) == sent


def test_a_volume_counts_every_iteration_of_every_trial() -> None:
    swept = experiment(sweep={"topology.wan.latency": ["1ms", "10ms", "20ms"]})
    one = iteration_bytes(swept.points()[0].variants[0])
    assert Volume.of(swept) == Volume("experiment", 3, 6, 6 * one)


def test_the_table_ends_with_the_sum() -> None:
    table = volume_table([Volume("a", 1, 2, 3 * 10**9), Volume("b", 10, 20, 5 * 10**9)]).splitlines()
    assert [line.split(" | ")[1:] for line in table[2:]] == [
        ["1", "2", "3.00\u00a0GB |"],
        ["10", "20", "5.00\u00a0GB |"],
        ["11", "22", "8.00\u00a0GB |"],
    ]
