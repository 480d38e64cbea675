"""A channel over connections that are followed segment by segment: its chunks, and when its transfers are there."""

import pytest

from tests.support.simulator.events import run_all
from wanbed.ground.impairments import Impairments
from wanbed.runner.simulator.event_queue import EventQueue
from wanbed.runner.simulator.segments.segment_channel import SegmentChannel, SegmentLinks, Way
from wanbed.testbed.network.flow_model.line import FRAME_BYTES, PAYLOAD_BYTES, Line
from wanbed.testbed.network.flow_model.striping import Striping
from wanbed.testbed.network.tcp_settings import TcpSettings

MS = 1_000_000

RATE_BPS = FRAME_BYTES * 8 * 1000
"""A segment takes a millisecond."""


class Sending:
    """A channel from east to west, 20 ms there and 30 ms back, and what its transfers have called: milliseconds."""

    def __init__(
        self, connections: int = 1, *, rate_bps: int | None = RATE_BPS, unsent_bytes: int = 1 << 20, loss: float = 0.0
    ) -> None:
        self.events = EventQueue()
        links = SegmentLinks(self.events, "seed")
        crossed = {} if rate_bps is None else {("node_pair", "east", "west"): rate_bps}
        self.channel: SegmentChannel = links.channel(
            Line(rate_bps, 20 * MS, headers=True, back_ns=30 * MS),
            connections,
            TcpSettings(2**20),
            unsent_bytes=unsent_bytes,
            forth=Way("east", "west", 20 * MS, Impairments(loss=loss), crossed),
            back=Way("west", "east", 30 * MS, Impairments(), {}),
        )
        self.left: list[tuple[str, float, float]] = []
        self.accepted: list[tuple[str, float]] = []

    def queue(self, name: str, at_ms: int, size_bytes: int, striping: Striping | None = None) -> None:
        self.channel.queue(
            at_ms * MS,
            size_bytes,
            lambda first_ns, last_ns: self.left.append((name, first_ns / MS, last_ns / MS)),
            striping,
            accepted=lambda now_ns: self.accepted.append((name, now_ns / MS)),
        )

    def run(self) -> list[tuple[str, float, float]]:
        run_all(self.events)
        return self.left


def test_a_transfer_has_left_a_latency_before_its_last_segment_arrives() -> None:
    sending = Sending()
    sending.queue("a", 5, 3 * PAYLOAD_BYTES)
    assert sending.run() == [("a", 5, 8)]
    assert sending.accepted == [("a", 5)]
    assert sending.channel.arrival_ns(8 * MS) == 28 * MS
    assert sending.channel.report_ns(28 * MS) == 58 * MS


@pytest.mark.parametrize(
    ("transfers", "left"),
    [
        pytest.param(
            [("a", 0, 3 * PAYLOAD_BYTES), ("b", 0, 2 * PAYLOAD_BYTES), ("c", 40, PAYLOAD_BYTES)],
            [("a", 0, 3), ("b", 0, 5), ("c", 40, 41)],
            id="one after the other",
        ),
        pytest.param(
            [("a", 10, PAYLOAD_BYTES), ("b", 0, PAYLOAD_BYTES)],
            [("a", 10, 11), ("b", 10, 12)],
            id="a later one waits for one that is not available yet",
        ),
        pytest.param([("a", 7, 0)], [("a", 7, 7)], id="one of nothing has left when it is available"),
    ],
)
def test_transfers_leave_in_their_order(
    transfers: list[tuple[str, int, int]], left: list[tuple[str, float, float]]
) -> None:
    sending = Sending()
    for transfer in transfers:
        sending.queue(*transfer)
    assert sending.run() == left
    assert sending.accepted[0] == left[0][:2]


def test_a_transfer_is_accepted_when_the_socket_has_taken_its_last_chunk() -> None:
    # A socket has room while less than two segments wait, and ten are sent at once.
    sending = Sending(unsent_bytes=4 * PAYLOAD_BYTES)
    sending.queue("a", 0, 30 * PAYLOAD_BYTES, Striping(1, 10, 3 * PAYLOAD_BYTES))
    ((_, _, left_ms),) = sending.run()
    ((_, accepted_ms),) = sending.accepted
    # The first acknowledgement arrives after 2 ms on the line and a round trip of 50 ms.
    assert 52 <= accepted_ms < left_ms


@pytest.mark.parametrize(
    ("connections", "transfers", "sent_bytes"),
    [
        pytest.param(3, [(1000, Striping(3, 3, 334))], [333, 333, 334], id="chunks differ by a byte at most"),
        pytest.param(
            2,
            [(8 * PAYLOAD_BYTES, Striping(2, 8, PAYLOAD_BYTES))],
            [4 * PAYLOAD_BYTES] * 2,
            id="connections that have room take chunks in turn",
        ),
        pytest.param(
            3,
            [(200, Striping(3, 2, 100)), (20, Striping(3, 2, 10))],
            [110, 100, 10],
            id="the longest unused connection begins the next chunk",
        ),
        pytest.param(4, [(2, Striping(4, 4, 1))], [1, 1, 0, 0], id="no more chunks than bytes"),
    ],
)
def test_chunks_go_over_all_connections(
    connections: int, transfers: list[tuple[int, Striping]], sent_bytes: list[int]
) -> None:
    sending = Sending(connections, rate_bps=None)
    for number, transfer in enumerate(transfers):
        sending.queue(str(number), 100 * number, *transfer)
    assert sending.run() == [(str(number), 100 * number, 100 * number) for number in range(len(transfers))]
    assert [sender.sent for sender in sending.channel._senders] == sent_bytes


def test_one_lost_chunk_holds_up_its_own_transfer_and_the_next_of_its_connection_only() -> None:
    names = [f"t{number}" for number in range(40)]
    sending = Sending(8, rate_bps=None, loss=0.05)
    for number, name in enumerate(names):
        sending.queue(name, number, PAYLOAD_BYTES, Striping(8, 1, PAYLOAD_BYTES))
    took_ms = {name: last_ms - int(name[1:]) for name, _, last_ms in sending.run()}
    assert set(took_ms) == set(names)
    late = [name for name in names if took_ms[name] > 0]
    assert 0 < len(late) < len(names) // 2
    # The next transfer over the same connection is the eighth after it.
    assert all(took_ms[name] >= 50 or f"t{int(name[1:]) - 8}" in late for name in late)


@pytest.mark.parametrize("connections", [1, 4])
def test_the_history_tells_when_the_line_carried_which_bytes(connections: int) -> None:
    sending = Sending(connections)
    size_bytes = 8 * PAYLOAD_BYTES
    sending.queue("a", 0, size_bytes, Striping(connections, 8, PAYLOAD_BYTES))
    sending.queue("b", 300, PAYLOAD_BYTES)
    sending.run()
    assert [each / MS for each in sending.channel.history[:2]] == [0, 8]
    assert sending.channel.history[2] == size_bytes
    assert [each / MS for each in sending.channel.history[3:5]] == [300, 301]
    assert sending.channel.history[5] == PAYLOAD_BYTES


Crossed = dict[tuple[str, str, str], int]


def left_ms(
    *channels: tuple[str, str, Crossed],
    segments: int = 4,
    seed: str = "seed",
    loss: float = 0.0,
    congestion: str = "cubic",
    connections: int = 1,
) -> list[float]:
    """When so many segments of each channel, between two hosts, have left that all begin at once."""
    events = EventQueue()
    links = SegmentLinks(events, seed)
    left: dict[int, float] = {}
    for number, (source, destination, crossed) in enumerate(channels):
        channel = links.channel(
            Line(RATE_BPS, 20 * MS, headers=True),
            connections,
            TcpSettings(2**20, congestion=congestion),
            unsent_bytes=1 << 20,
            forth=Way(source, destination, 20 * MS, Impairments(loss=loss), crossed),
            back=Way(destination, source, 20 * MS, Impairments(loss=loss), {}),
        )

        def has_left(_: int, last_ns: int, number: int = number) -> None:
            left[number] = last_ns / MS

        channel.queue(0, segments * PAYLOAD_BYTES, has_left)
    run_all(events)
    return [left[number] for number in range(len(channels))]


PAIR, TRUNK, PORT = ("node_pair", "", ""), ("trunk", "east", "west"), ("port", "west", "")


E0, E1 = ("e0", "w0"), ("e1", "w1")


@pytest.mark.parametrize(
    ("channels", "left"),
    [
        pytest.param([(*E0, {PAIR: RATE_BPS}), (*E1, {PAIR: 2 * RATE_BPS})], [4, 2], id="a node pair has its own rate"),
        pytest.param([(*E0, {})], [0], id="what nothing limits takes no time"),
        pytest.param([(*E0, {TRUNK: RATE_BPS})], [4], id="a trunk alone"),
        pytest.param([(*E0, {PORT: RATE_BPS})], [4], id="a port alone"),
        # The first one's packets are handed over first, as fast as the whole line carries them.
        pytest.param([(*E0, {TRUNK: RATE_BPS}), ("e1", "w0", {TRUNK: RATE_BPS})], [4, 8], id="a shared trunk"),
        pytest.param([(*E0, {PORT: RATE_BPS}), ("e1", "w0", {PORT: RATE_BPS})], [4, 8], id="a shared port"),
        pytest.param(
            [(*E0, {PAIR: 4 * RATE_BPS, TRUNK: 2 * RATE_BPS, PORT: RATE_BPS})], [4], id="the narrowest: a port"
        ),
        pytest.param([(*E0, {PAIR: RATE_BPS, TRUNK: 2 * RATE_BPS})], [4], id="the narrowest: a node pair"),
        pytest.param([(*E0, {PAIR: RATE_BPS})] * 2, [4, 8], id="channels between two hosts are one lane"),
    ],
)
def test_packets_wait_for_all_that_they_cross(channels: list[tuple[str, str, Crossed]], left: list[float]) -> None:
    assert left_ms(*channels) == left


def test_the_seed_and_the_hosts_decide_what_is_lost() -> None:
    def lost(source: str, seed: str = "seed") -> list[float]:
        return left_ms((source, "w0", {}), segments=800, loss=0.02, seed=seed)

    assert lost("e0") == lost("e0")
    assert len({tuple(each) for each in (lost("e0"), lost("e1"), lost("e0", "other"))}) == 3


def test_each_congestion_control_sends_in_its_own_way() -> None:
    # Reno halves its window at a loss, cubic leaves seven tenths, and BBR does not mind.
    took = {
        congestion: left_ms(("e0", "w0", {}), segments=1000, loss=0.01, congestion=congestion)[0]
        for congestion in ("reno", "cubic", "bbr")
    }
    assert len(set(took.values())) == 3
    assert took["bbr"] < min(took["reno"], took["cubic"])
