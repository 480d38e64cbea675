from pathlib import Path
from typing import Any

import pytest

from wanbed.runner.emulation.virtual.virtual_patience import BESIDE_TRIALS_S, MARGIN, quiet_patience_s, serial_trial_s
from wanbed.runner.planner.experiment_file import parse_experiment
from wanbed.runner.resolve.experiment import Experiment
from wanbed.runner.simulator.variant_simulation import simulate_variant


def experiment(**changes: Any) -> Experiment:
    document = {
        "topology": {
            "datacenters": [{"name": "east", "hosts": 2}, {"name": "west", "hosts": 2}],
            "wan": {"latency": "40ms", "rate": "1Gbit"},
            "intra": {"latency": "50us", "rate": "1Gbit"},
        },
        "model": "gpt-tiny",
        "compute": {"forward": "10ms", "backward": "20ms", "recompute": "10ms", "activation": "8MiB"},
        "training": {"microbatches": 4, "iterations": 3},
        "clock": "virtual",
        **changes,
    }
    return parse_experiment(document, "exp.yaml", Path())


@pytest.mark.parametrize("schedule", ["gpipe", "1f1b", "varuna"])
@pytest.mark.parametrize("pipelines", [1, 2])
def test_no_simulated_trial_exceeds_the_serial_bound(schedule: str, pipelines: int) -> None:
    training = {"microbatches": 4, "iterations": 3, "pipelines": pipelines}
    (point,) = experiment(variants=[{"name": "v", "schedule": schedule}], training=training).points()
    (variant,) = point.variants
    simulated_s = max(simulate_variant(point.topology, variant, 3).spans.end_ns) / 1e9
    assert simulated_s < serial_trial_s(point, variant)


def test_the_longest_trial_of_a_sweep_decides() -> None:
    short, long = experiment(), experiment(sweep={"topology.wan.latency": ["40ms", "400ms"]})
    assert quiet_patience_s(long) > quiet_patience_s(short) > BESIDE_TRIALS_S
    longest_s = max(serial_trial_s(point, point.variants[0]) for point in long.points())
    assert quiet_patience_s(long) == BESIDE_TRIALS_S + MARGIN * longest_s


def test_loss_makes_a_path_slower() -> None:
    (clean,) = experiment().points()
    wan = {"latency": "40ms", "rate": "1Gbit", "loss": "1%"}
    topology = {"datacenters": [{"name": "east", "hosts": 2}, {"name": "west", "hosts": 2}], "wan": wan}
    (lossy,) = experiment(topology=topology).points()
    assert serial_trial_s(lossy, lossy.variants[0]) > 2 * serial_trial_s(clean, clean.variants[0])
