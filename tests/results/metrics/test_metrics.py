from itertools import pairwise
from typing import Any

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from wanbed.results import metrics
from wanbed.results.metrics import Window
from wanbed.results.records.schema import LINK_SAMPLES, SPANS

Intervals = list[tuple[int, int]]
intervals = st.lists(st.tuples(st.integers(0, 120), st.integers(0, 40)).map(lambda pair: (pair[0], sum(pair))))


def union(of: Intervals) -> int:
    start, end = np.array(of, dtype=np.int64).reshape(-1, 2).T
    return metrics.union_length_ns(start, end)


def spans(*rows: dict[str, Any]) -> pd.DataFrame:
    base = {
        "host": "east-0",
        "datacenter": "east",
        "gpu": 0,
        "rank": 0,
        "pipeline": 0,
        "stage": 0,
        "iteration": 0,
        "microbatch": 0,
        "size_bytes": 0,
        "peer": "",
    }
    frame = pd.DataFrame([{**base, **row} for row in rows])
    return frame.reindex(columns=SPANS.names)


def compute(kind: str, start: int, end: int, **more: Any) -> dict[str, Any]:
    return {"kind": kind, "start_ns": start, "end_ns": end, **more}


def samples(*rows: tuple[int, str, str, str, int]) -> pd.DataFrame:
    columns = ["time_ns", "scope", "source", "destination", "wire_bytes"]
    return pd.DataFrame(rows, columns=columns).reindex(columns=LINK_SAMPLES.names)


@given(intervals)
def test_the_union_is_as_long_as_the_set_of_instants_it_covers(of: Intervals) -> None:
    assert union(of) == len({instant for start, end in of for instant in range(start, end)})


@given(intervals, st.randoms())
def test_the_union_depends_neither_on_order_nor_on_repetition(of: Intervals, random: Any) -> None:
    shuffled = of + of
    random.shuffle(shuffled)
    assert union(shuffled) == union(of)


@given(intervals, intervals)
def test_more_intervals_never_cover_less_and_never_more_than_both(one: Intervals, other: Intervals) -> None:
    assert max(union(one), union(other)) <= union(one + other) <= union(one) + union(other)


@given(intervals, st.integers(0, 160), st.integers(0, 160))
def test_busy_and_idle_add_up_to_the_window_exactly(of: Intervals, one: int, other: int) -> None:
    window = Window(min(one, other), max(one, other))
    rows = [compute("forward", start, end, host=f"east-{start % 3}") for start, end in of]
    busy = metrics.gpu_busy(spans(*rows, compute("receive", 0, 9)), window)
    assert (busy["busy_ns"] + busy["idle_ns"] == window.length_ns).all()
    assert (busy["busy_ns"] >= 0).all()
    assert (busy["idle_ns"] >= 0).all()


@given(intervals, st.lists(st.integers(0, 160), max_size=5))
def test_windows_that_tile_time_share_out_the_busy_time(of: Intervals, cuts: list[int]) -> None:
    frame = spans(*(compute("forward", start, end) for start, end in of), compute("send", 0, 1))
    edges = [0, *sorted(cuts), 200]
    tiles = [metrics.gpu_busy(frame, Window(*edge))["busy_ns"].sum() for edge in pairwise(edges)]
    assert sum(tiles) == union(of)


def test_an_iteration_lasts_from_its_first_start_to_its_last_end_over_all_gpus() -> None:
    frame = spans(
        compute("forward", 5, 10),
        compute("backward", 50, 90, host="west-0"),
        compute("receive", 60, 92),
        compute("prefill", 0, 200),
        compute("forward", 95, 99, iteration=1),
        compute("recompute", 120, 160, iteration=1, host="west-0"),
    )
    windows = metrics.iteration_windows(frame)
    assert windows.to_dict("index") == {0: {"start_ns": 5, "end_ns": 92}, 1: {"start_ns": 95, "end_ns": 160}}
    assert metrics.iteration_times_s(windows, 0) == [87e-9, 65e-9]


def test_successive_iterations_begin_where_the_one_before_ended() -> None:
    """Each begins before the one before it has ended, and the third ends before the second."""
    windows = pd.DataFrame({"start_ns": [3, 60, 150, 170], "end_ns": [100, 200, 190, 300]})
    successive = metrics.successive_windows(windows)
    assert successive.to_dict("list") == {"start_ns": [3, 100, 200, 200], "end_ns": [100, 200, 200, 300]}
    assert metrics.iteration_times_s(successive, 1) == [100e-9, 0.0, 100e-9]
    assert metrics.measured_window(successive, 1) == Window(100, 300, range(1, 4))


def test_without_iterations_there_are_no_windows() -> None:
    assert metrics.successive_windows(metrics.iteration_windows(spans())).empty


def test_warm_up_iterations_do_not_count() -> None:
    windows = metrics.iteration_windows(spans(*(compute("forward", 10 * i, 10 * i + i, iteration=i) for i in range(4))))
    assert metrics.iteration_times_s(windows, 2) == [2e-9, 3e-9]
    assert metrics.measured_window(windows, 2) == Window(20, 33, range(2, 4))
    assert metrics.measured_window(windows, 4) is None
    assert metrics.iteration_times_s(windows, 4) == []


def test_a_window_counts_the_spans_of_its_iterations_whenever_they_ended() -> None:
    frame = spans(*(compute("forward", begin, begin + 20, iteration=i) for i, begin in enumerate((0, 5, 15, 30))))
    assert metrics.counted_spans(frame, Window(20, 35, range(1, 3))).tolist() == [False, True, True, False]
    assert metrics.counted_spans(frame, Window(20, 35)).tolist() == [True, True, True, False]


def test_a_single_iteration_has_a_window_and_no_period() -> None:
    windows = metrics.successive_windows(metrics.iteration_windows(spans(compute("forward", 5, 10))))
    assert metrics.measured_window(windows, 1) == Window(5, 10)
    assert metrics.mean_time_s(metrics.iteration_times_s(windows, 1)) is None


def test_iterations_that_ranks_state_end_with_their_last_rank_and_add_up() -> None:
    frame = spans(
        *(compute("iteration", 10 * i, 10 * i + 10, iteration=i) for i in range(4)),
        *(compute("iteration", 10 * i + 3, 10 * i + 13 + i % 2, iteration=i, host="west-0") for i in range(4)),
        compute("forward", 0, 500),
    )
    windows = metrics.iteration_windows(frame)
    assert windows.to_dict("list") == {"start_ns": [3, 13, 23, 33], "end_ns": [13, 24, 33, 44]}
    assert metrics.iteration_times_s(windows, 1, 1) == [11e-9, 10e-9]
    assert metrics.measured_window(windows, 1, 1) == Window(33, 44)
    assert metrics.measured_window(windows, 1, 9) == Window(13, 44)


def test_gpu_time_of_a_program_is_unknown_where_no_iteration_was_profiled() -> None:
    windows = metrics.iteration_windows(spans(compute("iteration", 0, 10), compute("iteration", 10, 30, iteration=1)))
    assert metrics.measured_window(windows, 1, 0) is None
    assert metrics.iteration_times_s(windows, 1, 0) == [20e-9]


def test_a_period_is_a_mean_and_a_makespan_a_median() -> None:
    assert (metrics.mean_time_s([1.0, 9.0, 2.0]), metrics.median_time_s([1.0, 9.0, 2.0])) == (4.0, 2.0)
    assert metrics.mean_time_s([]) is metrics.median_time_s([]) is None


def test_of_whole_iterations_every_gpu_counts_its_own_work_and_no_other() -> None:
    """The second GPU is half an iteration behind: clipped to the common window it would lose a computation."""
    frame = spans(
        *(compute("forward", 10 * i, 10 * i + 8, iteration=i) for i in range(4)),
        *(compute("forward", 10 * i + 5, 10 * i + 13, iteration=i, host="west-0") for i in range(4)),
    )
    windows = metrics.successive_windows(metrics.iteration_windows(frame))
    window = metrics.measured_window(windows, 1)
    assert window == Window(13, 43, range(1, 4))
    busy = metrics.gpu_busy(frame, window)
    assert busy["busy_ns"].tolist() == [24, 24]
    assert busy["idle_ns"].tolist() == [6, 6]
    assert metrics.idle_causes(frame, window).sum(axis="columns").tolist() == [6, 6]
    assert metrics.gpu_busy(frame, Window(13, 43))["busy_ns"].tolist() == [21, 24]


def test_utilization_counts_computation_only_and_averages_over_gpus() -> None:
    frame = spans(
        compute("forward", 0, 40),
        compute("backward", 30, 60),
        compute("receive", 60, 100),
        compute("forward", 0, 20, host="west-0"),
        compute("send", 0, 100, host="north-0"),
    )
    busy = metrics.gpu_busy(frame, Window(0, 100))
    assert busy["busy_ns"].to_dict() == {("east-0", 0): 60, ("north-0", 0): 0, ("west-0", 0): 20}
    assert metrics.gpu_utilization(busy) == pytest.approx(0.8 / 3)
    assert metrics.idle_share(busy) == pytest.approx(1 - 0.8 / 3)


def test_two_gpus_of_one_host_are_two_gpus() -> None:
    busy = metrics.gpu_busy(spans(compute("forward", 0, 10), compute("forward", 0, 10, gpu=1)), Window(0, 10))
    assert metrics.gpu_utilization(busy) == 1.0
    assert len(busy) == 2


def test_wan_bytes_are_what_every_directed_link_s_counter_gained() -> None:
    frame = samples(
        (0, "link", "east", "west", 100),
        (300, "link", "east", "west", 1100),
        (200, "link", "east", "west", 700),
        (0, "link", "west", "east", 0),
        (300, "link", "west", "east", 50),
        (0, "node_pair", "east-0", "west-0", 0),
        (300, "node_pair", "east-0", "west-0", 999),
    )
    assert metrics.wan_bytes(spans(compute("forward", 0, 1)), frame) == 1050


def test_wan_bytes_are_unknown_without_samples_and_none_at_all_in_one_datacenter() -> None:
    here = compute("forward", 0, 1)
    assert metrics.wan_bytes(spans(here), samples()) == 0
    assert metrics.wan_bytes(spans(here, {**here, "host": "west-0", "datacenter": "west"}), samples()) is None


def test_each_gpu_is_watched_for_as_many_periods_from_its_own_end_on() -> None:
    def iterations(host: str, starts: tuple[int, ...], length: int) -> list[dict[str, Any]]:
        return [
            compute("forward", start, start + length, iteration=number, host=host)
            for number, start in enumerate(starts)
        ]

    # Each computes 60 of 100; the second one 30 later, and the third one far ahead of both.
    frame = spans(
        *iterations("east-0", (0, 100, 200), 60),
        *iterations("east-1", (30, 130, 230), 60),
        *iterations("east-2", (0, 60, 120), 60),
    )
    window = metrics.measured_window(metrics.successive_windows(metrics.iteration_windows(frame)), 1)
    assert window == Window(90, 290, range(1, 3))
    busy = metrics.gpu_busy(frame, window)
    assert busy["busy_ns"].tolist() == [120, 120, 120]
    assert busy["idle_ns"].tolist() == [80, 80, 80]
    assert metrics.gpu_utilization(busy) == 0.6
    assert (metrics.idle_causes(frame, window).sum(axis=1) == 80).all()


def test_a_gpu_that_falls_behind_is_watched_until_it_has_computed_the_last_iteration() -> None:
    frame = spans(
        compute("forward", 0, 90),
        compute("forward", 100, 190, iteration=1),
        compute("forward", 0, 10, host="east-1"),
        compute("forward", 10, 200, iteration=1, host="east-1"),
    )
    window = metrics.measured_window(metrics.successive_windows(metrics.iteration_windows(frame)), 1)
    assert window == Window(90, 200, range(1, 2))
    busy = metrics.gpu_busy(frame, window)
    assert busy["busy_ns"].tolist() == [90, 190]
    assert busy["idle_ns"].tolist() == [20, 0]


def test_utilization_is_the_work_of_the_iterations_over_gpus_times_periods_however_long_a_gpu_is_watched() -> None:
    def behind(last: int) -> pd.DataFrame:
        return spans(
            compute("forward", 0, 90),
            compute("forward", 190, 220, iteration=1),
            compute("forward", 0, 10, host="east-1"),
            compute("forward", last - 30, last, iteration=1, host="east-1"),
        )

    window = Window(90, 220, range(1, 2))
    assert metrics.gpu_busy(behind(190), window).sum().tolist() == [60, 130 + 180 - 60]
    for last in (60, 140, 190, 220):
        assert metrics.gpu_utilizations(behind(last), window) == (60 / 260, 60 / 260)


def test_goodput_is_the_payload_from_other_datacenters_over_the_window() -> None:
    def receive(end: int, peer: str) -> dict[str, Any]:
        return compute("receive", 0, end, size_bytes=1000, peer=peer)

    frame = spans(
        receive(50, "west-0"),
        receive(100, "west-0"),
        receive(101, "west-0"),
        receive(60, "east-1"),
        compute("forward", 0, 1, host="west-0", datacenter="west"),
        compute("forward", 0, 1, host="east-1"),
    )
    assert metrics.wan_goodput_bps(frame, Window(0, 100)) == 2 * 1000 * 8 / 100e-9


def test_goodput_has_what_replicas_sum_over_the_wan() -> None:
    frame = spans(
        *(
            compute("all_reduce", 0, end, rank=rank, stage=1, size_bytes=1000, datacenter=datacenter)
            for end in (50, 100, 101)
            for rank, datacenter in enumerate(("east", "west"))
        )
    )
    assert metrics.wan_goodput_bps(frame, Window(0, 100), [9.0, 2.0]) == 2 * 2 * 1000 * 8 / 100e-9
    assert metrics.wan_goodput_bps(frame, Window(0, 100)) is None, "how it is summed is not known"
    alone = frame[frame["datacenter"] == "east"]
    assert metrics.wan_goodput_bps(alone, Window(0, 100)) == 0


def test_tokens_per_second_need_both_figures() -> None:
    assert metrics.tokens_per_s(4096, 2.0) == 2048
    assert metrics.tokens_per_s(None, 2.0) is None
    assert metrics.tokens_per_s(4096, None) is None
