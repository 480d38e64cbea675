"""The smallest experiment that tests change, and experiments and sweep points of any document."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from wanbed.runner.planner.experiment_file import parse_experiment
from wanbed.runner.resolve.experiment import Experiment, SweepPoint

SMALL: dict[str, Any] = {
    "topology": {
        "datacenters": [{"name": "east", "hosts": 2}, {"name": "west", "hosts": 2}],
        "wan": {"latency": "40ms", "rate": "1Gbit"},
    },
    "compute": {"forward": "10ms", "activation": "1MiB"},
}


def small(**changes: Any) -> dict[str, Any]:
    return {**SMALL, **changes}


def parsed(document: dict[str, Any]) -> Experiment:
    return parse_experiment(document, "exp.yaml", Path())


def sweep_point(document: Mapping[str, Any]) -> SweepPoint:
    """Return the only sweep point of an experiment without a sweep."""
    (point,) = parse_experiment(document, "exp.yaml", Path()).points()
    return point
