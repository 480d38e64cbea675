"""Iterations of replicas that train alone, and figures over whole periods."""

import pandas as pd

from tests.results.metrics.conftest import MakeSpans
from wanbed.results import metrics

TWO_REPLICAS = (
    ("forward", 0, 10, {"rank": 0, "iteration": 0}),
    ("forward", 2, 14, {"rank": 1, "host": "west-0", "iteration": 0}),
    ("forward", 10, 20, {"rank": 0, "iteration": 1}),
    ("forward", 14, 26, {"rank": 1, "host": "west-0", "iteration": 1}),
    # Begun after iteration 0, applied after iteration 1.
    ("all_reduce", 10, 40, {"rank": 0, "iteration": 1}),
    ("all_reduce", 14, 38, {"rank": 1, "host": "west-0", "iteration": 1}),
)


def test_an_iteration_ends_with_what_it_applies(spans: MakeSpans) -> None:
    windows = metrics.successive_windows(metrics.iteration_windows(spans(*TWO_REPLICAS)))
    assert windows["end_ns"].tolist() == [14, 40]


def test_only_whole_periods_count() -> None:
    windows = pd.DataFrame({"start_ns": range(9), "end_ns": range(1, 10)}, index=pd.Index(range(9), name="iteration"))
    assert metrics.whole_periods(windows, 2, 3).index.tolist() == list(range(8))
    assert metrics.whole_periods(windows, 0, 3).index.tolist() == list(range(9))
    assert metrics.iteration_times_s(metrics.whole_periods(windows, 2, 8), 2) == []


def test_an_all_reduce_is_awaited_only_once_nothing_is_left_to_compute(spans: MakeSpans) -> None:
    rows = metrics.awaited(spans(*TWO_REPLICAS))
    assert rows["start_ns"].tolist() == [0, 2, 10, 14, 20, 26]
    idle = metrics.idle_causes(rows, metrics.Window(0, 40))
    assert idle["all_reduce"].tolist() == [20, 12]


def test_an_all_reduce_that_ends_before_is_not_awaited(spans: MakeSpans) -> None:
    rows = metrics.awaited(
        spans(("forward", 0, 30, {"rank": 0, "iteration": 1}), ("all_reduce", 5, 20, {"rank": 0, "iteration": 1}))
    )
    assert rows["start_ns"].tolist() == [0, 20]
