from typing import Any

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from wanbed.results import metrics
from wanbed.results.metrics import Window
from wanbed.results.records.schema import PREFILL_REQUESTS

BASE: dict[str, Any] = {
    "prompt_tokens": 100,
    "outcome": "admitted",
    "reason": "",
    "was_held": False,
    "arrival_ns": 0,
    "started_ns": None,
    "prefilled_ns": None,
    "kv_moved_ns": None,
}


def requests(*rows: dict[str, Any]) -> pd.DataFrame:
    """Each row says what differs from ``BASE``."""
    frame = pd.DataFrame([{**BASE, **row} for row in rows], columns=list(BASE)).reindex(columns=PREFILL_REQUESTS.names)
    return frame.astype(dict.fromkeys(("started_ns", "prefilled_ns", "kv_moved_ns"), "float64"))


def test_measured_are_the_requests_that_arrived_within_the_window() -> None:
    frame = requests(*({"arrival_ns": arrival_ns} for arrival_ns in (9, 10, 19, 20)))
    assert list(metrics.arrived_within(frame, Window(10, 20))["arrival_ns"]) == [10, 19]


@given(st.lists(st.integers(0, 50), min_size=1), st.integers(1, 100))
def test_a_percentile_is_the_least_value_that_as_many_do_not_exceed(values: list[int], percent: int) -> None:
    found = metrics.nearest_rank(np.array(values), percent)
    assert found in values
    assert 100 * sum(value <= found for value in values) >= percent * len(values)
    assert 100 * sum(value < found for value in values) < percent * len(values)


def test_of_nothing_there_is_no_percentile() -> None:
    assert metrics.nearest_rank(np.zeros(0, np.int64), 50) is None


def test_ttft_is_that_of_the_requests_that_came_to_an_end() -> None:
    frame = requests(
        {"arrival_ns": 5, "prefilled_ns": 20, "kv_moved_ns": 30},
        {"arrival_ns": 7, "prefilled_ns": 21},
        {"arrival_ns": 9, "outcome": "rejected", "reason": "slo"},
    )
    assert metrics.ttft_ns(frame, with_kv=True).tolist() == [25]
    assert metrics.ttft_ns(frame, with_kv=False).tolist() == [15, 14]


@given(
    st.lists(
        st.tuples(
            st.sampled_from(["admitted", "off_loaded", "held", "rejected"]),
            st.sampled_from(["slo", "memory", "never_fits", "hold_full"]),
            st.booleans(),
        )
    )
)
def test_outcomes_add_up_to_what_was_offered_and_reasons_to_what_was_rejected(
    rows: list[tuple[str, str, bool]],
) -> None:
    frame = requests(*({"outcome": outcome, "reason": reason, "was_held": held} for outcome, reason, held in rows))
    counts = metrics.outcome_counts(frame, 10)
    assert (
        sum(counts[name] for name in ("admitted", "off_loaded", "held", "rejected")) == counts["offered"] == len(rows)
    )
    assert sum(number for name, number in counts.items() if name.startswith("rejected_")) == counts["rejected"]
    assert counts["unfinished"] == counts["admitted"] + counts["off_loaded"]
    assert counts["was_held"] == sum(held for *_, held in rows)


@pytest.mark.parametrize(("slo_ns", "late"), [(9, 1), (10, 0), (None, 0)])
def test_late_is_what_came_after_the_slo(slo_ns: int | None, late: int) -> None:
    frame = requests({"arrival_ns": 5, "prefilled_ns": 6, "kv_moved_ns": 15})
    assert metrics.outcome_counts(frame, slo_ns)["late"] == late


def test_tokens_are_those_of_the_prefills_that_ended_within_the_window() -> None:
    frame = requests(*({"prefilled_ns": at, "prompt_tokens": 10**n} for n, at in enumerate((9, 10, 20, 21, None))))
    assert metrics.prefilled_tokens(frame, Window(10, 20)) == 10 + 100


def test_no_requests_are_no_outcomes() -> None:
    counts = metrics.outcome_counts(requests(), 1)
    assert set(counts.values()) == {0}
    assert metrics.prefilled_tokens(requests(), Window(0, 1)) == 0


def test_times_to_the_first_token_are_said_at_four_percentiles() -> None:
    assert metrics.TTFT_PERCENTILES == (50, 90, 95, 99)
    of_hundred = np.arange(1, 101)
    assert [metrics.nearest_rank(of_hundred, percent) for percent in metrics.TTFT_PERCENTILES] == [50, 90, 95, 99]


def test_a_rejection_for_a_reason_that_is_new_is_counted_under_its_own_name() -> None:
    counts = metrics.outcome_counts(
        requests({"outcome": "rejected", "reason": "tired"}, {"outcome": "rejected", "reason": "slo"}), None
    )
    assert (counts["rejected"], counts["rejected_tired"], counts["rejected_slo"], counts["rejected_memory"]) == (
        2,
        1,
        1,
        0,
    )


def test_prefill_counts_in_a_training_gpu_only_where_it_did_not_train() -> None:
    rows = [("h", "forward", 0, 10), ("h", "prefill", 5, 25), ("other", "forward", 0, 40)]
    frame = pd.DataFrame(rows, columns=["host", "kind", "start_ns", "end_ns"]).assign(gpu=0)
    assert metrics.prefill_ns(frame, Window(0, 20)).to_dict() == {("h", 0): 10, ("other", 0): 0}
    without = frame[frame["kind"] != "prefill"]
    assert metrics.prefill_ns(without, Window(0, 20)).to_dict() == {("h", 0): 0, ("other", 0): 0}
    assert metrics.gpu_utilizations(frame, Window(0, 20)) == ((0.5 + 1) / 2, 1.0)
    assert metrics.gpu_utilizations(without, Window(0, 20)) == (0.75, 0.75)
    assert metrics.gpu_utilization(metrics.gpu_busy(frame, Window(20, 20))) is None
    assert metrics.idle_share(metrics.gpu_busy(frame, Window(20, 20))) is None
