"""A channel on a shared line: when its bytes leave, when its sender may go on, and what waits behind what."""

from wanbed.runner.simulator.event_queue import EventQueue
from wanbed.runner.simulator.network.shared_capacity import NodePairFlow, SharedCapacity
from wanbed.runner.simulator.network.shared_channel import SharedChannel
from wanbed.testbed.network.flow_model.line import Line
from wanbed.testbed.network.flow_model.window import TcpWindow

MS = 1_000_000
LATENCY_MS = 10
RATE_BPS = 8_000_000
"""A kilobyte a millisecond."""
KB = 1000


class Lines:
    """Two directions of 1 kB a millisecond and 10 ms, each with a channel, and what their transfers have called."""

    def __init__(
        self,
        window_bytes: int | None = None,
        back_window_bytes: int | None = None,
        *,
        sees_opposite: bool = False,
        back_ms: int = LATENCY_MS,
    ) -> None:
        self.events = EventQueue()
        capacity = SharedCapacity(self.events, {0: RATE_BPS, 1: RATE_BPS}, own=[0, 1])
        there, back = NodePairFlow(0, [0]), NodePairFlow(1, [1])
        if sees_opposite:
            there.opposite, back.opposite = back, there
        self.there, self.back = (
            SharedChannel(
                Line(RATE_BPS, LATENCY_MS * MS, headers=False, back_ns=back_ms * MS),
                TcpWindow((LATENCY_MS + back_ms) * MS, window, None),
                flow,
                capacity,
            )
            for window, flow in ((window_bytes, there), (back_window_bytes, back))
        )
        self.left: list[tuple[str, float, float]] = []
        self.accepted: list[tuple[str, float]] = []

    def queue(self, name: str, at_ms: float, size_bytes: int, *, back: bool = False) -> None:
        channel = self.back if back else self.there

        def queued(now_ns: int, _: None) -> None:
            channel.queue(
                now_ns,
                size_bytes,
                lambda first_ns, last_ns: self.left.append((name, first_ns / MS, last_ns / MS)),
                accepted=lambda at_ns: self.accepted.append((name, at_ns / MS)),
            )

        self.events.at(round(at_ms * MS), queued, None)

    def run(self) -> list[tuple[str, float, float]]:
        while self.events.handle_next_instant():
            pass
        return self.left


def test_transfers_leave_one_after_the_other_each_once_it_is_there() -> None:
    lines = Lines()
    lines.queue("a", 1, 5 * KB)
    lines.queue("b", 2, 3 * KB)
    lines.queue("c", 20, KB)
    lines.queue("nothing", 30, 0)
    assert lines.run() == [("a", 1, 6), ("b", 6, 9), ("c", 20, 21), ("nothing", 30, 30)]
    # Without windows the network has taken a transfer when it has left.
    assert lines.accepted == [("a", 6), ("b", 9), ("c", 21), ("nothing", 30)]
    assert [each / MS for each in lines.there.history] == [
        *(1, 6, 5 * KB / MS),
        *(6, 9, 3 * KB / MS),
        *(20, 21, KB / MS),
    ]


def test_a_byte_arrives_a_latency_later_and_a_report_takes_the_way_back() -> None:
    lines = Lines(back_ms=7)
    assert lines.there.arrival_ns(5 * MS) == 15 * MS
    assert lines.there.report_ns(5 * MS) == 12 * MS


def test_the_rest_of_a_transfer_waits_for_a_round_trip_where_a_window_is_narrow() -> None:
    lines = Lines(10 * KB)
    lines.queue("a", 0, 25 * KB)
    # 10 ms on the line, then until 20 ms nothing, and so on.
    assert lines.run() == [("a", 0, 45)]
    assert [
        (begin / MS, end / MS) for begin, end in zip(lines.there.history[::3], lines.there.history[1::3], strict=True)
    ] == [
        (0, 10),
        (20, 30),
        (40, 45),
    ]
    # The last of it was let out when the second ten were acknowledged.
    assert lines.accepted == [("a", 40)]


def test_a_sender_goes_on_when_windows_have_let_all_of_its_bytes_out() -> None:
    lines = Lines(100 * KB)
    lines.queue("a", 0, 60 * KB)
    lines.queue("b", 0, 60 * KB)
    assert lines.run() == [("a", 0, 60), ("b", 60, 120)]
    # Twenty of the window's hundred are on the line, and eighty may wait in line: of what is left at 60 ms all of it.
    assert dict(lines.accepted)["a"] == 0
    assert 20 <= dict(lines.accepted)["b"] <= 60


def test_of_more_than_a_window_the_last_byte_is_let_out_when_all_but_a_window_is_acknowledged() -> None:
    for window_kb, size_kb in ((100, 200), (100, 101), (60, 500)):
        lines = Lines(window_kb * KB)
        lines.queue("a", 0, size_kb * KB)
        assert lines.run() == [("a", 0, size_kb)]
        # What is not in the last window leaves first, and is acknowledged a round trip later, but for a byte under way.
        assert lines.accepted == [("a", size_kb - window_kb + 2 * LATENCY_MS + 0.001)]


def test_what_windows_have_let_out_is_queued_until_the_line_has_carried_it() -> None:
    lines = Lines(30 * KB, sees_opposite=True)
    lines.queue("a", 0, 50 * KB)
    queued = {}
    for at_ms in (1, 10, 15, 25, 49):
        lines.events.at(
            at_ms * MS,
            lambda now_ns, _: queued.update({now_ns // MS: lines.there.queued_bits_ns(now_ns) / 8 / 10**9 / KB}),
            None,
        )
    lines.run()
    # Thirty are let out at once; from 20 ms on acknowledgements let out as much as the line carries.
    assert queued[1] == 29
    assert queued[10] == 20
    assert queued[15] == 15
    assert queued[25] == 10
    assert queued[49] == 1


def test_acknowledgements_wait_for_what_the_other_direction_has_let_out() -> None:
    for sees_opposite, second_ms in ((False, 20), (True, 20 + 490)):
        lines = Lines(10 * KB, 1000 * KB, sees_opposite=sees_opposite)
        lines.queue("back", 0, 500 * KB, back=True)
        lines.queue("there", 0, 20 * KB)
        lines.run()
        # The first bytes arrive at 10 ms, when 490 of 500 kB are still to be carried back.
        assert ("there", 0, second_ms + 10) in lines.left
        assert ("back", 0, 500) in lines.left


def test_an_acknowledgement_waits_for_nothing_when_the_other_direction_is_through() -> None:
    lines = Lines(10 * KB, 1000 * KB, sees_opposite=True)
    lines.queue("back", 0, 5 * KB, back=True)
    lines.queue("there", 0, 20 * KB)
    lines.run()
    assert ("there", 0, 30) in lines.left
