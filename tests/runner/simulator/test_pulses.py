"""Pulses tell how far a simulation is, and can end it."""

import numpy as np
import pytest

from tests.support.runner.planner_instances import document, task_of
from wanbed.runner.planner.search_space import Candidate
from wanbed.runner.simulator.simulation import Simulation
from wanbed.runner.simulator.training import Pulse
from wanbed.runner.simulator.variant_simulation import simulate_variant


class EnoughError(Exception):
    pass


def simulated(pulse: Pulse | None = None) -> Simulation:
    training = {"stages": 3, "microbatches": 60}
    task = task_of(document({"a": 1, "b": 2}, 3, training=training, variants=[{"name": "v", "schedule": "gpipe"}]))
    return simulate_variant(task.topology, task.resolve(Candidate(1, 1, (("a", 1), ("b", 2)))), 3, pulse=pulse)


def test_the_share_that_is_done_grows_to_nearly_all_and_changes_nothing() -> None:
    shares: list[float] = []
    watched, alone = simulated(shares.append), simulated()
    assert len(shares) > 2
    assert shares == sorted(shares)
    assert 0.0 < shares[0] < 0.5 < shares[-1] <= 1.0
    assert np.array_equal(watched.spans.end_ns, alone.spans.end_ns)


def test_a_pulse_that_raises_ends_the_simulation() -> None:
    def enough(_: float) -> None:
        raise EnoughError

    with pytest.raises(EnoughError):
        simulated(enough)
