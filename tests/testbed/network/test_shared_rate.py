import pytest
from hypothesis import given
from hypothesis import strategies as st

from wanbed.testbed.network.ethernet import FRAME_BYTES
from wanbed.testbed.network.shared_rate import (
    MIN_BYTES_PER_S,
    SUPER_PACKET_NS,
    Timers,
    bytes_per_s,
    can_bind,
    shared_rate,
    super_packet_frames,
)

RATES = st.integers(1, 10**13)


@pytest.mark.parametrize(
    ("rate_bps", "expected"), [(80, 10), (87, 10), (200_000_000, 25_000_000), (10**12, 125 * 10**9)]
)
def test_rates_are_kept_in_whole_bytes(rate_bps: int, expected: int) -> None:
    assert bytes_per_s(rate_bps) == expected


def test_rate_below_the_kernels_minimum_becomes_the_minimum() -> None:
    assert bytes_per_s(1) == bytes_per_s(63) == MIN_BYTES_PER_S


@given(RATES, st.none() | RATES)
def test_one_flow_alone_never_exceeds_what_it_shares(rate_bps: int, feeding_bps: int | None) -> None:
    assert not can_bind(rate_bps, [feeding_bps])


@given(st.lists(st.none() | RATES))
def test_what_is_unlimited_is_never_exceeded(feeding_bps: list[int | None]) -> None:
    assert not can_bind(None, feeding_bps)


def test_two_flows_that_nothing_limits_exceed_any_rate() -> None:
    assert can_bind(10**13, [None, None])
    assert can_bind(10, [5, 6])
    assert not can_bind(10, [5, 5])


@given(RATES)
def test_a_super_packet_is_short_unless_it_has_two_frames(slowest_bps: int) -> None:
    frames = super_packet_frames(slowest_bps)
    assert frames >= 2
    assert frames * 1448 < 2**16
    assert frames == 2 or frames * FRAME_BYTES * 8e9 / slowest_bps <= SUPER_PACKET_NS * (1 + 1e-9)


@given(RATES, st.integers(1, 45))
def test_in_virtual_time_a_bucket_holds_one_super_packet(rate_bps: int, frames: int) -> None:
    shared = shared_rate(rate_bps, Timers.VIRTUAL, frames * FRAME_BYTES)
    assert shared.rate_bytes_per_s == bytes_per_s(rate_bps)
    lasts_us = frames * FRAME_BYTES * 1e6 / shared.rate_bytes_per_s
    assert shared.burst_us == pytest.approx(min(60e6, lasts_us), abs=1)


@pytest.mark.parametrize("timers", [Timers.KERNEL, Timers.GUEST])
@given(rate_bps=RATES)
def test_on_the_real_clock_a_bucket_lasts_until_a_late_timer_fires(timers: Timers, rate_bps: int) -> None:
    shared = shared_rate(rate_bps, timers, 0)
    two_frames_us = 2 * FRAME_BYTES * 1e6 / shared.rate_bytes_per_s
    assert shared.burst_us == pytest.approx(min(60e6, max(timers.value / 1e3, two_frames_us)), abs=1.001)


@pytest.mark.parametrize("timers", list(Timers))
@given(rate_bps=RATES)
def test_a_bucket_is_never_without_time_nor_beyond_what_htb_counts(timers: Timers, rate_bps: int) -> None:
    assert 1 <= shared_rate(rate_bps, timers, FRAME_BYTES).burst_us <= 60_000_000


def test_a_bucket_lasts_as_long_as_timers_may_be_late_and_for_two_frames_at_least() -> None:
    assert [shared_rate(10**10, timers, 0).burst_us for timers in (Timers.KERNEL, Timers.GUEST)] == [1000, 8000]
    # Two frames at 1 Mbit/s; in virtual time it lasts as long as the largest packet.
    assert shared_rate(10**6, Timers.KERNEL, 0).burst_us == 2 * 1514 * 8
    assert shared_rate(10**6, Timers.VIRTUAL, 3 * FRAME_BYTES).burst_us == 3 * 1514 * 8
    # HTB looks a minute ahead.
    assert shared_rate(64, Timers.KERNEL, 0).burst_us == 60_000_000
