"""Simulate the experiment that a document describes."""

from collections.abc import Mapping
from typing import Any

from tests.support.runner.small_experiment import sweep_point
from wanbed.runner.simulator.simulation import Simulation
from wanbed.runner.simulator.variant_simulation import simulate_variant


def simulation_of(document: Mapping[str, Any], iterations: int = 1, **options: Any) -> Simulation:
    """Return the simulation of the first variant at the only sweep point. ``options`` are ``simulate_variant``'s."""
    point = sweep_point(document)
    return simulate_variant(point.topology, point.variants[0], iterations, **options)
