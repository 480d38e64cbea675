"""Congestion windows of cubic and reno: slow start, what a loss does, and how they grow afterwards."""

import pytest

from runner.simulator.segments.cubic import Cubic

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
