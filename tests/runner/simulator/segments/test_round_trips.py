"""The timers of a sender: RFC 6298's timeout, RFC 8985's probe, and a kernel's clock of 100 ticks a second."""

import pytest

from wanbed.runner.simulator.segments.round_trips import RoundTrips, goes_off_ns, late_segment_ns

MS = 1_000_000


def measured(*times_ms: int) -> RoundTrips:
    round_trips = RoundTrips()
    for each in times_ms:
        round_trips.measure(each * MS, each * MS)
    return round_trips


def test_before_the_first_measurement_both_timers_last_a_second() -> None:
    nothing = RoundTrips()
    assert nothing.timeout_ns == nothing.probe_ns(1) == nothing.probe_ns(2) == 1000 * MS


@pytest.mark.parametrize(
    ("times_ms", "timeout_ms"),
    [
        # R + max(4 R / 2, 200 ms) at first.
        ([40], 40 + 200),
        ([100], 100 + 200),
        ([400], 400 + 800),
        # Then RTTVAR = 3/4 RTTVAR + 1/4 |SRTT - R|, and SRTT = 7/8 SRTT + 1/8 R.
        ([400, 480], 410 + 4 * 170),
        ([400, 320], 390 + 4 * 170),
        ([400, 400], 400 + 4 * 150),
        ([80] * 20, 80 + 200),
    ],
)
def test_the_timeout_is_the_smoothed_round_trip_and_four_times_its_variation(
    times_ms: list[int], timeout_ms: int
) -> None:
    assert measured(*times_ms).timeout_ns == timeout_ms * MS


def test_a_probe_is_sent_after_two_round_trips_and_two_ticks_or_a_delayed_acknowledgement() -> None:
    round_trips = measured(40)
    assert round_trips.probe_ns(2) == round_trips.probe_ns(9) == (2 * 40 + 20) * MS
    assert round_trips.probe_ns(1) == (2 * 40 + 200) * MS


def test_the_least_time_is_kept_and_that_of_the_last_segment_acknowledged() -> None:
    round_trips = RoundTrips()
    for first_ms, last_ms in ((50, 45), (60, 40), (70, 55)):
        round_trips.measure(first_ms * MS, last_ms * MS)
    assert round_trips.least_ns == 40 * MS


@pytest.mark.parametrize(("times_ms", "waits_ms"), [([80], 10), ([16, 400], 4), ([400, 400, 8], 2)])
def test_a_late_segment_is_waited_for_an_eighth_of_the_smoothed_and_a_quarter_of_the_least_round_trip(
    times_ms: list[int], waits_ms: int
) -> None:
    assert measured(*times_ms).reordering_ns == waits_ms * MS


@pytest.mark.parametrize(
    ("from_ms", "wait_ms", "off_ms"), [(0, 0, 10), (0, 240, 250), (9, 240, 250), (10, 240, 260), (10, 241, 270)]
)
def test_a_timer_goes_off_a_tick_after_the_whole_ticks_that_its_time_is_rounded_up_to(
    from_ms: int, wait_ms: int, off_ms: int
) -> None:
    assert goes_off_ns(from_ms * MS, wait_ms * MS) == off_ms * MS


def test_a_late_segment_is_waited_for_two_ticks_longer() -> None:
    assert late_segment_ns(40 * MS, 0) == (40 + 20 + 10) * MS
    assert late_segment_ns(40 * MS, 5 * MS) == (40 + 30 + 10) * MS
