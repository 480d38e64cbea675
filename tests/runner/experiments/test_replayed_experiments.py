"""The Chakra trace of every shipped schedule, replayed on its own network, has the schedule's period.

What a replay does not have: shared transfers of DP-cells and hierarchical all-reduces, which a trace has as one message
and one all-reduce; and virtual stages and synchronisations beside iterations, which are not exported.
"""

from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.support.runner.chakra_traces import nodes_of, replay_document, write_trace
from tests.support.runner.small_experiment import sweep_point
from tests.support.simulator.simulation_of import simulation_of
from wanbed.runner.experiments.shipped_experiments import shipped_experiments
from wanbed.runner.resolve.tcp_effects import TcpEffects
from wanbed.runner.simulator.variant_simulation import simulate_variant

ITERATIONS, EXPORTED = 4, 2
PATHS = {each.name: each.path for each in shipped_experiments()}


@pytest.mark.parametrize(
    ("experiment", "name"),
    [
        ("demo", "one connection"),
        ("demo", "many connections"),
        ("dp-latency-sweep", "many connections"),
        ("latency-sweep", "gpipe"),
        ("latency-sweep", "megatron"),
        ("latency-sweep", "varuna"),
        ("torch-baselines", "1f1b"),
        ("torch-baselines", "zb-h1"),
        ("virtual-stages", "zb-h1"),
    ],
)
def test_a_replay_has_the_period_of_the_schedule(tmp_path: Path, experiment: str, name: str) -> None:
    document: dict[str, Any] = yaml.safe_load(PATHS[experiment].read_text(encoding="utf-8"))
    written = next(each for each in document["variants"] if each["name"] == name)
    document = {key: value for key, value in document.items() if key != "sweep"} | {"variants": [written]}
    point = sweep_point(document)
    variant = point.variants[0]
    # Of a trace no packets are followed.
    trained = simulate_variant(point.topology, variant, ITERATIONS, effects=TcpEffects(packets=False))
    folder = write_trace(tmp_path, nodes_of(variant, trained, EXPORTED))
    replayed = simulation_of(replay_document(document, variant, folder, ITERATIONS), ITERATIONS)
    assert replayed.iteration_time_ns(1) == pytest.approx(trained.iteration_time_ns(1), rel=1e-6)
