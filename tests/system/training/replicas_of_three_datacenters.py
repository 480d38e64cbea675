"""Four replicas in three datacenters that sum in virtual time, held against their simulation."""

from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.support.runner.called_wanbed import run_here
from tests.system.virtual_time.inside_virtual_time import kernel_or_skip
from wanbed.runner.planner.experiment_file import parse_experiment
from wanbed.runner.simulator.variant_simulation import simulate_variant

PLACES = [["a"], ["a"], ["b"], ["c"]]
ITERATIONS, GRADIENT_BYTES = 3, 8_000_000


def experiment(all_reduce: str, transports: dict[str, dict[str, Any]]) -> dict[str, Any]:
    return {
        "name": "replicas",
        "topology": {
            "datacenters": [{"name": "a", "hosts": 2}, {"name": "b", "hosts": 1}, {"name": "c", "hosts": 1}],
            "intra": {"latency": "1ms", "rate": "200Mbit"},
            "wan": {"node_pair_rate": "80Mbit", "latency": "10ms"},
            "links": [{"between": ["a", "c"], "node_pair_rate": "40Mbit", "latency": "30ms"}],
        },
        "compute": {"forward": "10ms", "backward": "20ms", "activation": "1B", "gradient": f"{GRADIENT_BYTES}B"},
        "training": {"stages": 1, "pipelines": 4, "microbatches": 1, "iterations": ITERATIONS, "warmup": 1},
        "variants": [
            {"name": name, "schedule": "dp", "transport": {"all_reduce": all_reduce, **transport}, "placement": PLACES}
            for name, transport in transports.items()
        ],
    }


def hold_against_simulation(document: dict[str, Any], payload_bytes: float, folder: Path) -> None:
    """Run in virtual time, and assert the simulated iteration times, and such a payload on the WAN."""
    kernel_or_skip()
    summary = run_here(yaml.safe_dump({**document, "clock": "virtual"}), folder).summary.set_index("variant")
    (point,) = parse_experiment({"engine": "simulate", **document}, "file", folder).points()
    for variant in point.variants:
        simulation = simulate_variant(point.topology, variant, point.iterations(variant))
        found = summary.loc[variant.name]
        assert found["iteration_time_s"] == pytest.approx(simulation.iteration_time_ns(1) / 1e9, rel=0.05)
        # Headers take 4.6 %, acknowledgements half of that.
        assert payload_bytes < found["wan_bytes"] < 1.08 * payload_bytes
