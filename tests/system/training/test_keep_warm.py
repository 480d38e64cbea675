"""Connections that ranks keep warm lose nothing in pauses: a witness over real netem, in virtual time."""

from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.support.runner.called_wanbed import run_here
from tests.system.virtual_time.inside_virtual_time import kernel_or_skip
from wanbed.runner.planner.experiment_file import parse_experiment
from wanbed.runner.simulator.variant_simulation import simulate_variant

DOCUMENT: dict[str, Any] = {
    "name": "warm",
    "topology": {
        "datacenters": [{"name": "east", "hosts": 1}, {"name": "west", "hosts": 1}],
        "wan": {"latency": "40ms", "rate": "1Gbit"},
    },
    "compute": {"forward": "300ms", "backward": "600ms", "activation": "16MiB"},
    "training": {"stages": 2, "microbatches": 4, "iterations": 4, "warmup": 1},
    "variants": [
        {"name": f"{name} {connections}", "schedule": "1f1b", "transport": {"connections": connections, **transport}}
        for connections in ("auto", 16)
        for name, transport in (
            ("cold", {}),
            ("kept", {"keep_warm": True}),
            ("warm", {"slow_start_after_idle": False}),
        )
    ],
}


FRAME_BYTES, ACKNOWLEDGED_BYTES = 44 + 66, 44 + 66 + 66
"""A frame that keeps a connection warm on the wire, and with its acknowledgement, which a simulation does not count."""


def test_connections_that_are_kept_warm_never_start_slowly_again(tmp_path: Path) -> None:
    kernel_or_skip()
    summary = run_here(yaml.safe_dump({**DOCUMENT, "clock": "virtual"}), tmp_path).summary.set_index("variant")
    times_s, crossed_bytes = summary["iteration_time_s"], summary["wan_bytes"]
    (point,) = parse_experiment({"engine": "simulate", **DOCUMENT}, "file", tmp_path).points()
    simulated_bytes = {}
    for variant in point.variants:
        simulation = simulate_variant(point.topology, variant, point.iterations(variant))
        assert times_s[variant.name] == pytest.approx(simulation.iteration_time_ns(1) / 1e9, rel=0.01)
        simulated_bytes[variant.name] = sum(int(each.wire_bytes[-1]) for each in simulation.traffic)
    for connections in ("auto", 16):
        assert times_s[f"kept {connections}"] == pytest.approx(times_s[f"warm {connections}"], rel=0.01)
        assert times_s[f"cold {connections}"] > 1.2 * times_s[f"kept {connections}"]
    # Over many connections the acknowledgements of all else differ by more.
    frames = (simulated_bytes["kept auto"] - simulated_bytes["warm auto"]) / FRAME_BYTES
    excess_bytes = crossed_bytes["kept auto"] - crossed_bytes["warm auto"]
    assert excess_bytes == pytest.approx(frames * ACKNOWLEDGED_BYTES, rel=0.05)
