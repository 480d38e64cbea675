import numpy as np
import pytest

from results.records.span_columns import SpanColumns
from runner.simulator.simulation import KIND_CODES, NO_PEER, Simulation

ROWS = [
    (0, "forward", 0, 0, 0, 10),
    (0, "backward", 0, 0, 20, 40),
    (0, "optimizer", 0, -1, 50, 55),
    (0, "send", 0, 0, 10, 200),
    (0, "forward", 1, 0, 60, 70),
    (1, "forward", 0, 0, 12, 18),
    (1, "all_reduce", 0, -1, 40, 58),
    (1, "forward", 1, 0, 72, 80),
]


@pytest.fixture
def simulation() -> Simulation:
    rows = [
        (rank, KIND_CODES[kind], iteration, microbatch, start_ns, end_ns, 0, NO_PEER)
        for rank, kind, iteration, microbatch, start_ns, end_ns in ROWS
    ]
    return Simulation(SpanColumns.of_training(np.array(rows, np.int64)), (), {})


def test_an_iteration_lasts_from_its_first_to_its_last_computation_or_all_reduce(simulation: Simulation) -> None:
    assert simulation.windows_ns == [(0, 58), (60, 80)]
    assert simulation.iteration_time_ns(0) == 39
    assert simulation.iteration_time_ns(1) == 20


def test_utilization_counts_computation_only(simulation: Simulation) -> None:
    assert simulation.utilization(2, 1) == pytest.approx((10 + 8) / 40)
    assert simulation.utilization(2, 0) == pytest.approx((10 + 20 + 5 + 10 + 6 + 8) / 160)


def test_bubbles_are_what_lies_between_computations(simulation: Simulation) -> None:
    assert simulation.idle_intervals(0, 0, 80) == [(10, 20), (40, 50), (55, 60), (70, 80)]
    assert simulation.idle_intervals(1, 15, 75) == [(18, 72)]
    assert simulation.idle_intervals(0, 22, 38) == []
