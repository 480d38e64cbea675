import numpy as np
import pytest

from results.records.span_columns import SpanColumns
from runner.planner.candidate import Candidate
from runner.planner.pricing import PricedIterations, price_of
from runner.simulator.simulation import KIND_CODES, Simulation, WanTraffic
from tests.support.runner.planner_instances import document, task_of


def simulation(spans: list[tuple[int, str, int, int, int]], traffic: tuple[WanTraffic, ...] = ()) -> Simulation:
    """Spans of (rank, kind, iteration, start, end)."""
    rank, kind, iteration, start, end = (list(column) for column in zip(*spans, strict=True))
    column = np.array
    empty = np.zeros(len(spans), np.int64)
    codes = [KIND_CODES[name] for name in kind]
    return Simulation(
        SpanColumns(
            column(rank),
            column(codes),
            column(iteration),
            empty,
            column(start),
            column(end),
            empty,
            empty - 1,
            empty - 1,
        ),
        traffic,
        {},
    )


def test_the_price_is_that_of_the_iterations_after_warm_up() -> None:
    task = task_of(document({"a": 2, "b": 2}, 2, variants=[{"name": "v", "schedule": "gpipe"}]))
    variant = task.resolve(Candidate(2, 1, (("a", 1), ("b", 1))))
    times = np.array([0, 1_000_000_000, 3_000_000_000])
    price = price_of(
        simulation(
            [
                (0, "forward", 0, 0, 1_000_000_000),
                (0, "forward", 1, 1_000_000_000, 2_000_000_000),
                (3, "backward", 1, 2_000_000_000, 3_000_000_000),
            ],
            (WanTraffic("a-0", "b-0", times, np.array([0, 500, 800])), WanTraffic("b-0", "a-0", times[:0], times[:0])),
        ),
        variant,
        task.counted_per_sequence,
        1,
    )
    assert price.iteration_time_s == 2.0
    assert price.tokens_per_s == pytest.approx(2 * 4 * 4096 / 2.0)
    assert price.gpu_utilization == pytest.approx(2 / (4 * 2))
    assert price.wan_bytes == 300


@pytest.mark.parametrize(
    ("asked", "priced"), [((3, 1), (3, 1)), ((1, 0), (1, 0)), ((2, 0), (2, 0)), ((500, 20), (3, 2)), ((10, 1), (3, 1))]
)
def test_the_first_iterations_of_a_training_are_simulated(asked: tuple[int, int], priced: tuple[int, int]) -> None:
    assert PricedIterations.of(*asked) == PricedIterations(*priced)
