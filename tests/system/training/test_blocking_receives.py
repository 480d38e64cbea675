"""Receives that block take as long in virtual time as the simulator says."""

from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.support.runner.called_wanbed import run_here
from tests.system.virtual_time.inside_virtual_time import kernel_or_skip
from wanbed.runner.planner.experiment_file import parse_experiment
from wanbed.runner.simulator.variant_simulation import simulate_variant

BLOCKS: dict[str, Any] = {"receive": "blocks"}
DOCUMENT: dict[str, Any] = {
    "name": "receives",
    "topology": {
        "datacenters": [{"name": "east", "hosts": 2}, {"name": "west", "hosts": 2}],
        "wan": {"latency": "20ms", "node_pair_rate": "200Mbit"},
    },
    "compute": {"forward": "20ms", "backward": "40ms", "activation": "1MB"},
    "training": {"stages": 4, "microbatches": 4, "iterations": 4, "warmup": 2},
    "variants": [
        {"name": "buffers", "schedule": "1f1b"},
        {"name": "1f1b", "schedule": "1f1b", "transport": BLOCKS},
        {"name": "rendezvous", "schedule": "gpipe", "transport": {**BLOCKS, "overlap": False}},
        {"name": "zb-h1", "schedule": "zb-h1", "transport": BLOCKS},
        {
            "name": "of virtual stages",
            "schedule": "interleaved-1f1b",
            "training": {"virtual_stages": 2},
            "transport": BLOCKS,
        },
    ],
}


def test_receives_that_block_take_as_long_as_simulated(tmp_path: Path) -> None:
    kernel_or_skip()
    summary = run_here(yaml.safe_dump({**DOCUMENT, "clock": "virtual"}), tmp_path).summary
    times_s = summary.set_index("variant")["iteration_time_s"]
    (point,) = parse_experiment({"engine": "simulate", **DOCUMENT}, "file", tmp_path).points()
    for variant in point.variants:
        simulation = simulate_variant(point.topology, variant, point.iterations(variant))
        assert times_s[variant.name] == pytest.approx(simulation.iteration_time_ns(2) / 1e9, rel=0.05)
    assert times_s["1f1b"] > 1.1 * times_s["buffers"]
