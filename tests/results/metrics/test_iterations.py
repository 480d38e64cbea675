"""Replicas that wait for none of the others are measured by what all of them finish in a common window."""

import json
from collections.abc import Mapping
from pathlib import Path

import pandas as pd
import pytest

from tests.results.metrics.conftest import MakeSpans
from wanbed.results import metrics
from wanbed.results.metrics.iterations import OwnClocks, Window, own_clocks
from wanbed.results.reading.run import load_run
from wanbed.results.records.run_store import RunStore, TrialRecord
from wanbed.results.records.span_log import RankPlace, Span, SpanLogContents
from wanbed.results.records.trial_id import TrialId
from wanbed.results.report.text_formats import table_text

SECOND_NS = 10**9


def spans(ends_s: Mapping[int, list[float]]) -> pd.DataFrame:
    """One computation for each iteration of each replica, which ends then."""
    rows = [
        (pipeline, iteration, "forward", round(end_s * SECOND_NS))
        for pipeline, ends in ends_s.items()
        for iteration, end_s in enumerate(ends)
    ]
    return pd.DataFrame(rows, columns=["pipeline", "iteration", "kind", "end_ns"])


def test_the_window_is_from_when_all_are_warm_until_the_first_is_through() -> None:
    fast, slow = [1, 2, 3, 4, 5, 6, 7], [3, 6, 9, 12, 15, 18, 21]
    found = own_clocks(spans({0: fast, 1: fast, 2: slow}), 1)
    # From 3 to 7 s: four iterations of each fast replica, and one of the slow one.
    assert found == OwnClocks(Window(3 * SECOND_NS, 7 * SECOND_NS), 3, 9, 3.0)
    assert found.iteration_time_s == 4 * 3 / 9


def test_replicas_that_step_together_have_the_period() -> None:
    found = own_clocks(spans({0: [2, 4, 6, 8], 1: [2, 4, 6, 8]}), 1)
    assert found is not None
    assert (found.iteration_time_s, found.slowest_s) == (2.0, 2.0)


def test_a_lost_replica_counts_and_finishes_nothing() -> None:
    found = own_clocks(spans({0: [1, 2, 3, 4, 5], 1: [1, 2]}), 1)
    assert found is not None
    assert (found.replicas, found.finished, found.iteration_time_s) == (2, 5, 4 * 2 / 5)


@pytest.mark.parametrize("ends_s", [{}, {0: [1, 2, 3], 1: [9, 18, 27]}, {0: [1]}])
def test_without_a_window_in_which_all_train_there_is_no_figure(ends_s: dict[int, list[float]]) -> None:
    assert own_clocks(spans(ends_s), 1) is None


def test_summary_and_tables_have_tokens_of_the_window_and_the_slowest_replica_beside(tmp_path: Path) -> None:
    manifest = {"engine": "emulate", "variants": [{"name": "v"}], "sweep_points": [{"index": 0, "sweep_point": {}}]}
    store = RunStore.create(tmp_path, "made", {**manifest, "tokens_per_iteration": 200}, "c0ffee" * 8)
    logs = []
    for rank, length_s in enumerate((1, 2)):
        own = [
            Span("forward", each, 0, each * length_s * SECOND_NS, (each + 1) * length_s * SECOND_NS)
            for each in range(5)
        ]
        logs.append(SpanLogContents(RankPlace(rank, f"h{rank}", "east", 0, rank, 0), tuple(own), complete=True))
    synchronization = {"sync_every": 1, "fragments": 1, "delay": 0, "quorum": 1}
    facts = {"synchronization": synchronization, "warmup_iterations": 1}
    store.write_trial(TrialRecord(TrialId(0, "v", 0), logs, facts=facts))
    store.finish()
    run = load_run(store.path)
    # From 2 to 5 s: three iterations of the one, and one of the other.
    assert run.summary["iteration_time_s"].tolist() == [3 * 2 / 4]
    assert run.summary["slowest_replica_time_s"].tolist() == [2.0]
    assert run.summary["tokens_per_s"].tolist() == [200 / 1.5]
    (row,) = json.loads(table_text([run], "json"))["headline"]
    assert row["slowest_replica_time_s"] == 2.0
    assert "1.50 s (slowest replica 2.00 s, " in table_text([run], "md").replace("\u00a0", " ")


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
