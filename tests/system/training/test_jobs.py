"""Two jobs train at once over one emulated WAN, in virtual time, as the simulator says."""

from pathlib import Path

import pytest
import yaml

from tests.support.runner.called_wanbed import run_here
from tests.support.runner.two_jobs import two_jobs
from tests.system.virtual_time.inside_virtual_time import kernel_or_skip
from wanbed.runner.planner.experiment_file import parse_experiment
from wanbed.runner.simulator.variant_simulation import simulate_variant


def test_jobs_at_once_slow_each_other_down_as_simulated(tmp_path: Path) -> None:
    kernel_or_skip()
    many = {"transport": {"connections": "auto"}}
    variants = [{"name": "ours", "schedule": "1f1b"}, {"name": "theirs", "schedule": "1f1b", **many}]
    document = two_jobs(
        rate="400Mbit",
        variants=variants,
        compute={"forward": "10ms", "backward": "30ms", "activation": "512KiB", "gradient": "2MiB"},
        training={"pipelines": 2, "stages": 2, "microbatches": 4, "iterations": 3, "warmup": 1},
    )
    times_s = run_here(yaml.safe_dump({**document, "clock": "virtual"}), tmp_path).summary.set_index("variant")[
        "iteration_time_s"
    ]
    (point,) = parse_experiment({"engine": "simulate", **document}, "file", tmp_path).points()
    for variant in point.variants:
        simulation = simulate_variant(point.topology, variant, point.iterations(variant))
        assert times_s[variant.name] == pytest.approx(simulation.iteration_time_ns(1) / 1e9, rel=0.05)
    assert times_s["ours beside theirs"] > times_s["ours"]
