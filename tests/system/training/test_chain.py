"""Reduce and broadcast take as long in virtual time as the simulator says, and send the data once each."""

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
TRANSPORTS: dict[str, dict[str, Any]] = {
    "at once": {},
    "many connections": {"connections": 4},
}
DOCUMENT: dict[str, Any] = {
    "name": "chains",
    "topology": {
        "datacenters": [{"name": "a", "hosts": 2}, {"name": "b", "hosts": 1}, {"name": "c", "hosts": 1}],
        "intra": {"latency": "1ms", "rate": "200Mbit"},
        "wan": {"node_pair_rate": "80Mbit", "latency": "10ms"},
        "links": [{"between": ["a", "c"], "node_pair_rate": "40Mbit", "latency": "30ms"}],
    },
    "compute": {"forward": "10ms", "backward": "20ms", "activation": "1B", "gradient": f"{GRADIENT_BYTES}B"},
    "training": {"stages": 1, "pipelines": 4, "microbatches": 1, "iterations": ITERATIONS, "warmup": 1},
    "variants": [
        {"name": name, "schedule": "dp", "transport": {"all_reduce": "chain", **transport}, "placement": PLACES}
        for name, transport in TRANSPORTS.items()
    ],
}


def test_a_chain_takes_as_long_and_sends_as_much_as_simulated(tmp_path: Path) -> None:
    kernel_or_skip()
    summary = run_here(yaml.safe_dump({**DOCUMENT, "clock": "virtual"}), tmp_path).summary.set_index("variant")
    (point,) = parse_experiment({"engine": "simulate", **DOCUMENT}, "file", tmp_path).points()
    # From the second replica both cross the WAN to the third and on to the last; only the reduce does to the first.
    payload_bytes = ITERATIONS * (2 + 2 + 1) * GRADIENT_BYTES
    for variant in point.variants:
        simulation = simulate_variant(point.topology, variant, point.iterations(variant))
        found = summary.loc[variant.name]
        assert found["iteration_time_s"] == pytest.approx(simulation.iteration_time_ns(1) / 1e9, rel=0.05)
        # Headers take 4.6 %, acknowledgements half of that.
        assert payload_bytes < found["wan_bytes"] < 1.08 * payload_bytes
