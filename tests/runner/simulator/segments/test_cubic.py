"""Congestion windows of cubic and reno: slow start, what a loss does, and how they grow afterwards."""

import pytest

from wanbed.runner.simulator.segments.cubic import Cubic

RTT_NS = 100_000_000


def acknowledge_rounds(window: Cubic, rounds: int, begin_ns: int = 10**9) -> list[int]:
    """The window after each of some rounds, in which all of it is acknowledged."""
    found, now_ns = [], begin_ns
    for _ in range(rounds):
        for _ in range(window.window):
            window.acknowledged(now_ns, 1)
        now_ns += RTT_NS
        found.append(window.window)
    return found


@pytest.mark.parametrize("is_reno", [False, True])
def test_slow_start_doubles_the_window_in_each_round(is_reno: bool) -> None:
    assert acknowledge_rounds(Cubic(is_reno=is_reno), 3) == [20, 40, 80]


def test_a_loss_leaves_seven_tenths_of_cubics_window_and_half_of_renos() -> None:
    cubic, reno = Cubic(), Cubic(is_reno=True)
    cubic.window = reno.window = 1000
    assert (cubic.reduced(), reno.reduced()) == (700, 500)


def test_reno_grows_by_a_segment_in_each_round() -> None:
    reno = Cubic(is_reno=True)
    reno.window = reno.threshold = 50
    assert acknowledge_rounds(reno, 3) == [51, 52, 53]


def test_cubic_is_back_at_its_window_after_the_time_that_its_formula_gives() -> None:
    cubic = Cubic()
    cubic.window = 1000
    cubic.sampled(10**9, RTT_NS, 0, 0)
    cubic.window = cubic.threshold = cubic.reduced()
    back_s = ((1000 - 700) / 0.4) ** (1 / 3)
    rounds = round(back_s * 1e9 / RTT_NS)
    windows = acknowledge_rounds(cubic, rounds + 20)
    assert windows[rounds // 2] < 990
    assert windows[rounds] == pytest.approx(1000, abs=15)
    assert windows[-1] > 1000


def test_a_small_window_grows_no_slower_than_renos_would() -> None:
    cubic = Cubic()
    cubic.window = 14
    cubic.window = cubic.threshold = cubic.reduced()
    # RFC 9438, section 4.3: 3 (1 - 0.7) / (1 + 0.7) = 0.53 segments a round.
    assert acknowledge_rounds(cubic, 20)[-1] - 9 == pytest.approx(0.53 * 20, abs=2)


def test_late_acknowledgements_end_slow_start() -> None:
    cubic = Cubic()
    cubic.window = 100
    for each in range(20):
        cubic.sampled(10**9 + each * 5_000_000, RTT_NS, 1, 2)
    assert cubic.in_slow_start
    for each in range(20):
        cubic.sampled(2 * 10**9 + each * 5_000_000, RTT_NS + 20_000_000, 3, 4)
    assert not cubic.in_slow_start
    assert cubic.threshold == 100


def test_a_pause_is_no_time_since_the_last_loss() -> None:
    paused, straight = Cubic(), Cubic()
    for window in (paused, straight):
        window.window = 1000
        window.window = window.threshold = window.reduced()
        acknowledge_rounds(window, 5)
    paused.resumed(5 * 10**9, 10**9 + 5 * RTT_NS + 5 * 10**9)
    grown = acknowledge_rounds(straight, 5, 10**9 + 5 * RTT_NS)
    assert acknowledge_rounds(paused, 5, 10**9 + 5 * RTT_NS + 5 * 10**9) == grown


def late_in_the_ninth(least_ns: int, later_ns: int, window: int = 100) -> list[bool]:
    """After a round of nine round-trip times and in each of a second round's nine: whether slow start goes on."""
    cubic = Cubic()
    cubic.window = window
    found = []
    for number, (rtt_ns, una) in enumerate([(least_ns, 1)] * 9 + [(least_ns + later_ns, 2)] * 9):
        # 3 ms apart, acknowledgements are no train.
        cubic.sampled(10**9 + number * 3_000_000, rtt_ns, una, una)
        found.append(cubic.in_slow_start)
    assert all(found[:-1])
    return found[8::9]


@pytest.mark.parametrize(
    ("least_ns", "enough_ns"), [(16_000_000, 4_000_000), (100_000_000, 12_500_000), (400_000_000, 16_000_000)]
)
def test_slow_start_ends_with_the_ninth_that_is_late_by_an_eighth_or_4_or_16_ms(least_ns: int, enough_ns: int) -> None:
    assert late_in_the_ninth(least_ns, enough_ns) == [True, True]
    assert late_in_the_ninth(least_ns, enough_ns + 1) == [True, False]


def test_windows_of_fewer_than_16_segments_stay_in_slow_start() -> None:
    assert late_in_the_ninth(RTT_NS, RTT_NS, window=15) == [True, True]
    assert late_in_the_ninth(RTT_NS, RTT_NS, window=16) == [True, False]


def test_a_round_with_one_acknowledgement_in_time_is_not_late() -> None:
    cubic = Cubic()
    cubic.window = 100
    cubic.sampled(10**9, RTT_NS, 1, 1)
    for number in range(20):
        rtt_ns = RTT_NS if number == 5 else 2 * RTT_NS
        cubic.sampled(2 * 10**9 + number * 5_000_000, rtt_ns, 2, 2)
    assert cubic.in_slow_start


@pytest.mark.parametrize("apart_ns", [1_000_000, 2_000_000, 2_000_001])
def test_a_train_of_acknowledgements_over_more_than_half_a_round_trip_ends_slow_start(apart_ns: int) -> None:
    cubic = Cubic()
    cubic.window = 100
    lasted_ns = 0
    while cubic.in_slow_start and lasted_ns < RTT_NS:
        cubic.sampled(10**9 + lasted_ns, RTT_NS, 1, 200)
        lasted_ns += apart_ns
    if apart_ns > 2_000_000:
        assert lasted_ns >= RTT_NS
    else:
        assert lasted_ns - apart_ns == RTT_NS // 2 + apart_ns
        assert cubic.threshold == 100


def test_a_train_does_not_go_on_from_one_round_to_the_next() -> None:
    cubic = Cubic()
    cubic.window = 100
    for number in range(100):
        # A round is what was sent when it began: here each has thirty acknowledgements.
        begun = number // 30
        cubic.sampled(10**9 + number * 1_000_000, RTT_NS, 1 + begun, 1 + begun)
    assert cubic.in_slow_start


def test_reno_stays_in_slow_start_until_it_loses() -> None:
    reno = Cubic(is_reno=True)
    reno.window = 100
    for number in range(100):
        reno.sampled(10**9 + number * 1_000_000, 10**7 * (number + 1), 1, 2)
    assert reno.in_slow_start


def test_round_trips_are_not_judged_in_the_first_second_after_a_loss() -> None:
    cubic = Cubic()
    cubic.window = 1000
    cubic.sampled(9 * 10**9, RTT_NS, 1, 1)
    cubic.window = cubic.threshold = cubic.reduced()
    cubic.acknowledged(10 * 10**9, 1)
    cubic.threshold = 10_000
    for number in range(40):
        cubic.sampled(10 * 10**9 + number * 24_000_000, 2 * RTT_NS, 2, 2)
    assert cubic.in_slow_start
    for number in range(9):
        assert cubic.in_slow_start
        cubic.sampled(11 * 10**9 + number * 5_000_000, 2 * RTT_NS, 2, 2)
    assert not cubic.in_slow_start


def test_slow_start_ends_at_the_threshold_and_what_is_left_counts_towards_the_next_segment() -> None:
    reno = Cubic(is_reno=True)
    reno.window, reno.threshold = 95, 100
    reno.acknowledged(0, 10)
    assert (reno.window, reno.in_slow_start) == (100, False)
    reno.acknowledged(0, 94)
    assert reno.window == 100
    reno.acknowledged(0, 1)
    assert reno.window == 101


def test_many_segments_acknowledged_at_once_open_the_window_as_often_as_they_are_that_many() -> None:
    reno = Cubic(is_reno=True)
    reno.window = reno.threshold = 10
    reno.acknowledged(0, 35)
    assert reno.window == 13
    # Five are left over.
    reno.acknowledged(0, 7)
    assert reno.window == 13
    reno.acknowledged(0, 1)
    assert reno.window == 14


def test_before_a_loss_the_window_grows_by_a_twentieth_a_round() -> None:
    cubic = Cubic()
    cubic.window = cubic.threshold = 100
    assert acknowledge_rounds(cubic, 3) == [105, 110, 115]


@pytest.mark.parametrize(("window", "cubics", "renos"), [(1, 2, 2), (3, 2, 2), (4, 2, 2), (5, 3, 2), (6, 4, 3)])
def test_a_loss_leaves_two_segments_at_least(window: int, cubics: int, renos: int) -> None:
    cubic, reno = Cubic(), Cubic(is_reno=True)
    cubic.window = reno.window = window
    assert (cubic.reduced(), reno.reduced()) == (cubics, renos)


def windows_after_loss(cubic: Cubic, rounds: int) -> list[int]:
    """The windows when rounds end, the first one being that before the first round."""
    cubic.window = cubic.threshold = cubic.reduced()
    return [cubic.window, *acknowledge_rounds(cubic, rounds)]


def test_after_a_loss_the_window_follows_rfc_9438() -> None:
    cubic = Cubic()
    cubic.window = 1000
    cubic.sampled(10**9, RTT_NS, 0, 0)
    k_s = (1000 * 0.3 / 0.4) ** (1 / 3)
    for number, window in enumerate(windows_after_loss(cubic, 120)):
        # W_cubic(t) = C (t - K)^3 + W_max
        assert window == pytest.approx(0.4 * (number * RTT_NS / 1e9 - k_s) ** 3 + 1000, rel=0.015)


def test_a_loss_below_the_former_window_makes_room_for_others() -> None:
    """Fast convergence, RFC 9438, section 4.7: the plateau is at (1 + 0.7) / 2 of the window at the second loss."""
    cubic = Cubic()
    cubic.window = 2000
    cubic.sampled(10**9, RTT_NS, 0, 0)
    cubic.reduced()
    cubic.window = 1999
    plateau = 1999 * 0.85
    k_s = ((plateau - 1999 * 0.7) / 0.4) ** (1 / 3)
    windows = windows_after_loss(cubic, 120)
    for number, window in enumerate(windows):
        assert window == pytest.approx(0.4 * (number * RTT_NS / 1e9 - k_s) ** 3 + plateau, rel=0.01)


def test_as_large_a_window_at_the_second_loss_is_the_plateau_again() -> None:
    cubic = Cubic()
    cubic.window = 1000
    cubic.sampled(10**9, RTT_NS, 0, 0)
    cubic.reduced()
    cubic.window = 1000
    rounds = round((1000 * 0.3 / 0.4) ** (1 / 3) * 1e9 / RTT_NS)
    assert windows_after_loss(cubic, rounds)[-1] == pytest.approx(1000, abs=10)


def test_long_after_a_loss_a_window_grows_by_half_of_itself_in_a_round_and_no_more() -> None:
    cubic = Cubic()
    cubic.window = 1000
    cubic.window = cubic.threshold = cubic.reduced()
    cubic.acknowledged(10**9, 1)
    before = cubic.window
    for _ in range(before):
        cubic.acknowledged(1000 * 10**9, 1)
    assert cubic.window == pytest.approx(before * 1.5, abs=1)


def test_a_window_that_reno_would_have_larger_grows_with_renos() -> None:
    """RFC 9438, section 4.3, where a round trip is short: cubic's own growth depends on time, Reno's on rounds."""
    cubic = Cubic()
    cubic.window = 100
    cubic.window = cubic.threshold = cubic.reduced()
    now_ns, acknowledged = 10**9, 0
    for _ in range(100):
        for _ in range(cubic.window):
            cubic.acknowledged(now_ns, 1)
            acknowledged += 1
        now_ns += 10_000_000
    assert cubic.window == pytest.approx(70 + 100 * 3 * 0.3 / 1.7, abs=3)


def test_a_timeout_forgets_the_window_before_the_last_loss() -> None:
    cubic = Cubic()
    cubic.window = 1000
    cubic.reduced()
    cubic.timed_out(10**9, 0)
    cubic.window = cubic.threshold = 100
    assert acknowledge_rounds(cubic, 1, 2 * 10**9) == [105]


def test_after_a_timeout_slow_start_is_judged_anew() -> None:
    cubic = Cubic()
    cubic.window = 100
    for number in range(60):
        cubic.sampled(10**9 + number * 1_000_000, RTT_NS, 1, 200)
    assert not cubic.in_slow_start
    cubic.timed_out(2 * 10**9, 300)
    cubic.threshold = 1000
    for number in range(51):
        cubic.sampled(2 * 10**9 + number * 1_000_000, RTT_NS, 300, 300)
    assert cubic.in_slow_start
    cubic.sampled(2 * 10**9 + 51 * 1_000_000, RTT_NS, 300, 300)
    assert not cubic.in_slow_start


def test_what_was_counted_while_the_window_hardly_grew_opens_it_by_one_segment() -> None:
    cubic = Cubic()
    cubic.window = 1000
    cubic.sampled(10**9, RTT_NS, 0, 0)
    cubic.reduced()
    cubic.threshold = 1000
    cubic.acknowledged(2 * 10**9, 900)
    assert cubic.window == 1000
    # Ten seconds later the window grows by a segment for each two.
    cubic.acknowledged(12 * 10**9, 1)
    assert cubic.window == 1001
    cubic.acknowledged(12 * 10**9, 1)
    assert cubic.window == 1002
