"""Sweep points created from documents, and figures that tests read from their simulations."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from wanbed.runner.planner.experiment_file import parse_experiment
from wanbed.runner.resolve.experiment import SweepPoint
from wanbed.runner.simulator.simulation import KIND_CODES, Simulation


def sweep_point(document: Mapping[str, Any]) -> SweepPoint:
    """Return the only sweep point of an experiment without a sweep."""
    (point,) = parse_experiment(document, "exp.yaml", Path()).points()
    return point


def all_reduces_ns(simulation: Simulation) -> list[int]:
    """Return the duration of each all-reduce from the time at which its replica was ready."""
    spans = simulation.spans
    sums = spans.kind == KIND_CODES["all_reduce"]
    return [int(each) for each in spans.end_ns[sums] - spans.start_ns[sums]]
