from collections import deque
from itertools import groupby

import pytest

from wanbed.runner.simulator.segments.bbr import Bbr
from wanbed.runner.simulator.segments.segment import Segment

RTT_NS = 40_000_000
LEAST_SEGMENTS = 4


def acknowledged(bbr: Bbr, now_ns: int, in_flight: int, *, recovers: bool = False, lost: int = 0) -> int:
    """Let a segment that was sent a round trip ago arrive; return the window."""
    segment = Segment(0, 1448)
    segment.sent_ns = now_ns - RTT_NS
    segment.stamp = bbr.stamped(segment.sent_ns, idle=False)
    bbr.arrived(segment, now_ns)
    bbr.control(now_ns, 1, lost, in_flight, recovers=recovers)
    return bbr.window


def test_a_loss_narrows_the_window_to_what_arrives_for_a_round_and_no_longer() -> None:
    bbr = Bbr(RTT_NS, "seed")
    bbr.window = 100
    bbr.reduced()
    assert acknowledged(bbr, RTT_NS, 20, recovers=True, lost=1) == 21
    assert acknowledged(bbr, 2 * RTT_NS, 20) >= 100


def test_the_round_trip_is_measured_for_200_ms_from_when_few_segments_are_in_flight() -> None:
    bbr = Bbr(RTT_NS, "seed")
    bbr.window = 100
    begun_ns = 11_000_000_000
    bbr.sampled(begun_ns, RTT_NS, 0, 0)
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
        self._flying: deque[Segment] = deque()
        for number in range(held):
            self._leave(begin_ns + number * rtt_ns // held)

    def _leave(self, at_ns: int) -> None:
        segment = Segment(0, 1448)
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
        self.bbr.sampled(self.now_ns, self.rtt_ns, 0, 0)
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


def probing(held: int = 100) -> Flow:
    flow = full(held=held)
    flow.round()
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
    flow = probing()
    while flow.gain(100) < 1.2:
        flow.round(in_flight=150)
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
    flow = probing()
    flow.bbr.window = 50
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
        flow.bbr.sampled(flow.now_ns, 2 * RTT_NS, 0, 0)
        flow.round()
        windows.add(flow.bbr.window)
    assert windows <= {210, 212}
    measured_ns = flow.now_ns
    flow.bbr.sampled(measured_ns, RTT_NS, 0, 0)
    flow.bbr.sampled(measured_ns + 10 * 10**9, 2 * RTT_NS, 0, 0)
    flow.bbr.control(measured_ns + 10 * 10**9, 1, 0, 100, recovers=False)
    assert flow.bbr.window > LEAST_SEGMENTS
    flow.bbr.sampled(measured_ns + 10 * 10**9 + 1, 2 * RTT_NS, 0, 0)
    flow.bbr.control(measured_ns + 10 * 10**9 + 1, 1, 0, 100, recovers=False)
    assert flow.bbr.window == LEAST_SEGMENTS


def measure_round_trip(flow: Flow) -> None:
    """Let ten seconds pass and the round trip be measured with four segments in flight."""
    flow.now_ns += 11 * 10**9
    flow.bbr.sampled(flow.now_ns, RTT_NS, 0, 0)
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
    flow = probing()
    while flow.gain(100) < 1.2:
        flow.round(in_flight=150)
    flow.bbr.resumed(10**9, flow.now_ns + 10**9)
    assert flow.gain(100) == pytest.approx(1.25 * 0.99, rel=0.001)
    flow.bbr.ran_out(0)
    flow.bbr.resumed(10**9, flow.now_ns + 10**9)
    assert flow.gain(100) == pytest.approx(0.99, rel=0.001)


def test_a_pause_does_not_let_the_round_trip_be_measured_before_something_has_arrived() -> None:
    flow = probing()
    flow.bbr.ran_out(0)
    flow.bbr.resumed(20 * 10**9, flow.now_ns + 20 * 10**9)
    flow.bbr.sampled(flow.now_ns + 20 * 10**9, RTT_NS, 0, 0)
    assert acknowledged(flow.bbr, flow.now_ns + 20 * 10**9, 50) > LEAST_SEGMENTS


def test_after_a_timeout_the_window_is_what_arrives_for_a_round_and_then_its_former_size() -> None:
    bbr = Bbr(RTT_NS, "seed")
    bbr.window = 100
    bbr.reduced()
    bbr.timed_out(0, 0)
    bbr.window = 1
    assert acknowledged(bbr, RTT_NS, 0, recovers=True) < 10
    # The window of a second reduction meanwhile is not the one to come back to.
    bbr.reduced()
    assert acknowledged(bbr, 2 * RTT_NS, 1) >= 100


def test_a_window_that_is_not_in_recovery_is_not_widened_to_a_former_one() -> None:
    flow = probing()
    flow.bbr.window = 150
    flow.bbr.reduced()
    flow.bbr.window = 50
    flow.arrive()
    assert flow.bbr.window == 51


def test_losses_narrow_the_window_by_as_many_segments() -> None:
    flow = probing()
    flow.bbr.window = 100
    flow.bbr.control(flow.now_ns, 2, 30, 0, recovers=False)
    assert flow.bbr.window == 100 - 30 + 2
    flow.bbr.control(flow.now_ns, 1, 500, 0, recovers=False)
    assert flow.bbr.window == LEAST_SEGMENTS
    flow.bbr.control(flow.now_ns, 0, 1, 0, recovers=False)
    assert flow.bbr.window == LEAST_SEGMENTS


def test_one_loss_ends_probing_for_more_after_a_round_trip() -> None:
    for lost, gain in ((0, 1.25), (1, 0.75)):
        flow = probing()
        while flow.gain(100) < 1.2:
            flow.round(in_flight=150)
        flow.now_ns += 2 * RTT_NS
        flow.bbr.control(flow.now_ns, 1, lost, 0, recovers=False)
        assert flow.gain(100) == pytest.approx(gain * 0.99, rel=0.001)


def test_after_a_measurement_the_round_trip_is_known_for_ten_seconds() -> None:
    flow = probing()
    measure_round_trip(flow)
    flow.now_ns += 99 * 10**8
    flow.bbr.sampled(flow.now_ns, 2 * RTT_NS, 0, 0)
    assert acknowledged(flow.bbr, flow.now_ns, 50) > LEAST_SEGMENTS


def test_what_arrives_while_the_round_trip_is_measured_does_not_lower_the_rate() -> None:
    flow = probing()
    flow.now_ns += 11 * 10**9
    flow.bbr.sampled(flow.now_ns, RTT_NS, 0, 0)
    for _ in range(15):
        flow.now_ns += RTT_NS // 4
        acknowledged(flow.bbr, flow.now_ns, LEAST_SEGMENTS)
    assert flow.gain(100) >= 0.99 * 0.999
