"""Congestion windows of cubic, reno and BBR: slow start, what a loss does, and how they grow afterwards."""

from collections import deque
from itertools import groupby

import pytest

from wanbed.flow.packets.congestion_control import Bbr, Cubic
from wanbed.flow.packets.packet import Packet

RTT_NS = 40_000_000
LEAST_SEGMENTS = 4


def bbr_of(window: int) -> Bbr:
    bbr = Bbr(RTT_NS, "seed")
    bbr.window = window
    return bbr


def acknowledged(bbr: Bbr, now_ns: int, in_flight: int, *, recovers: bool = False, lost: int = 0) -> int:
    """Let a segment that was sent a round trip ago arrive; return the window."""
    segment = Packet(0, 1448)
    segment.sent_ns = now_ns - RTT_NS
    segment.stamp = bbr.stamped(segment.sent_ns, idle=False)
    bbr.arrived(segment, now_ns)
    bbr.control(now_ns, 1, lost, in_flight, recovers=recovers)
    return bbr.window


def test_a_loss_narrows_the_window_to_what_arrives_for_a_round_and_no_longer() -> None:
    bbr = bbr_of(100)
    bbr.reduced()
    assert acknowledged(bbr, RTT_NS, 20, recovers=True, lost=1) == 21
    assert acknowledged(bbr, 2 * RTT_NS, 20) >= 100


def test_the_round_trip_is_measured_for_200_ms_from_when_few_segments_are_in_flight() -> None:
    bbr = bbr_of(100)
    begun_ns = 11_000_000_000
    bbr.sampled(begun_ns, RTT_NS, 0, 0, pace=0)
    # What was in flight drains first, however long that takes.
    for number in range(10):
        assert acknowledged(bbr, begun_ns + number * 50_000_000, 50) == LEAST_SEGMENTS
    drained_ns = begun_ns + 500_000_000
    for number in range(5):
        assert acknowledged(bbr, drained_ns + number * 50_000_000, LEAST_SEGMENTS) == LEAST_SEGMENTS
    assert acknowledged(bbr, drained_ns + 250_000_001, LEAST_SEGMENTS) >= 100


class Flow:
    """A flow whose window is always full: a segment leaves when the one that left ``held`` before it has arrived.

    So ``held`` segments arrive in each round trip, and the rate is ``held / rtt``.
    """

    def __init__(self, bbr: Bbr, held: int, rtt_ns: int = RTT_NS, *, begin_ns: int = 0) -> None:
        self.bbr, self.rtt_ns, self.now_ns = bbr, rtt_ns, begin_ns
        self._flying: deque[Packet] = deque()
        for number in range(held):
            self._leave(begin_ns + number * rtt_ns // held)

    def _leave(self, at_ns: int) -> None:
        segment = Packet(0, 1448)
        segment.sent_ns = at_ns
        segment.stamp = self.bbr.stamped(at_ns, idle=not self._flying)
        self._flying.append(segment)

    def round(self, growth: float = 1.0, in_flight: int | None = None) -> None:
        """Let a round trip pass. For each segment that arrives, ``growth`` segments leave.

        ``in_flight`` is what is told to be in flight, as by default it is.
        """
        credit = 0.0
        for _ in range(len(self._flying)):
            self.arrive(in_flight)
            credit += growth
            while credit >= 1:
                self._leave(self.now_ns)
                credit -= 1

    def arrive(self, in_flight: int | None = None) -> None:
        """Let a segment arrive, after which nothing leaves."""
        segment = self._flying.popleft()
        self.now_ns = segment.sent_ns + self.rtt_ns
        self.bbr.arrived(segment, self.now_ns)
        self.bbr.sampled(self.now_ns, self.rtt_ns, 0, 0, pace=0)
        self.bbr.control(self.now_ns, 1, 0, len(self._flying) if in_flight is None else in_flight, recovers=False)

    def gain(self, held: int) -> float:
        """Return the pace in parts of ``held`` segments a round trip."""
        return 1_000_000 / self.bbr.pace_ns(1_000_000) * self.rtt_ns / held


@pytest.mark.parametrize(("rtt_ns", "taken_ns"), [(40_000_000, 40_000_000), (0, 1_000_000)])
def test_the_first_pace_is_2_885_initial_windows_in_a_round_trip_or_in_a_millisecond(
    rtt_ns: int, taken_ns: int
) -> None:
    bbr = Bbr(rtt_ns, "seed")
    assert bbr.window == 10
    assert bbr.pace_ns(10) == pytest.approx(taken_ns / 2.885, abs=1)
    assert bbr.in_slow_start


def test_a_burst_is_what_is_sent_in_a_millisecond_but_at_least_2_and_at_most_44_segments() -> None:
    def burst(segments_per_s: float) -> int:
        # The first pace: ten segments for each round trip, 2.885 times as fast.
        return Bbr(round(28.85 * 1e9 / segments_per_s), "seed").burst_segments

    assert [burst(rate) for rate in (100, 1_000, 2_800, 2_900, 20_000, 41_900, 42_000, 10**6)] == [
        *(2, 2, 2, 3, 20, 43, 44, 44)
    ]


@pytest.mark.parametrize(("growth", "goes_on"), [(2.0, True), (1.1, True), (1.06, False)])
def test_as_long_as_the_rate_grows_by_a_quarter_in_three_rounds_it_looks_for_more(growth: float, goes_on: bool) -> None:
    flow = Flow(Bbr(RTT_NS, "seed"), 40)
    for _ in range(7):
        flow.round(growth)
    # 1.1 to the power of 3 is 1.33, that of 1.06 is 1.19.
    assert flow.bbr.in_slow_start is goes_on


def test_while_it_looks_for_more_it_paces_at_2_885_times_the_rate_and_1_percent_less() -> None:
    flow = Flow(Bbr(RTT_NS, "seed"), 100)
    for _ in range(3):
        flow.round()
    assert flow.bbr.in_slow_start
    assert flow.gain(100) == pytest.approx(2.885 * 0.99, rel=0.001)


def full(seed: str = "seed", held: int = 100) -> Flow:
    """A flow whose next segment is the last that looks for more."""
    flow = Flow(Bbr(RTT_NS, seed), held)
    # The first round is judged by its first segment alone, the second measures the rate, and two find it again.
    for _ in range(4):
        flow.round()
    assert flow.bbr.in_slow_start
    return flow


def test_after_three_rounds_without_growth_it_drains_at_the_inverse_of_the_gain_what_it_sent_too_much() -> None:
    flow = full()
    flow.arrive(in_flight=200)
    assert not flow.bbr.in_slow_start
    assert flow.gain(100) == pytest.approx(0.99 / 2.885, rel=0.001)
    # What the line holds, a segment, three bursts of two, rounded up to an even number.
    flow.arrive(in_flight=109)
    assert flow.gain(100) == pytest.approx(0.99 / 2.885, rel=0.001)
    flow.arrive(in_flight=108)
    assert flow.gain(100) >= 0.99 * 0.999


def probing(held: int = 100, window: int | None = None) -> Flow:
    """A flow that has found its rate, and whose window then is set, if one is given."""
    flow = full(held=held)
    flow.round()
    flow.bbr.window = window or flow.bbr.window
    return flow


def probing_for_more() -> Flow:
    """A flow that has just begun to send a quarter more."""
    flow = probing()
    while flow.gain(100) < 1.2:
        flow.round(in_flight=150)
    return flow


def phases(flow: Flow, rounds: int, in_flight: int | None = None) -> list[tuple[float, int]]:
    """The gains one after the other, each with the number of round trips that it lasted."""
    gains = []
    for _ in range(rounds):
        flow.round(in_flight=in_flight)
        gains.append(round(flow.gain(100) / 0.99, 2))
    return [(gain, len(list(group))) for gain, group in groupby(gains)]


def test_it_probes_for_more_a_round_trip_in_eight_and_then_drains_what_that_queued() -> None:
    (_, _), *whole, (_, _) = phases(probing(), 60, in_flight=150)
    assert len(whole) >= 10
    first = whole.index((1.25, 1))
    assert whole[first : first + 9] == [(1.25, 1), (0.75, 1), (1.0, 6)] * 3


def test_it_probes_for_longer_while_the_line_is_not_full() -> None:
    flow = probing_for_more()
    # 1.25 times what the line holds, a segment, three bursts, 2 for the phase.
    assert phases(flow, 5, in_flight=137) == [(1.25, 5)]
    assert phases(flow, 1, in_flight=138) == [(0.75, 1)]


def test_it_drains_for_no_longer_than_until_the_line_holds_what_it_should() -> None:
    flow = probing()
    while flow.gain(100) > 0.8:
        flow.round(in_flight=150)
    flow.arrive(in_flight=109)
    assert flow.gain(100) == pytest.approx(0.75 * 0.99, rel=0.001)
    flow.arrive(in_flight=108)
    assert flow.gain(100) == pytest.approx(0.99, rel=0.001)


def test_the_seed_draws_where_it_begins_to_probe_but_never_by_draining() -> None:
    gains = []
    for seed in range(70):
        flow = full(str(seed), held=10)
        flow.arrive()
        gains.append(round(flow.gain(10) / 0.99, 2))
    assert set(gains) == {1.0, 1.25}
    assert 3 <= gains.count(1.25) <= 20


@pytest.mark.parametrize("held", [10, 100, 1000])
def test_the_window_is_twice_what_the_line_holds_and_three_bursts(held: int) -> None:
    flow = probing(held)
    flow.round(in_flight=0)
    burst = max(round(held / RTT_NS * 1.25 * 2**20 - 0.5), 2)
    assert flow.bbr.window == pytest.approx(2 * held + 3 * burst, abs=4)
    assert flow.bbr.window % 2 == 0


def test_the_window_opens_by_what_arrives_and_not_at_once() -> None:
    flow = probing(window=50)
    flow.round()
    assert flow.bbr.window == 150
    flow.round()
    assert flow.bbr.window in {210, 212}


def test_a_rate_counts_for_ten_rounds() -> None:
    flow = probing()
    flow.round(growth=0.5)
    rounds = 0
    while flow.gain(50) > 1.6:
        flow.round()
        rounds += 1
    # In the first one segments are acknowledged that were sent at the former rate.
    assert rounds == 1 + 10


def test_a_rate_that_data_limited_counts_only_if_it_is_larger() -> None:
    """Linux, ``bbr_update_bw``: such a sample does not enter the filter, so that nothing in it expires either."""
    flow = probing()
    for _ in range(30):
        flow.bbr.ran_out(100)
        flow.round(growth=0.95)
    assert flow.gain(100) >= 0.99 * 0.999
    larger = probing()
    for _ in range(3):
        larger.bbr.ran_out(400)
        larger.round(growth=1.5)
    assert larger.gain(200) >= 0.99 * 0.999


def test_the_least_round_trip_is_kept_for_ten_seconds_and_then_measured_anew() -> None:
    flow = probing()
    windows = set()
    for _ in range(3):
        flow.bbr.sampled(flow.now_ns, 2 * RTT_NS, 0, 0, pace=0)
        flow.round()
        windows.add(flow.bbr.window)
    assert windows <= {210, 212}
    measured_ns = flow.now_ns
    flow.bbr.sampled(measured_ns, RTT_NS, 0, 0, pace=0)
    flow.bbr.sampled(measured_ns + 10 * 10**9, 2 * RTT_NS, 0, 0, pace=0)
    flow.bbr.control(measured_ns + 10 * 10**9, 1, 0, 100, recovers=False)
    assert flow.bbr.window > LEAST_SEGMENTS
    flow.bbr.sampled(measured_ns + 10 * 10**9 + 1, 2 * RTT_NS, 0, 0, pace=0)
    flow.bbr.control(measured_ns + 10 * 10**9 + 1, 1, 0, 100, recovers=False)
    assert flow.bbr.window == LEAST_SEGMENTS


def measure_round_trip(flow: Flow) -> None:
    """Let ten seconds pass and the round trip be measured with four segments in flight."""
    flow.now_ns += 11 * 10**9
    flow.bbr.sampled(flow.now_ns, RTT_NS, 0, 0, pace=0)
    assert acknowledged(flow.bbr, flow.now_ns, LEAST_SEGMENTS) == LEAST_SEGMENTS
    for _ in range(7):
        flow.now_ns += RTT_NS
        acknowledged(flow.bbr, flow.now_ns, LEAST_SEGMENTS)


def test_after_the_measurement_it_goes_on_with_what_it_did_before() -> None:
    looking, found = Flow(Bbr(RTT_NS, "seed"), 100), probing()
    looking.round()
    for flow, looks in ((looking, True), (found, False)):
        window = flow.bbr.window
        measure_round_trip(flow)
        assert flow.bbr.in_slow_start is looks
        assert flow.bbr.window >= window


def test_after_a_pause_it_sends_at_the_rate_neither_probing_nor_draining() -> None:
    flow = probing_for_more()
    flow.bbr.resumed(10**9, flow.now_ns + 10**9)
    assert flow.gain(100) == pytest.approx(1.25 * 0.99, rel=0.001)
    flow.bbr.ran_out(0)
    flow.bbr.resumed(10**9, flow.now_ns + 10**9)
    assert flow.gain(100) == pytest.approx(0.99, rel=0.001)


def test_a_pause_does_not_let_the_round_trip_be_measured_before_something_has_arrived() -> None:
    flow = probing()
    flow.bbr.ran_out(0)
    flow.bbr.resumed(20 * 10**9, flow.now_ns + 20 * 10**9)
    flow.bbr.sampled(flow.now_ns + 20 * 10**9, RTT_NS, 0, 0, pace=0)
    assert acknowledged(flow.bbr, flow.now_ns + 20 * 10**9, 50) > LEAST_SEGMENTS


def test_after_a_timeout_the_window_is_what_arrives_for_a_round_and_then_its_former_size() -> None:
    bbr = bbr_of(100)
    bbr.reduced()
    bbr.timed_out(0, 0)
    bbr.window = 1
    assert acknowledged(bbr, RTT_NS, 0, recovers=True) < 10
    # The window of a second reduction meanwhile is not the one to come back to.
    bbr.reduced()
    assert acknowledged(bbr, 2 * RTT_NS, 1) >= 100


def test_a_window_that_is_not_in_recovery_is_not_widened_to_a_former_one() -> None:
    flow = probing(window=150)
    flow.bbr.reduced()
    flow.bbr.window = 50
    flow.arrive()
    assert flow.bbr.window == 51


def test_losses_narrow_the_window_by_as_many_segments() -> None:
    flow = probing(window=100)
    flow.bbr.control(flow.now_ns, 2, 30, 0, recovers=False)
    assert flow.bbr.window == 100 - 30 + 2
    flow.bbr.control(flow.now_ns, 1, 500, 0, recovers=False)
    assert flow.bbr.window == LEAST_SEGMENTS
    flow.bbr.control(flow.now_ns, 0, 1, 0, recovers=False)
    assert flow.bbr.window == LEAST_SEGMENTS


def test_one_loss_ends_probing_for_more_after_a_round_trip() -> None:
    for lost, gain in ((0, 1.25), (1, 0.75)):
        flow = probing_for_more()
        flow.now_ns += 2 * RTT_NS
        flow.bbr.control(flow.now_ns, 1, lost, 0, recovers=False)
        assert flow.gain(100) == pytest.approx(gain * 0.99, rel=0.001)


def test_after_a_measurement_the_round_trip_is_known_for_ten_seconds() -> None:
    flow = probing()
    measure_round_trip(flow)
    flow.now_ns += 99 * 10**8
    flow.bbr.sampled(flow.now_ns, 2 * RTT_NS, 0, 0, pace=0)
    assert acknowledged(flow.bbr, flow.now_ns, 50) > LEAST_SEGMENTS


def test_what_arrives_while_the_round_trip_is_measured_does_not_lower_the_rate() -> None:
    flow = probing()
    flow.now_ns += 11 * 10**9
    flow.bbr.sampled(flow.now_ns, RTT_NS, 0, 0, pace=0)
    for _ in range(15):
        flow.now_ns += RTT_NS // 4
        acknowledged(flow.bbr, flow.now_ns, LEAST_SEGMENTS)
    assert flow.gain(100) >= 0.99 * 0.999


CUBIC_RTT_NS = 100_000_000


def cubic_of(
    window: int, *, threshold: int | None = None, measured: bool = False, lost: bool = False, is_reno: bool = False
) -> Cubic:
    """A window of that size, in slow start up to a threshold, whose round trip has been measured, that then loses."""
    cubic = Cubic(is_reno=is_reno)
    cubic.window, cubic.threshold = window, threshold or cubic.threshold
    if measured:
        cubic.sampled(10**9, CUBIC_RTT_NS, 0, 0, pace=0)
    if lost:
        cubic.window = cubic.threshold = cubic.reduced()
    return cubic


def acknowledge_rounds(window: Cubic, rounds: int, begin_ns: int = 10**9, rtt_ns: int = CUBIC_RTT_NS) -> list[int]:
    """The window after each of some rounds, in which all of it is acknowledged."""
    found, now_ns = [], begin_ns
    for _ in range(rounds):
        for _ in range(window.window):
            window.acknowledged(now_ns, 1)
        now_ns += rtt_ns
        found.append(window.window)
    return found


@pytest.mark.parametrize("is_reno", [False, True])
def test_slow_start_doubles_the_window_in_each_round(is_reno: bool) -> None:
    assert acknowledge_rounds(Cubic(is_reno=is_reno), 3) == [20, 40, 80]


def test_reno_grows_by_a_segment_in_each_round() -> None:
    assert acknowledge_rounds(cubic_of(50, threshold=50, is_reno=True), 3) == [51, 52, 53]


def test_cubic_is_back_at_its_window_after_the_time_that_its_formula_gives() -> None:
    cubic = cubic_of(1000, measured=True, lost=True)
    back_s = ((1000 - 700) / 0.4) ** (1 / 3)
    rounds = round(back_s * 1e9 / CUBIC_RTT_NS)
    windows = acknowledge_rounds(cubic, rounds + 20)
    assert windows[rounds // 2] < 990
    assert windows[rounds] == pytest.approx(1000, abs=15)
    assert windows[-1] > 1000


def test_a_small_window_grows_no_slower_than_renos_would() -> None:
    cubic = cubic_of(14, lost=True)
    # RFC 9438, section 4.3: 3 (1 - 0.7) / (1 + 0.7) = 0.53 segments a round.
    assert acknowledge_rounds(cubic, 20)[-1] - 9 == pytest.approx(0.53 * 20, abs=2)


def test_late_acknowledgements_end_slow_start() -> None:
    cubic = cubic_of(100)
    for each in range(20):
        cubic.sampled(10**9 + each * 5_000_000, CUBIC_RTT_NS, 1, 2, pace=0)
    assert cubic.in_slow_start
    for each in range(20):
        cubic.sampled(2 * 10**9 + each * 5_000_000, CUBIC_RTT_NS + 20_000_000, 3, 4, pace=0)
    assert (cubic.in_slow_start, cubic.threshold) == (False, 100)


def test_a_pause_is_no_time_since_the_last_loss() -> None:
    paused, straight = cubic_of(1000, lost=True), cubic_of(1000, lost=True)
    for window in (paused, straight):
        acknowledge_rounds(window, 5)
    paused.resumed(5 * 10**9, 10**9 + 5 * CUBIC_RTT_NS + 5 * 10**9)
    grown = acknowledge_rounds(straight, 5, 10**9 + 5 * CUBIC_RTT_NS)
    assert acknowledge_rounds(paused, 5, 10**9 + 5 * CUBIC_RTT_NS + 5 * 10**9) == grown


def late_in_the_ninth(least_ns: int, later_ns: int, window: int = 100) -> list[bool]:
    """After a round of nine round-trip times and in each of a second round's nine: whether slow start goes on."""
    cubic = cubic_of(window)
    found = []
    for number, (rtt_ns, una) in enumerate([(least_ns, 1)] * 9 + [(least_ns + later_ns, 2)] * 9):
        # 3 ms apart, acknowledgements are no train.
        cubic.sampled(10**9 + number * 3_000_000, rtt_ns, una, una, pace=0)
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
    assert late_in_the_ninth(CUBIC_RTT_NS, CUBIC_RTT_NS, window=15) == [True, True]
    assert late_in_the_ninth(CUBIC_RTT_NS, CUBIC_RTT_NS, window=16) == [True, False]


def test_a_round_with_one_acknowledgement_in_time_is_not_late() -> None:
    cubic = cubic_of(100)
    cubic.sampled(10**9, CUBIC_RTT_NS, 1, 1, pace=0)
    for number in range(20):
        rtt_ns = CUBIC_RTT_NS if number == 5 else 2 * CUBIC_RTT_NS
        cubic.sampled(2 * 10**9 + number * 5_000_000, rtt_ns, 2, 2, pace=0)
    assert cubic.in_slow_start


@pytest.mark.parametrize("apart_ns", [1_000_000, 2_000_000, 2_000_001])
def test_a_train_of_acknowledgements_over_more_than_half_a_round_trip_ends_slow_start(apart_ns: int) -> None:
    cubic = cubic_of(100)
    lasted_ns = 0
    while cubic.in_slow_start and lasted_ns < CUBIC_RTT_NS:
        cubic.sampled(10**9 + lasted_ns, CUBIC_RTT_NS, 1, 200, pace=0)
        lasted_ns += apart_ns
    if apart_ns > 2_000_000:
        assert lasted_ns >= CUBIC_RTT_NS
    else:
        assert lasted_ns - apart_ns == CUBIC_RTT_NS // 2 + apart_ns
        assert cubic.threshold == 100


def test_a_train_does_not_go_on_from_one_round_to_the_next() -> None:
    cubic = cubic_of(100)
    for number in range(100):
        # A round is what was sent when it began: here each has thirty acknowledgements.
        begun = number // 30
        cubic.sampled(10**9 + number * 1_000_000, CUBIC_RTT_NS, 1 + begun, 1 + begun, pace=0)
    assert cubic.in_slow_start


def test_reno_stays_in_slow_start_until_it_loses() -> None:
    reno = cubic_of(100, is_reno=True)
    for number in range(100):
        reno.sampled(10**9 + number * 1_000_000, 10**7 * (number + 1), 1, 2, pace=0)
    assert reno.in_slow_start


def test_round_trips_are_not_judged_in_the_first_second_after_a_loss() -> None:
    cubic = cubic_of(1000)
    cubic.sampled(9 * 10**9, CUBIC_RTT_NS, 1, 1, pace=0)
    cubic.window = cubic.threshold = cubic.reduced()
    cubic.acknowledged(10 * 10**9, 1)
    cubic.threshold = 10_000
    for number in range(40):
        cubic.sampled(10 * 10**9 + number * 24_000_000, 2 * CUBIC_RTT_NS, 2, 2, pace=0)
    assert cubic.in_slow_start
    for number in range(9):
        assert cubic.in_slow_start
        cubic.sampled(11 * 10**9 + number * 5_000_000, 2 * CUBIC_RTT_NS, 2, 2, pace=0)
    assert not cubic.in_slow_start


def test_slow_start_ends_at_the_threshold_and_what_is_left_counts_towards_the_next_segment() -> None:
    reno = cubic_of(95, threshold=100, is_reno=True)
    reno.acknowledged(0, 10)
    assert (reno.window, reno.in_slow_start) == (100, False)
    reno.acknowledged(0, 94)
    assert reno.window == 100
    reno.acknowledged(0, 1)
    assert reno.window == 101


def test_many_segments_acknowledged_at_once_open_the_window_as_often_as_they_are_that_many() -> None:
    reno = cubic_of(10, threshold=10, is_reno=True)
    reno.acknowledged(0, 35)
    assert reno.window == 13
    # Five are left over.
    reno.acknowledged(0, 7)
    assert reno.window == 13
    reno.acknowledged(0, 1)
    assert reno.window == 14


def test_before_a_loss_the_window_grows_by_a_twentieth_a_round() -> None:
    assert acknowledge_rounds(cubic_of(100, threshold=100), 3) == [105, 110, 115]


@pytest.mark.parametrize(
    ("window", "cubics", "renos"), [(1, 2, 2), (3, 2, 2), (4, 2, 2), (5, 3, 2), (6, 4, 3), (1000, 700, 500)]
)
def test_a_loss_leaves_seven_tenths_of_cubics_window_and_half_of_renos_but_two_segments_at_least(
    window: int, cubics: int, renos: int
) -> None:
    assert (cubic_of(window).reduced(), cubic_of(window, is_reno=True).reduced()) == (cubics, renos)


def windows_after_loss(cubic: Cubic, rounds: int) -> list[int]:
    """The windows when rounds end, the first one being that before the first round."""
    cubic.window = cubic.threshold = cubic.reduced()
    return [cubic.window, *acknowledge_rounds(cubic, rounds)]


def test_after_a_loss_the_window_follows_rfc_9438() -> None:
    cubic = cubic_of(1000, measured=True)
    k_s = (1000 * 0.3 / 0.4) ** (1 / 3)
    for number, window in enumerate(windows_after_loss(cubic, 120)):
        # W_cubic(t) = C (t - K)^3 + W_max
        assert window == pytest.approx(0.4 * (number * CUBIC_RTT_NS / 1e9 - k_s) ** 3 + 1000, rel=0.015)


def test_a_loss_below_the_former_window_makes_room_for_others() -> None:
    """Fast convergence, RFC 9438, section 4.7: the plateau is at (1 + 0.7) / 2 of the window at the second loss."""
    cubic = cubic_of(2000, measured=True)
    cubic.reduced()
    cubic.window = 1999
    plateau = 1999 * 0.85
    k_s = ((plateau - 1999 * 0.7) / 0.4) ** (1 / 3)
    for number, window in enumerate(windows_after_loss(cubic, 120)):
        assert window == pytest.approx(0.4 * (number * CUBIC_RTT_NS / 1e9 - k_s) ** 3 + plateau, rel=0.01)


def test_as_large_a_window_at_the_second_loss_is_the_plateau_again() -> None:
    cubic = cubic_of(1000, measured=True)
    cubic.reduced()
    cubic.window = 1000
    rounds = round((1000 * 0.3 / 0.4) ** (1 / 3) * 1e9 / CUBIC_RTT_NS)
    assert windows_after_loss(cubic, rounds)[-1] == pytest.approx(1000, abs=10)


def test_long_after_a_loss_a_window_grows_by_half_of_itself_in_a_round_and_no_more() -> None:
    cubic = cubic_of(1000, lost=True)
    cubic.acknowledged(10**9, 1)
    before = cubic.window
    for _ in range(before):
        cubic.acknowledged(1000 * 10**9, 1)
    assert cubic.window == pytest.approx(before * 1.5, abs=1)


def test_a_window_that_reno_would_have_larger_grows_with_renos() -> None:
    """RFC 9438, section 4.3, where a round trip is short: cubic's own growth depends on time, Reno's on rounds."""
    windows = acknowledge_rounds(cubic_of(100, lost=True), 100, rtt_ns=10_000_000)
    assert windows[-1] == pytest.approx(70 + 100 * 3 * 0.3 / 1.7, abs=3)


def test_a_timeout_forgets_the_window_before_the_last_loss() -> None:
    cubic = cubic_of(1000)
    cubic.reduced()
    cubic.timed_out(10**9, 0)
    cubic.window = cubic.threshold = 100
    assert acknowledge_rounds(cubic, 1, 2 * 10**9) == [105]


def test_after_a_timeout_slow_start_is_judged_anew() -> None:
    cubic = cubic_of(100)
    for number in range(60):
        cubic.sampled(10**9 + number * 1_000_000, CUBIC_RTT_NS, 1, 200, pace=0)
    assert not cubic.in_slow_start
    cubic.timed_out(2 * 10**9, 300)
    cubic.threshold = 1000
    for number in range(51):
        cubic.sampled(2 * 10**9 + number * 1_000_000, CUBIC_RTT_NS, 300, 300, pace=0)
    assert cubic.in_slow_start
    cubic.sampled(2 * 10**9 + 51 * 1_000_000, CUBIC_RTT_NS, 300, 300, pace=0)
    assert not cubic.in_slow_start


def test_what_was_counted_while_the_window_hardly_grew_opens_it_by_one_segment() -> None:
    cubic = cubic_of(1000, measured=True)
    cubic.reduced()
    cubic.threshold = 1000
    cubic.acknowledged(2 * 10**9, 900)
    assert cubic.window == 1000
    # Ten seconds later the window grows by a segment for each two.
    cubic.acknowledged(12 * 10**9, 1)
    assert cubic.window == 1001
    cubic.acknowledged(12 * 10**9, 1)
    assert cubic.window == 1002
