"""A star on lines of its own takes the time of its formula; a quorum does not wait for the slow."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from runner.simulator.event_queue import EventQueue
from runner.simulator.star.star import PartCut, Star
from runner.tcp.channel import PrivateChannel
from testbed.network.flow_model.line import Line
from testbed.network.flow_model.window import TcpWindow
from workloads.transport.star.quorum_rounds import Part

SIZE_BYTES = 1_000_000
MS = 10**6


def channel(rate_bps: int, latency_ns: int) -> PrivateChannel:
    return PrivateChannel(Line(rate_bps, latency_ns, headers=False), TcpWindow(2 * latency_ns, None, None))


class Played:
    """A star whose replicas are ready for each sum so long after they have the one before."""

    def __init__(
        self, periods_ns: list[int], rates_bps: list[int], latency_ns: int, *, sums: int, quorum: int | None
    ) -> None:
        self.events = EventQueue()
        self.periods_ns, self.sums = periods_ns, sums
        ways = [[channel(rate_bps, latency_ns) for rate_bps in rates_bps] for _ in range(2)]
        cut = PartCut.of(SIZE_BYTES, 1, headers=False)
        connections = [1] * len(rates_bps)
        self.star = Star(*ways, connections, self.events, cuts=[cut], sums=sums, quorum=quorum)
        self.ends_ns: list[list[int]] = [[] for _ in periods_ns]
        self.waits_ns: list[list[int]] = [[] for _ in periods_ns]
        for position, period_ns in enumerate(periods_ns):
            self.events.at(period_ns, self._join, (position, 0))
        while self.events.handle_next_instant():
            pass

    def _join(self, now_ns: int, what: tuple[int, int]) -> None:
        position, number = what

        def done(ready_ns: int, end_ns: int) -> None:
            self.ends_ns[position].append(end_ns)
            self.waits_ns[position].append(end_ns - ready_ns)
            if number + 1 < self.sums:
                self.events.at(end_ns + self.periods_ns[position], self._join, (position, number + 1))

        self.star.join(number, position, now_ns, done)


@given(st.integers(2, 6), st.integers(10**7, 10**10), st.integers(0, 10**8), st.integers(1, 4))
def test_a_sum_of_all_takes_the_way_there_and_back(replicas: int, rate_bps: int, latency_ns: int, sums: int) -> None:
    played = Played([5 * MS] * replicas, [rate_bps] * (replicas - 1), latency_ns, sums=sums, quorum=None)
    one_way_ns = -(-SIZE_BYTES * 8 * 10**9 // rate_bps) + latency_ns
    for waits_ns in played.waits_ns[1:]:
        assert waits_ns == pytest.approx([2 * one_way_ns] * sums, abs=3)
    assert played.waits_ns[0][0] == pytest.approx(one_way_ns, abs=2)


def test_without_a_quorum_all_wait_for_the_slowest() -> None:
    played = Played([10 * MS, 10 * MS, 90 * MS], [8 * 10**9] * 2, 5 * MS, sums=3, quorum=None)
    assert all(done.late == 0 and len(done.parts) == 3 for _, done in played.star.gathered)
    assert played.star.gathered[0][0] == 96 * MS


def test_a_quorum_waits_for_no_other_and_late_parts_count_in_the_next_sum() -> None:
    played = Played([10 * MS, 10 * MS, 90 * MS], [8 * 10**9] * 2, 5 * MS, sums=6, quorum=2)
    gathered = played.star.gathered
    # 10 ms of computing, 1 ms and 5 ms to the one that gathers, and the same way back.
    assert [time_ns for time_ns, _ in gathered] == [16 * MS + 22 * MS * number for number in range(6)]
    parts = [part for _, done in gathered for part in done.parts]
    assert [part for part in parts if part.replica < 2] == [Part(each % 2, each // 2) for each in range(12)]
    assert [(done.number, done.late) for _, done in gathered if done.late] == [(4, 1)]
    # The slow replica is always late, and so it never waits.
    assert played.waits_ns[2] == [0] * 6


def test_a_slow_uplink_holds_up_its_replica_alone() -> None:
    # Its part takes 100 ms to leave. The sum is there before, and its next part waits until the network has taken it.
    played = Played([MS] * 3, [8 * 10**9, 8 * 10**7], MS, sums=4, quorum=2)
    assert [time_ns for time_ns, _ in played.star.gathered] == [3 * MS + 5 * MS * number for number in range(4)]
    assert len(played.ends_ns[2]) == 4
    assert played.ends_ns[2][-1] > 300 * MS
