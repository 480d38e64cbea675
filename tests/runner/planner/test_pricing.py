from dataclasses import fields

import numpy as np
import pytest

from tests.support.runner.planner_instances import document, task_of
from wanbed.results.records.span_columns import SpanColumns
from wanbed.runner.planner.bottleneck import bottleneck_of
from wanbed.runner.planner.pricing import PricedIterations, price_of
from wanbed.runner.planner.search_space import Candidate
from wanbed.runner.resolve.tcp_effects import TcpEffects
from wanbed.runner.simulator.simulation import KIND_CODES, HostTraffic, Simulation
from wanbed.runner.simulator.variant_simulation import simulate_variant

SHARED = {"transport": {"sharing": "temporal", "connections": "auto"}}


def simulation(spans: list[tuple[int, str, int, int, int]], traffic: tuple[HostTraffic, ...] = ()) -> Simulation:
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
            (
                HostTraffic("a-0", "b-0", times, np.array([0, 500, 800])),
                HostTraffic("b-0", "a-0", times[:0], times[:0]),
            ),
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
    ("asked", "priced"), [((3, 1), (3, 1)), ((1, 0), (2, 1)), ((2, 0), (2, 1)), ((500, 20), (3, 2)), ((10, 1), (3, 1))]
)
def test_the_first_iterations_of_a_training_are_simulated(asked: tuple[int, int], priced: tuple[int, int]) -> None:
    assert PricedIterations.of(*asked) == PricedIterations(*priced)


@pytest.mark.parametrize(("name", "cells"), [("1f1b", 4), ("atlas", 2)])
def test_one_of_equal_parts_has_the_price_and_the_bottleneck_of_all(name: str, cells: int) -> None:
    links = [{"between": ["a", "b"], "latency": "20ms", "node_pair_rate": "2Gbit", "rate": "6Gbit"}]
    task = task_of(document({"a": 4, "b": 4}, 2, variants=[{"name": "v", "schedule": name, **SHARED}], links=links))
    variant = task.resolve(Candidate(cells, 4 // cells, (("a", 1), ("b", 1))))
    by_mean = TcpEffects(packets=False)
    of_all, of_one = (
        simulate_variant(task.topology, variant, 3, effects=by_mean, one_part=one_part) for one_part in (False, True)
    )
    assert (of_all.parts, of_one.parts) == (1, cells)
    assert len(of_one.spans.rank) * cells == len(of_all.spans.rank)
    for field in fields(SpanColumns):
        first = getattr(of_all.spans, field.name)[: len(of_one.spans.rank)]
        assert first.tolist() == getattr(of_one.spans, field.name).tolist()
    prices = [price_of(each, variant, task.counted_per_sequence, 1) for each in (of_all, of_one)]
    assert prices[0] == prices[1]
    reasons = [bottleneck_of(task.topology, variant, each, 1) for each in (of_all, of_one)]
    assert reasons[0] == reasons[1]
