from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pytest

from wanbed.results.records.span_columns import SpanColumns
from wanbed.runner.simulator.simulation import KIND_CODES, NO_PEER, HostTraffic, Simulation

ROWS = [
    (0, "forward", 0, 0, 0, 10),
    (0, "backward", 0, 0, 20, 40),
    (0, "optimizer", 0, -1, 50, 55),
    (0, "send", 0, 0, 10, 59),
    (0, "forward", 1, 0, 60, 70),
    (1, "forward", 0, 0, 12, 18),
    (1, "all_reduce", 0, -1, 40, 58),
    (1, "forward", 1, 0, 72, 80),
]


Row = tuple[int, str, int, int, int, int]


def simulation_of(spans: Sequence[Row]) -> Simulation:
    rows = [
        (rank, KIND_CODES[kind], iteration, microbatch, start_ns, end_ns, 0, NO_PEER)
        for rank, kind, iteration, microbatch, start_ns, end_ns in spans
    ]
    return Simulation(SpanColumns.of_training(np.array(rows, np.int64).reshape(-1, 8)), (), {})


@pytest.fixture
def simulation() -> Simulation:
    return simulation_of(ROWS)


def test_an_iteration_lasts_from_its_first_start_to_its_last_end(simulation: Simulation) -> None:
    assert simulation.windows_ns == [(0, 59), (60, 80)]


def test_the_period_is_from_the_end_of_the_warm_up_to_the_last_end_by_the_iterations_between() -> None:
    each = simulation_of(
        [(0, "forward", number, 0, 100 * number, 100 * number + ns) for number, ns in enumerate((9, 4, 5))]
    )
    # Of the first iteration there is no period: it is warm-up in any case.
    assert [each.iteration_time_ns(warmup) for warmup in range(3)] == [98, 98, 101]
    assert [each.measured_ns(warmup) for warmup in range(3)] == [(9, 205), (9, 205), (104, 205)]


def test_an_iteration_does_not_end_before_the_one_before_it() -> None:
    late = simulation_of([*ROWS, (1, "receive", 0, 0, 60, 90), (0, "forward", 2, 0, 90, 101)])
    assert late.windows_ns == [(0, 90), (60, 80), (90, 101)]
    assert late.measured_ns(1) == (90, 101)
    assert late.measured_ns(2) == (90, 101)


def test_beside_other_jobs_iterations_count_that_ended_while_all_of_them_ran() -> None:
    trained = simulation_of(
        [(0, "forward", number, 0, 100 * number, 100 * number + ns) for number, ns in enumerate((10, 20, 90, 5))]
    )
    beside = replace(trained, while_all_ran_ns=290)
    assert (trained.measured_iterations(1), beside.measured_iterations(1), beside.measured_iterations(3)) == (3, 2, 0)
    assert (trained.measured_ns(1), beside.measured_ns(1)) == ((10, 305), (10, 290))
    assert beside.iteration_time_ns(1) == 140
    assert beside.utilization(1, 1) == pytest.approx((20 + 90) / 280)


def test_utilization_counts_the_computation_of_measured_iterations(simulation: Simulation) -> None:
    assert simulation.utilization(2, 1) == simulation.utilization(2, 0) == pytest.approx((10 + 8) / (2 * 21))


def test_bubbles_are_what_lies_between_computations(simulation: Simulation) -> None:
    assert simulation.idle_intervals(0, 0, 80) == [(10, 20), (40, 50), (55, 60), (70, 80)]
    assert simulation.idle_intervals(1, 15, 75) == [(18, 72)]
    assert simulation.idle_intervals(0, 22, 38) == []


def test_prefill_counts_as_computation_only_where_it_is_asked_for() -> None:
    # GPUs of a pool are numbered after the two ranks.
    beside = simulation_of([*ROWS, (1, "prefill", 1, -1, 62, 66), (2, "prefill", 1, -1, 60, 80)])
    assert beside.utilization(2, 1) == pytest.approx((10 + 8) / 42)
    assert beside.utilization(2, 1, with_prefill=True) == pytest.approx((10 + 8 + 4) / 42)
    assert beside.windows_ns == [(0, 59), (60, 80)]


def test_work_of_the_warm_up_that_reaches_into_what_is_measured_does_not_count() -> None:
    late = simulation_of([*ROWS, (1, "backward", 0, 0, 58, 63)])
    assert late.windows_ns == [(0, 63), (60, 80)]
    assert late.utilization(2, 1) == pytest.approx((10 + 8) / (2 * 17))


def test_of_prefill_alone_there_is_no_iteration() -> None:
    assert simulation_of([]).windows_ns == simulation_of([(0, "prefill", 0, 0, 1, 2)]).windows_ns == []
    assert simulation_of([(0, "send", 0, 0, 1, 2)]).windows_ns == [(1, 2)]


def test_bubbles_end_where_computations_begin_that_only_touch_or_reach_over_the_bounds() -> None:
    spans: list[Row] = [(0, "forward", 0, 0, 10, 20), (0, "backward", 0, 0, 20, 30), (0, "forward", 1, 0, 40, 50)]
    simulation = simulation_of(spans)
    assert simulation.idle_intervals(0, 20, 40) == [(30, 40)]
    assert simulation.idle_intervals(0, 0, 10) == [(0, 10)]
    assert simulation.idle_intervals(0, 19, 41) == [(30, 40)]
    assert simulation.idle_intervals(0, 50, 60) == [(50, 60)]
    assert simulation.idle_intervals(1, 0, 10) == [(0, 10)]


def test_traffic_is_linear_between_two_counts_none_before_and_all_after() -> None:
    traffic = HostTraffic("a", "b", np.array([10, 20, 40]), np.array([5, 25, 25]))
    assert traffic.last_ns == 40
    assert traffic.sent_by(np.array([0, 9, 10, 15, 20, 30, 99])).tolist() == [0, 0, 5, 15, 25, 25, 25]
    none = HostTraffic("a", "b", np.zeros(0, np.int64), np.zeros(0, np.int64))
    assert (none.last_ns, none.sent_by(np.array([0, 7])).tolist()) == (0, [0, 0])
