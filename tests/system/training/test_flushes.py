"""Several flushes of a pipeline in an iteration take as long in virtual time as the simulator says."""

from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.support.runner.called_wanbed import run_here
from tests.system.virtual_time.inside_virtual_time import kernel_or_skip
from wanbed.runner.planner.experiment_file import parse_experiment
from wanbed.runner.simulator.variant_simulation import simulate_variant

EVERY: dict[str, Any] = {"summed": "every flush"}
MANY: dict[str, Any] = {"connections": 4}
SHARED: dict[str, Any] = {**MANY, "sharing": "temporal", "pipelines_per_cell": 2}
DOCUMENT: dict[str, Any] = {
    "name": "flushes",
    "topology": {
        "datacenters": [{"name": "east", "hosts": 4}, {"name": "west", "hosts": 4}],
        "intra": {"latency": "1ms", "rate": "500Mbit"},
        "wan": {"latency": "20ms", "node_pair_rate": "200Mbit"},
    },
    "compute": {
        "forward": "20ms",
        "backward": "40ms",
        "optimizer": "10ms",
        "activation": "200KB",
        "gradient": "2MB",
    },
    "training": {"stages": 4, "pipelines": 2, "microbatches": 3, "accumulate": 3, "iterations": 3, "warmup": 1},
    "variants": [
        {"name": "gpipe", "schedule": "gpipe", "transport": MANY},
        {"name": "1f1b, each summed", "schedule": "1f1b", "training": EVERY, "transport": MANY},
        {
            "name": "gpipe, each summed over the WAN",
            "schedule": "gpipe",
            "training": EVERY,
            "transport": MANY,
            "placement": [["east"] * 4, ["west"] * 4],
        },
        {"name": "atlas", "schedule": "atlas", "transport": SHARED},
        {"name": "receives that block", "schedule": "1f1b", "transport": {**MANY, "receive": "blocks"}},
        {"name": "one flush", "schedule": "gpipe", "training": {"accumulate": 1, "microbatches": 9}, "transport": MANY},
    ],
}


def test_flushes_take_as_long_as_simulated(tmp_path: Path) -> None:
    kernel_or_skip()
    summary = run_here(yaml.safe_dump({**DOCUMENT, "clock": "virtual"}), tmp_path).summary
    times_s = summary.set_index("variant")["iteration_time_s"]
    (point,) = parse_experiment({"engine": "simulate", **DOCUMENT}, "file", tmp_path).points()
    for variant in point.variants:
        simulation = simulate_variant(point.topology, variant, point.iterations(variant))
        assert times_s[variant.name] == pytest.approx(simulation.iteration_time_ns(1) / 1e9, rel=0.05), variant.name
    # Each of the two further flushes fills and drains the pipeline.
    assert times_s["gpipe"] > times_s["one flush"] + 2 * 3 * 0.060
