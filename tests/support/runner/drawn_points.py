"""Sweep points of experiments that are drawn, the same ones each time: schedules, then what happens beside them."""

from collections.abc import Mapping
from functools import cache
from pathlib import Path

from tests.support.simulator.drawn_companions import drawn_beside
from tests.support.simulator.simulated_bytes import drawn
from wanbed.ground.errors import InputError
from wanbed.runner.planner.experiment_file import parse_experiment
from wanbed.runner.resolve.experiment import SweepPoint


@cache
def drawn_points() -> Mapping[str, SweepPoint]:
    """Return them by name; what is drawn and cannot run is left out."""
    documents = {f"schedules {number}": drawn(number) for number in range(40)}
    documents |= {f"companions {number}": drawn_beside(number) for number in range(48)}
    found = {}
    for name, document in documents.items():
        try:
            (found[name],) = parse_experiment(document, name, Path()).points()
        except InputError:
            continue
    return found
