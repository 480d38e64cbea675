from collections.abc import Sequence

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from wanbed.results.metrics import Window
from wanbed.results.metrics.contention import contended_ns, contention_of_spans, device_contention, devices_of_seats

Computation = tuple[int, int, int, int]
"""(device, seat, start, end); seats of different devices differ."""

moments = st.integers(0, 30)


@st.composite
def computations(draw: st.DrawFn) -> list[Computation]:
    found = []
    for _ in range(draw(st.integers(0, 15))):
        seat = draw(st.integers(0, 4))
        start, end = sorted((draw(moments), draw(moments)))
        found.append((seat % 2, seat, start, end))
    return found


def contended(spans: Sequence[Computation]) -> list[int]:
    columns = np.array(spans, np.int64).reshape(-1, 4).T
    return [int(each) for each in contended_ns(*columns)]


@given(computations())
def test_a_span_is_contended_at_each_moment_at_which_another_seat_computes_on_its_device(
    spans: list[Computation],
) -> None:
    expected = [
        sum(
            any(
                other_device == device and other != seat and low <= moment < high
                for other_device, other, low, high in spans
            )
            for moment in range(start, end)
        )
        for device, seat, start, end in spans
    ]
    assert contended(spans) == expected


@given(computations(), st.integers(0, 10**15))
def test_when_it_all_happened_does_not_matter(spans: list[Computation], later: int) -> None:
    shifted = [(device, seat, start + later, end + later) for device, seat, start, end in spans]
    assert contended(shifted) == contended(spans)


@given(computations())
def test_a_seat_alone_is_never_contended(spans: list[Computation]) -> None:
    for seat in range(5):
        own = [span for span in spans if span[1] == seat]
        assert contended(own) == [0] * len(own)


@given(st.lists(st.tuples(moments, moments).map(sorted), min_size=1, max_size=8), st.data())
def test_contention_between_two_seats_is_symmetric(one: list[list[int]], data: st.DataObject) -> None:
    other = data.draw(st.lists(st.tuples(moments, moments).map(sorted), min_size=1, max_size=8))

    def disjoint(spans: list[list[int]]) -> list[tuple[int, int]]:
        kept: list[tuple[int, int]] = []
        for start, end in sorted(spans):
            begin = max(start, kept[-1][1]) if kept else start
            if end > begin:
                kept.append((begin, end))
        return kept

    spans = [(0, seat, *each) for seat, own in enumerate((one, other)) for each in disjoint(own)]
    lengths = contended(spans)
    sums = [sum(each for each, span in zip(lengths, spans, strict=True) if span[1] == seat) for seat in (0, 1)]
    assert sums[0] == sums[1]


def frame(rows: Sequence[tuple[str, int, str, int, int]]) -> pd.DataFrame:
    """Spans of (host, rank, kind, start, end), each host with one GPU."""
    columns = ["host", "rank", "kind", "start_ns", "end_ns"]
    return pd.DataFrame(rows, columns=columns).assign(gpu=0)


ONE_GPU = {("east-0", 0): "GPU-1", ("west-0", 0): "GPU-1"}
SPANS = frame(
    [
        ("east-0", 0, "forward", 0, 100),
        ("east-0", 0, "send", 100, 900),
        ("west-0", 1, "forward", 200, 320),
        ("east-0", 0, "forward", 300, 450),
        ("west-0", 1, "backward", 400, 500),
        ("west-0", 1, "forward", 600, 700),
    ]
)


def test_spans_of_ranks_on_one_device_are_reported_how_long_they_were_not_alone() -> None:
    found = contention_of_spans(SPANS, ONE_GPU)
    assert found["contended_ns"].to_dict() == {0: 0, 2: 20, 3: 70, 4: 50, 5: 0}
    assert set(found["device"]) == {"GPU-1"}


def test_spans_on_different_devices_have_nothing_to_do_with_each_other() -> None:
    found = contention_of_spans(SPANS, {("east-0", 0): "GPU-1", ("west-0", 0): "GPU-2"})
    assert found["contended_ns"].sum() == 0


def test_device_contention_has_share_and_slowdown() -> None:
    (found,) = device_contention(SPANS, ONE_GPU, Window(0, 1000))
    assert (found.device, found.seats, found.spans, found.contended_spans) == ("GPU-1", 2, 5, 3)
    assert (found.busy_ns, found.computed_ns, found.contended_ns) == (500, 570, 140)
    assert found.contended_share == pytest.approx(140 / 570)
    # Forwards of 120 and 150 ns, where alone they take 100; no backward was alone.
    assert found.slowdown == pytest.approx((1.2 + 1.5) / 2)


def test_contention_counts_spans_that_begin_in_the_window() -> None:
    (found,) = device_contention(SPANS, ONE_GPU, Window(250, 1000))
    assert (found.spans, found.contended_ns) == (3, 120)


def test_without_devices_or_spans_there_is_no_contention() -> None:
    assert device_contention(SPANS, {}, Window(0, 1000)) == []
    assert device_contention(SPANS.iloc[:0], ONE_GPU, Window(0, 1000)) == []


def test_a_reported_device_takes_precedence_over_the_assigned_one() -> None:
    facts = {
        "gpu_assignment": [
            {"host": "east-0", "gpu": 0, "uuid": "GPU-1", "share": 1.0},
            {"host": "east-serving-0", "gpu": 0, "uuid": "GPU-2", "share": 1.0},
        ],
        "devices": [{"host": "east-0", "gpu": 0, "device": "cpu"}],
    }
    assert devices_of_seats(facts) == {("east-0", 0): "cpu", ("east-serving-0", 0): "GPU-2"}
    assert devices_of_seats({}) == {}


def test_a_span_counts_by_its_beginning_and_a_window_ends_before_its_end() -> None:
    assert [each.spans for each in device_contention(SPANS, ONE_GPU, Window(200, 600))] == [3]
    (found,) = device_contention(SPANS, ONE_GPU, Window(200, 601))
    # Of 200 to 500 it is busy all the time, and in the last nanosecond.
    assert (found.spans, found.busy_ns) == (4, 301)


def test_devices_are_sorted_and_have_all_their_seats() -> None:
    devices = {("west-0", 0): "GPU-1", ("east-0", 0): "GPU-2", ("idle-0", 0): "GPU-2"}
    found = device_contention(SPANS, devices, Window(0, 1000))
    assert [(each.device, each.seats, each.spans, each.slowdown) for each in found] == [
        ("GPU-1", 1, 3, None),
        ("GPU-2", 2, 2, None),
    ]
    assert [each.contended_share for each in found] == [0.0, 0.0]


def test_spans_of_no_length_have_no_share() -> None:
    (found,) = device_contention(frame([("east-0", 0, "forward", 5, 5)]), ONE_GPU, Window(0, 10))
    assert (found.computed_ns, found.contended_share) == (0, 0.0)
