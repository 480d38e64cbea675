"""Stretches of bytes end when the line has carried them, whatever their rate was meanwhile and who shared it."""

from fractions import Fraction
from itertools import pairwise
from math import ceil

import pytest
from hypothesis import given
from hypothesis import strategies as st

from wanbed.flow.event_queue import EventQueue
from wanbed.flow.line import FRAME_BYTES, PAYLOAD_BYTES, Line
from wanbed.flow.shared_capacity import NodePairFlow, SharedCapacity
from wanbed.flow.stream import Sender, Stream

S = 10**9


class Noting(Sender):
    """A sender that notes when its stretches begin and end, and stops sending then."""

    def __init__(
        self,
        events: EventQueue,
        *,
        headers: bool = False,
        keeps_history: bool = True,
        capacity: SharedCapacity | None = None,
        flow: NodePairFlow | None = None,
    ) -> None:
        super().__init__(events, Line(None, 0, headers), keeps_history=keeps_history)
        self.begun: list[tuple[int, int]] = []
        self.ended: list[int] = []
        self._capacity, self._flow = capacity, flow

    def begins(self, now_ns: int, turn: int) -> None:
        self.begun.append((now_ns, turn))

    def ends(self, now_ns: int) -> None:
        self.ended.append(now_ns)
        if self._capacity is not None and self._flow is not None:
            self._capacity.stop(self, self._flow, now_ns)


def run(events: EventQueue, until_ns: int | None = None) -> None:
    while events.next_ns is not None and (until_ns is None or events.next_ns <= until_ns):
        events.handle_next_instant()


def sending(size_bytes: int, rate_bps: int, turn: int = 2, **options: bool) -> tuple[EventQueue, Noting]:
    """Return a sender that begins to send so many bytes at that rate."""
    events = EventQueue()
    sender = Noting(events, **options)
    sender.load(size_bytes, 0, 0)
    sender.send_at(rate_bps, 0, turn)
    return events, sender


def stretches(sender: Sender) -> list[tuple[int, int, int]]:
    numbers = sender.history.tolist()
    return list(zip(numbers[::3], numbers[1::3], numbers[2::3], strict=True))


def test_a_stretch_lasts_as_long_as_its_bits_at_its_rate_rounded_up() -> None:
    for size_bytes, rate_bps, lasts_ns in ((1000, 8000, S), (1, 3 * S, 3), (1, 8 * S, 1), (3, 8 * S, 3)):
        events = EventQueue()
        sender = Noting(events)
        sender.load(size_bytes, 0, 5)
        sender.send_at(rate_bps, 5, 10)
        run(events)
        assert sender.begun == [(5, 9)]
        assert sender.ended == [5 + lasts_ns]
        assert stretches(sender) == [(5, 5 + lasts_ns, size_bytes)]


def test_with_headers_payload_takes_its_part_of_the_rate() -> None:
    events, sender = sending(10 * PAYLOAD_BYTES, FRAME_BYTES * 8, 2, headers=True)
    assert sender.queued_bits_ns(3 * S) == 7 * FRAME_BYTES * 8 * S
    run(events)
    assert sender.ended == [10 * S]


def test_what_a_stretch_carries_on_from_the_one_before_is_sent_too() -> None:
    events = EventQueue()
    sender = Noting(events)
    sender.load(10, -4 * S, 0)
    sender.send_at(8, 0, 2)
    run(events)
    assert sender.ended == [10 * S - S // 2]


def test_each_change_of_rate_ends_a_part_of_the_history() -> None:
    events = EventQueue()
    sender = Noting(events)
    sender.load(1000, 0, 0)
    for at_s, rate_bps in ((0, 800), (2, 0), (3, 1600), (4, 800)):
        run(events, at_s * S)
        sender.send_at(rate_bps, at_s * S, 10 + 2 * at_s)
        assert sender.rate_bps == rate_bps
    assert sender.left_bits_ns(5 * S) == (8000 - 1600 - 1600 - 800) * S
    run(events)
    assert sender.begun == [(0, 9)]
    # 100 bytes a second for two seconds, none, 200 for one, 600 are left.
    assert sender.ended == [10 * S]
    assert stretches(sender) == [(0, 2 * S, 200), (2 * S, 3 * S, 0), (3 * S, 4 * S, 200), (4 * S, 10 * S, 600)]


def test_a_stretch_without_a_rate_has_not_begun() -> None:
    events, sender = sending(1, 0, 4)
    run(events)
    assert (sender.begun, sender.ended) == ([], [])
    sender.send_at(8, S, 6)
    run(events)
    assert (sender.begun, sender.ended) == ([(S, 5)], [2 * S])


def test_a_stretch_that_is_cut_is_what_has_left_of_it_in_whole_bytes() -> None:
    events, sender = sending(10, 8, 2)
    sender.cut(7 * S // 2)
    assert (sender.ended, sender.part_bytes) == ([7 * S // 2], 3)
    # Half of the fourth byte has left already: the next stretch is shorter by that.
    assert sender.left_bits_ns(7 * S // 2) == -4 * S
    assert stretches(sender) == [(0, 7 * S // 2, 3)]
    run(events)
    assert sender.ended == [7 * S // 2]


def test_what_nobody_asks_for_is_not_remembered() -> None:
    events, sender = sending(10, 8, 2, keeps_history=False)
    run(events, S)
    sender.send_at(16, S, 4)
    run(events)
    assert sender.ended == [S + 9 * S // 2]
    assert not sender.history


def streaming(rate_bps: int, sizes: list[int], number: int = 0) -> tuple[EventQueue, Stream, list[Noting]]:
    """Return a stream of that rate, and senders of so many bytes each that have joined it."""
    events = EventQueue()
    stream = Stream(events, number, 1)
    stream.set_rate(rate_bps, 0, 1)
    senders = [Noting(events) for _ in sizes]
    for position, (sender, size_bytes) in enumerate(zip(senders, sizes, strict=True)):
        sender.position = position
        sender.load(size_bytes, 0, 0)
        sender.join(stream, 0, 2 * position + 2)
    stream.arm(0)
    return events, stream, senders


def test_members_of_a_stream_each_have_its_rate_and_end_when_it_has_served_them() -> None:
    events, stream, senders = streaming(80, [50, 20, 30, 20])
    assert (stream.members, senders[0].rate_bps) == (4, 80)
    run(events, 2 * S)
    assert [sender.ended for sender in senders] == [[], [2 * S], [], [2 * S]]
    assert stream.members == 2
    stream.set_rate(40, 2 * S + S // 2, 9)
    stream.arm(2 * S + S // 2)
    run(events)
    # 25 bytes have been served by then, and five a second afterwards.
    assert [sender.ended for sender in senders] == [[15 * S // 2], [2 * S], [7 * S // 2], [2 * S]]
    assert stream.times_ns.tolist() == [0, 0, 5 * S // 2]
    assert stream.rates_bps.tolist() == [0, 80, 40]


def test_the_same_rate_again_is_no_change() -> None:
    stream = Stream(EventQueue(), 0, 1)
    stream.set_rate(80, 0, 1)
    stream.set_rate(80, S, 2)
    assert (stream.changes, stream.since_ns, stream.turn) == (1, 0, 1)
    assert stream.served(2 * S) == 160 * S


def test_a_member_that_leaves_keeps_its_rate_and_what_it_has_been_served() -> None:
    events, stream, (one, other) = streaming(80, [50, 40], number=3)
    for at_s, rate_bps in ((1, 160), (2, 40)):
        run(events, at_s * S)
        stream.set_rate(rate_bps, at_s * S, 5 + at_s)
        stream.arm(at_s * S)
    one.leave()
    assert (one.stream, one.rate_bps, stream.members) == (None, 40, 1)
    # 10 and 20 of its 50 bytes.
    assert one.left_bits_ns(2 * S) == 20 * 8 * S
    assert stretches(one) == [(0, 2 * S, 30)]
    # Of a stretch with several rates: its number, the stream's, the changes that it has seen, and what was noted.
    assert one.varied.tolist() == [0, 3, 1, 3, 50, 0, 50]
    one.send_at(160, 2 * S, 30)
    run(events)
    assert (one.ended, other.ended) == ([3 * S], [4 * S])


def test_a_stretch_of_a_stream_that_is_cut_is_what_has_left_of_it() -> None:
    events, stream, (one, other) = streaming(8, [10, 4])
    run(events, S)
    stream.set_rate(16, S, 5)
    stream.arm(S)
    run(events, 3 * S // 2)
    one.cut(7 * S // 4)
    # A byte by 1 s, another two a second from then on: two and a half.
    assert (one.ended, one.part_bytes, one.left_bits_ns(7 * S // 4)) == ([7 * S // 4], 2, -4 * S)
    assert stretches(one) == [(0, S, 1), (S, 7 * S // 4, 1)]
    assert stream.members == 1
    run(events)
    assert (one.ended, other.ended) == ([7 * S // 4], [5 * S // 2])


def test_what_is_cut_as_it_begins_or_as_it_ends_is_nothing_or_all_of_it() -> None:
    for at_ns, sent_bytes, rows in ((3, 0, []), (3 + 10 * S, 10, [(3, 3 + 10 * S, 10)])):
        sender = Noting(EventQueue())
        sender.load(10, 0, 3)
        sender.send_at(8, 3, 2)
        sender.cut(at_ns)
        assert (sender.ended, sender.part_bytes, sender.left_bits_ns(at_ns)) == ([at_ns], sent_bytes, 0)
        assert stretches(sender) == rows


@pytest.mark.parametrize("is_cut", [False, True])
def test_the_next_stretch_begins_and_ends_as_the_first_did(is_cut: bool) -> None:
    events, sender = sending(10, 8, 4)
    if is_cut:
        sender.cut(2 * S)
    else:
        run(events)
    again_ns = 2 * S if is_cut else 10 * S
    sender.load(20, 0, again_ns)
    assert (sender.rate_bps, sender.left_bits_ns(again_ns + S)) == (0, 20 * 8 * S)
    sender.send_at(8, again_ns, 6)
    # The end that the first stretch would have had, at ten seconds, is not that of the next.
    run(events)
    assert sender.begun == [(0, 3), (again_ns, 5)]
    assert sender.ended == [again_ns, again_ns + 20 * S]
    assert [size_bytes for _, _, size_bytes in stretches(sender)] == [again_ns // S, 20]


def test_a_member_that_leaves_and_joins_again_ends_once_when_it_has_been_served_in_all() -> None:
    events, stream, (one, other) = streaming(8, [4, 12])
    run(events, S)
    one.leave()
    one.send_at(0, S, 7)
    stream.arm(S)
    run(events, 6 * S)
    one.join(stream, 6 * S, 9)
    stream.arm(6 * S)
    assert (stream.members, one.rate_bps) == (2, 8)
    run(events)
    # One of its four bytes had left, and the others wait for five seconds.
    assert (one.ended, other.ended, one.begun) == ([9 * S], [12 * S], [(0, 1)])
    assert stretches(one) == [(0, S, 1), (S, 6 * S, 0), (6 * S, 9 * S, 3)]


def test_a_member_alone_keeps_the_turn_of_the_last_change_of_its_rate() -> None:
    _, stream, (sender,) = streaming(8, [10])
    assert sender.turn() == 2
    sender.position = 6
    stream.set_rate(16, S, 20)
    assert sender.turn() == 26
    sender.leave()
    assert (sender.turn(), sender.rate_bps) == (26, 16)
    sender.send_at(16, S, 40)
    assert sender.turn() == 26
    sender.send_at(8, S, 42)
    assert sender.turn() == 42


CHANGES = st.lists(st.tuples(st.integers(1, 6), st.integers(1, 9), st.integers(0, 5)), max_size=6)
"""After so many thirds of a second a stream serves so many bytes a second, and one of its members leaves it."""


@given(st.lists(st.integers(1, 40), min_size=1, max_size=4), CHANGES, st.booleans())
def test_members_of_a_stream_end_as_each_would_alone_at_the_rates_of_the_stream(
    sizes: list[int], changes: list[tuple[int, int, int]], headers: bool
) -> None:
    events, apart = EventQueue(), EventQueue()
    stream = Stream(events, 0, Noting(events, headers=headers).payload_share)
    stream.set_rate(8, 0, 1)
    members = [Noting(events, headers=headers) for _ in sizes]
    alone = [Noting(apart, headers=headers) for _ in sizes]
    for one, other, size_bytes in zip(members, alone, sizes, strict=True):
        one.load(size_bytes, 0, 0)
        one.join(stream, 0, 2)
        other.load(size_bytes, 0, 0)
        other.send_at(8, 0, 2)
    stream.arm(0)
    now_ns, turn = 0, 2
    for thirds, rate, leaver in changes:
        now_ns, turn = now_ns + thirds * S // 3, turn + 10
        run(events, now_ns)
        run(apart, now_ns)
        for number, (one, other) in enumerate(zip(members, alone, strict=True)):
            assert one.left_bits_ns(now_ns) == other.left_bits_ns(now_ns) or one.ended
            if one.ended:
                continue
            other.send_at(8 * rate, now_ns, turn)
            if number == leaver and one.stream is not None:
                one.leave()
            if one.stream is None:
                one.send_at(8 * rate, now_ns, turn)
        stream.set_rate(8 * rate, now_ns, turn)
        stream.arm(now_ns)
    run(events)
    run(apart)
    assert [one.ended for one in members] == [other.ended for other in alone]
    assert [sum(row[2] for row in stretches(one)) for one in members] == sizes


@given(
    st.integers(8, 10**6),
    st.lists(st.tuples(st.integers(0, 20), st.integers(1, 5000)), min_size=1, max_size=8),
    st.booleans(),
    st.booleans(),
)
def test_senders_that_share_a_line_end_as_a_processor_that_is_shared_equally_would_have_it(
    rate_bps: int, transfers: list[tuple[int, int]], headers: bool, alike: bool
) -> None:
    """As processor sharing: of n that send each gets an n-th part. Times are whole nanoseconds, rates whole bit/s."""
    frame, payload = (FRAME_BYTES, PAYLOAD_BYTES) if headers else (1, 1)
    events = EventQueue()
    capacity = SharedCapacity(events, {len(transfers): rate_bps})
    senders = []
    for number, (start, size_bytes) in enumerate(transfers):
        flow = NodePairFlow(0 if alike else number, [len(transfers)])
        sender = Noting(events, headers=headers, capacity=capacity, flow=flow)
        capacity.expect(flow)
        senders.append(sender)

        def begin(now_ns: int, what: tuple[Noting, NodePairFlow, int]) -> None:
            sender, flow, size_bytes = what
            sender.load(size_bytes, 0, now_ns)
            capacity.begin(sender, flow, now_ns)

        events.at(start * S // 7, begin, (sender, flow, size_bytes))
    run(events)
    left = {number: Fraction(size_bytes * 8 * S * frame, payload) for number, (_, size_bytes) in enumerate(transfers)}
    starts = {number: start * S // 7 for number, (start, _) in enumerate(transfers)}
    ends: dict[int, int] = {}
    now_ns = 0
    while left:
        active = [number for number in left if starts[number] <= now_ns]
        share_bps = max(rate_bps // len(active), 1) if active else 0
        later = [starts[number] for number in left if starts[number] > now_ns]
        next_ns = min(later + [now_ns + ceil(left[number] / share_bps) for number in active])
        for number in active:
            left[number] -= share_bps * (next_ns - now_ns)
            if left[number] <= 0:
                ends[number] = next_ns
                del left[number]
        now_ns = next_ns
    assert [sender.ended for sender in senders] == [[ends[number]] for number in range(len(transfers))]
    for number, (sender, (_, size_bytes)) in enumerate(zip(senders, transfers, strict=True)):
        parts = stretches(sender)
        assert sum(size for _, _, size in parts) == size_bytes
        assert (parts[0][0], parts[-1][1]) == (starts[number], ends[number])
        assert all(one[1] == other[0] for one, other in pairwise(parts))


@pytest.mark.parametrize("bursts", [False, True])
def test_bursts_of_one_node_pair_are_served_one_after_the_other_and_others_together(bursts: bool) -> None:
    events = EventQueue()
    flow, other = NodePairFlow(0, [0, 9]), NodePairFlow(1, [1, 9])
    capacity = SharedCapacity(events, {0: 800, 1: 800, 9: 800}, own=[0, 1])
    senders = [Noting(events, capacity=capacity, flow=each) for each in (flow, flow, other)]
    for sender, each in zip(senders, (flow, flow, other), strict=True):
        capacity.expect(each)
        sender.load(100, 0, 0)
        sender.is_burst = bursts
        capacity.begin(sender, each, 0)
    run(events)
    # Each node pair has half of 100 bytes a second until the other has sent all.
    if bursts:
        assert [sender.ended for sender in senders] == [[2 * S], [3 * S], [2 * S]]
    else:
        assert [sender.ended for sender in senders] == [[3 * S], [3 * S], [2 * S]]
