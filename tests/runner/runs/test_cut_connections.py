from pathlib import Path
from typing import Any

from wanbed.runner.planner.experiment_file import parse_experiment
from wanbed.runner.resolve.experiment import Experiment
from wanbed.runner.runs.cut_connections import cut_facts, cut_lines


def experiment(**changes: Any) -> Experiment:
    document = {
        "topology": {
            "datacenters": [{"name": "east", "hosts": 1}, {"name": "west", "hosts": 1}],
            "wan": {"latency": "40ms", "rate": "50Gbit"},
        },
        "compute": {"forward": "1ms", "activation": "1MiB"},
        "variants": [
            {"name": "cut", "schedule": "gpipe", "transport": {"connections": "auto", "window": "700KiB"}},
            {"name": "wide", "schedule": "gpipe", "transport": {"connections": "auto", "window": "64MiB"}},
            {"name": "given", "schedule": "gpipe", "transport": {"connections": 8, "window": "700KiB"}},
        ],
        **changes,
    }
    return parse_experiment(document, "exp.yaml", Path())


def test_a_cut_variant_is_reported_with_its_node_pair() -> None:
    (line,) = cut_lines(experiment().points())
    assert line.startswith("cut: connections: auto stops at 64 between east-0 and west-0: 734 would fill the node pair")
    assert "64 carry 9.59" in line


def test_of_a_sweep_the_worst_point_is_reported() -> None:
    (line,) = cut_lines(experiment(sweep={"topology.wan.latency": ["1ms", "20ms", "40ms"]}).points())
    assert "at topology.wan.latency=40ms (and 1 more such case): 734" in line


def test_a_trial_keeps_what_is_cut_and_nothing_else() -> None:
    (point,) = experiment().points()
    kept = [cut_facts(point.topology, variant) for variant in point.variants]
    assert kept == [{"connections_cut": [["east-0", "west-0", 734, 0.0959]]}, {}, {}]
