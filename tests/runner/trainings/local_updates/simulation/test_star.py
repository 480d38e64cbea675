"""A star on lines of its own takes the time of its formula; a quorum does not wait for the slow."""

from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from wanbed.runner.simulator.event_queue import EventQueue
from wanbed.runner.tcp.channel import PrivateChannel
from wanbed.runner.trainings.local_updates.simulation import PartCut, Star
from wanbed.testbed.network.flow_model.line import Line
from wanbed.testbed.network.flow_model.striping import Striping
from wanbed.testbed.network.flow_model.window import TcpWindow
from wanbed.workloads.transport.frame import HEADER_BYTES
from wanbed.workloads.transport.quorum_rounds import StarPart

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
    assert [part for part in parts if part.replica < 2] == [StarPart(each % 2, each // 2) for each in range(12)]
    assert [(done.number, done.late) for _, done in gathered if done.late] == [(4, 1)]
    # The slow replica is always late, and so it never waits.
    assert played.waits_ns[2] == [0] * 6


def test_a_slow_uplink_holds_up_its_replica_alone() -> None:
    # Its part takes 100 ms to leave. The sum is there before, and its next part waits until the network has taken it.
    played = Played([MS] * 3, [8 * 10**9, 8 * 10**7], MS, sums=4, quorum=2)
    assert [time_ns for time_ns, _ in played.star.gathered] == [3 * MS + 5 * MS * number for number in range(4)]
    assert len(played.ends_ns[2]) == 4
    assert played.ends_ns[2][-1] > 300 * MS


class Failing:
    """A star of three on lines of 8 Gbit/s and 5 ms: a part takes 6 ms there, and the sum as long back."""

    def __init__(self, *, sums: int = 3, rate_bps: int = 8 * 10**9) -> None:
        self.events = EventQueue()
        self.inwards, self.outwards = ([channel(rate_bps, 5 * MS) for _ in range(2)] for _ in range(2))
        self.cut = PartCut.of(SIZE_BYTES, 1, headers=False)
        self.star = Star(self.inwards, self.outwards, [1, 1], self.events, cuts=[self.cut], sums=sums, quorum=None)
        self.has: list[tuple[int, int, float]] = []
        self.begun: list[tuple[float, int]] = []

    def at(self, time_ms: float, do: Callable[[int], None]) -> None:
        self.events.at(round(time_ms * MS), lambda now_ns, _: do(now_ns), None)

    def join(self, time_ms: float, number: int, position: int) -> None:
        def done(_: int, end_ns: int) -> None:
            self.has.append((number, position, end_ns / MS))

        self.at(time_ms, lambda now_ns: self.star.join(number, position, now_ns, done))

    def kill(self, time_ms: float, position: int = 2) -> None:
        """Kill a replica, which is noticed 5 ms later."""
        self.at(time_ms, lambda _: self.star.kill(position))
        self.at(time_ms + 5, lambda now_ns: self.star.lose(position, now_ns))

    def admit(self, time_ms: float, sums: int, position: int = 2) -> None:
        def begin(now_ns: int, position: int) -> None:
            self.begun.append((now_ns / MS, position))

        self.at(time_ms, lambda now_ns: self.star.admit(position, sums, self.cut, now_ns, begin))

    def run(self) -> list[tuple[float, list[int]]]:
        """Return when each sum was complete, and whose parts it has."""
        while self.events.handle_next_instant():
            pass
        return [(time_ns / MS, sorted(part.replica for part in done.parts)) for time_ns, done in self.star.gathered]


def test_a_sum_is_complete_without_a_replica_once_its_end_is_noticed() -> None:
    failing = Failing()
    for position in (0, 1):
        failing.join(0, 0, position)
    failing.kill(50)
    assert failing.run() == [(55, [0, 1])]
    assert sorted(failing.has) == [(0, 0, 55), (0, 1, 61)]
    # Nothing is sent to the one that has ended.
    assert failing.outwards[0].history
    assert not failing.outwards[1].history


@pytest.mark.parametrize(("killed_ms", "gathered"), [(5.5, (10.5, [0, 1])), (6.5, (6, [0, 1, 2]))])
def test_a_part_counts_if_it_has_arrived_before_its_sender_ended(
    killed_ms: float, gathered: tuple[float, list[int]]
) -> None:
    failing = Failing()
    for position in range(3):
        failing.join(0, 0, position)
    failing.kill(killed_ms)
    assert failing.run() == [gathered]
    # The one that has ended never has the sum.
    assert {position for _, position, _ in failing.has} == {0, 1}


def test_the_next_sum_waits_for_those_that_are_left() -> None:
    failing = Failing()
    for position in range(3):
        failing.join(0, 0, position)
    failing.kill(20)
    for position in (0, 1):
        failing.join(30, 1, position)
    assert failing.run() == [(6, [0, 1, 2]), (36, [0, 1])]


def test_a_replica_that_comes_back_begins_when_it_has_what_it_begins_with_and_counts_from_then_on() -> None:
    failing = Failing()
    failing.kill(1)
    for position in (0, 1):
        failing.join(0, 0, position)
    failing.admit(20, sums=1)
    for position in range(3):
        failing.join(40, 1, position)
    assert failing.run() == [(6, [0, 1]), (46, [0, 1, 2])]
    assert failing.begun == [(26, 2)]
    assert (1, 2, 52) in failing.has


def test_what_it_begins_with_takes_its_time_on_the_line() -> None:
    failing = Failing(rate_bps=2 * 10**9)
    failing.kill(1)
    for position in (0, 1):
        failing.join(0, 0, position)
    failing.admit(20, sums=1)
    failing.run()
    assert failing.begun == [(20 + 4 + 5, 2)]


def test_it_gets_the_sums_that_are_not_in_what_it_begins_with() -> None:
    failing = Failing()
    failing.kill(1)
    for position in (0, 1):
        failing.join(0, 0, position)
    failing.admit(20, sums=0)
    # What it begins with arrives at 26 ms, and the sum right behind it.
    failing.join(26, 0, 2)
    failing.run()
    assert failing.begun == [(26, 2)]
    assert (0, 2, 27) in failing.has


def test_a_killed_replicas_network_is_free_for_the_one_that_comes_back() -> None:
    failing = Failing(sums=2)
    failing.join(0, 0, 2)
    failing.kill(0.5)
    for position in (0, 1):
        failing.join(0, 0, position)
    failing.admit(10, sums=1)
    for position in range(3):
        failing.join(20, 1, position)
    assert failing.run()[1] == (26, [0, 1, 2])


def test_a_ways_latency_is_that_of_its_line() -> None:
    assert [Failing().star.latency_ns(position) for position in (1, 2)] == [5 * MS, 5 * MS]
    assert (
        Star(
            [channel(10**9, MS), channel(10**9, 2 * MS)],
            [channel(10**9, MS)] * 2,
            [3, 2],
            EventQueue(),
            cuts=[PartCut.of(8, 1, headers=False)],
            sums=1,
            quorum=None,
        ).latency_ns(2)
        == 2 * MS
    )


def test_each_chunk_of_a_part_has_a_header_and_goes_over_one_of_its_connections() -> None:
    bare, framed = (PartCut.of(10_000_001, 4, headers=headers) for headers in (False, True))
    assert bare.framed_bytes == 10_000_001
    assert framed.framed_bytes == 10_000_001 + framed.chunks * HEADER_BYTES
    assert (framed.chunks - 1) * framed.largest_bytes < 10_000_001 <= framed.chunks * framed.largest_bytes
    assert framed.striping(1) is None
    assert framed.striping(3) == Striping(3, framed.chunks, framed.largest_bytes)
