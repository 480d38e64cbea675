from hypothesis import given
from hypothesis import strategies as st

from tests.support.simulator.events import run_all
from wanbed.flow.channel import PrivateChannel
from wanbed.flow.congestion_window import CongestionWindow
from wanbed.flow.event_queue import EventQueue
from wanbed.flow.line import Line
from wanbed.flow.shared_capacity import NodePairFlow, SharedCapacity
from wanbed.flow.shared_channel import SharedChannel
from wanbed.flow.striping import Striping
from wanbed.flow.window import TcpWindow, opened
from wanbed.testbed.network.tcp_settings import TcpSettings
from wanbed.workloads.transport.frame import HEADER_BYTES

LATENCY_NS = 20_000_000


def window(window_bytes: int | None, initial_bytes: int | None) -> TcpWindow:
    rtt_ns = 2 * LATENCY_NS
    congestion = None if initial_bytes is None else CongestionWindow(1, initial_bytes, rtt_ns, None)
    return TcpWindow(rtt_ns, window_bytes, congestion)


def test_transfers_leave_one_after_the_other() -> None:
    channel = PrivateChannel(Line(8_000_000, LATENCY_NS, headers=False), window(None, None))
    assert channel.transmit(0, 1000) == (0, 1_000_000)
    assert channel.transmit(500_000, 2000) == (1_000_000, 3_000_000)
    assert channel.transmit(9_000_000, 1000) == (9_000_000, 10_000_000)


def test_headers_take_their_share_of_the_rate() -> None:
    channel = PrivateChannel(Line(1514 * 8, LATENCY_NS, headers=True), window(None, None))
    assert channel.transmit(0, 1448) == (0, 10**9)


def test_times_are_rounded_up_to_whole_nanoseconds() -> None:
    channel = PrivateChannel(Line(3 * 10**9, LATENCY_NS, headers=False), window(None, None))
    assert channel.transmit(0, 1) == (0, 3)


def test_a_request_overtakes_transfers_and_keeps_connections_from_being_idle() -> None:
    line, known_ns = Line(800_000_000, LATENCY_NS, headers=True), []
    channel = PrivateChannel(line, opened(line, 1, TcpSettings()))
    channel.request(0, HEADER_BYTES, known_ns.append)
    own_ns = line.duration_ns(HEADER_BYTES)
    _, left_ns = channel.transmit(10**9, 2_000_000)
    channel.request(10**9 + 1, HEADER_BYTES, known_ns.append)
    assert known_ns == [own_ns + LATENCY_NS, 10**9 + 1 + LATENCY_NS]
    assert channel.history[2] == HEADER_BYTES
    used, idle = channel.copied(), channel
    # A timeout is 240 ms.
    used.request(left_ns + 15 * 10**7, HEADER_BYTES, known_ns.append)
    begin_ns = left_ns + 3 * 10**8
    took_ns = [each.transmit(begin_ns, 2_000_000)[1] - begin_ns for each in (used, idle)]
    assert took_ns[0] < took_ns[1]


def test_without_headers_a_request_takes_the_latency() -> None:
    channel, known_ns = PrivateChannel(Line(8, LATENCY_NS, headers=False), window(None, None)), []
    channel.request(5, HEADER_BYTES, known_ns.append)
    assert known_ns == [5 + LATENCY_NS]
    assert not channel.history


transfers = st.lists(st.tuples(st.integers(0, 400_000_000), st.integers(1, 5_000_000)), min_size=1, max_size=15)


@given(
    transfers,
    st.integers(10**6, 10**10),
    st.one_of(st.none(), st.integers(20_000, 5_000_000)),
    st.one_of(st.none(), st.just(14_480)),
    st.booleans(),
)
def test_a_shared_channel_that_is_alone_does_what_a_private_one_does(
    transfers: list[tuple[int, int]], rate_bps: int, window_bytes: int | None, initial: int | None, headers: bool
) -> None:
    line = Line(rate_bps, LATENCY_NS, headers=headers)
    private = PrivateChannel(line, window(window_bytes, initial))
    events = EventQueue()
    shared = SharedChannel(
        line, window(window_bytes, initial), NodePairFlow(0, [0]), SharedCapacity(events, {0: rate_bps})
    )
    expected, lines = [], []
    available_ns = 0
    for gap_ns, size_bytes in transfers:
        available_ns += gap_ns
        expected.append(private.transmit(available_ns, size_bytes))
        shared.queue(available_ns, size_bytes, lambda start_ns, end_ns: lines.append((start_ns, end_ns)))
    run_all(events)
    assert lines == expected


def test_bytes_held_back_by_a_narrow_connection_are_accepted_once_they_can_leave() -> None:
    """A chunk of 45 segments over one of 16 new connections, whose windows together would let it out at once."""
    line, striping = Line(10**9, 20_000_000, headers=False), Striping(16, 1, 65_536)
    private = PrivateChannel(line, opened(line, 16, TcpSettings()))
    events = EventQueue()
    shared = SharedChannel(
        line, opened(line, 16, TcpSettings()), NodePairFlow(0, [0]), SharedCapacity(events, {0: 10**9})
    )
    accepted: list[int] = []
    shared.queue(0, 65_536, lambda *_: None, striping, accepted=accepted.append)
    private.queue(0, 65_536, lambda *_: None, striping, accepted=accepted.append)
    run_all(events)
    # 10 and 20 segments, and the rest in the third round.
    assert len(accepted) == 2
    assert min(accepted) > 2 * 40_000_000 - 1_000_000
