"""A channel over connections that are followed packet by packet: its chunks, and when its transfers are there."""

import pytest

from tests.support.simulator.events import run_all
from wanbed.flow.channel import PrivateChannel
from wanbed.flow.event_queue import EventQueue
from wanbed.flow.line import FRAME_BYTES, PAYLOAD_BYTES, Line
from wanbed.flow.packets.way import Gateways, Way
from wanbed.flow.striping import Striping
from wanbed.flow.window import TcpWindow
from wanbed.ground.impairments import Impairments
from wanbed.runner.simulator.channels.packet_channel import PacketChannel, PacketLinks, greeting_rtts_ns
from wanbed.runner.simulator.variant_simulation import share_striping
from wanbed.testbed.network.gateway_layout import plan_gateways
from wanbed.testbed.network.gateway_plan import NetemPlan
from wanbed.testbed.network.shared_rate import Timers
from wanbed.testbed.network.tcp_settings import TcpSettings
from wanbed.testbed.network.topology import resolve_topology
from wanbed.testbed.network.topology_spec import TopologySpec
from wanbed.workloads.transport.chunk_queues import ChunkQueue, QueuedChunk
from wanbed.workloads.transport.frame import HEADER_BYTES, Cutting, FrameHeader, FrameKind

MS = 1_000_000

RATE_BPS = FRAME_BYTES * 8 * 1000
"""A segment takes a millisecond."""


def links(
    events: EventQueue,
    *,
    seed: str = "seed",
    back_ms: int = 30,
    loss: float = 0.0,
    intra: str = "unlimited",
    mtu_bytes: int = 1500,
    **there: str,
) -> PacketLinks:
    """Return the links between two hosts in the east and two in the west, 20 ms there; ``there`` are rates."""
    document = {
        "datacenters": [{"name": name, "hosts": 2} for name in ("east", "west")],
        "intra": {"latency": "0ms", "rate": intra},
        "mtu": f"{mtu_bytes}B",
        "wan": {"latency": "20ms"},
        "links": [
            {"from": "east", "to": "west", "loss": f"{100 * loss}%", **there},
            {"from": "west", "to": "east", "latency": f"{back_ms}ms"},
        ],
    }
    topology = resolve_topology(TopologySpec.model_validate(document))
    return PacketLinks(Gateways(plan_gateways(topology, 0, Timers.VIRTUAL), events, seed), events, seed)


class Sending:
    """A channel from east to west, 20 ms there and 30 ms back, and what its transfers have called: milliseconds."""

    def __init__(
        self, connections: int = 1, *, rate_bps: int | None = RATE_BPS, unsent_bytes: int = 1 << 20, loss: float = 0.0
    ) -> None:
        self.events = EventQueue()
        there = {} if rate_bps is None else {"node_pair_rate": f"{rate_bps}bit"}
        self.channel: PacketChannel = links(self.events, loss=loss, **there).channel(
            Line(rate_bps, 20 * MS, headers=True, back_ns=30 * MS),
            ("east-0", "west-0"),
            connections,
            TcpSettings(2**20),
            unsent_bytes=unsent_bytes,
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


@pytest.mark.parametrize(("mtu_bytes", "rounds"), [(9001, 0), (1500, 2)])
def test_a_first_window_has_ten_segments_of_the_mtu(mtu_bytes: int, rounds: int) -> None:
    events = EventQueue()
    line = Line(10**9, 20 * MS, headers=True, mtu_bytes=mtu_bytes)
    made = links(events, back_ms=20, mtu_bytes=mtu_bytes, node_pair_rate="1Gbit")
    channel = made.channel(line, ("east-0", "west-0"), 1, TcpSettings(2**20), unsent_bytes=1 << 20)
    left: list[float] = []
    # A window of ten segments of 8949 bytes holds them, of which hosts take 64 KiB at first; of 1448, the third does.
    channel.queue(0, 7 * 8949, lambda _, last_ns: left.append(last_ns / MS))
    run_all(events)
    assert left == [pytest.approx(40 * rounds + line.duration_ns(7 * 8949) / MS, abs=1)]


@pytest.mark.parametrize(("asked_ms", "known_ms"), [(0, 20.07), (10, 79.07)])
def test_a_request_overtakes_the_chunks_that_have_not_begun(asked_ms: int, known_ms: float) -> None:
    sending, known = Sending(unsent_bytes=1), []

    def ask(now_ns: int, _: None) -> None:
        sending.channel.request(now_ns, HEADER_BYTES, lambda at_ns: known.append(at_ns / MS))

    sending.queue("a", 5, 90 * PAYLOAD_BYTES, Striping(1, 30, 3 * PAYLOAD_BYTES))
    sending.events.at(asked_ms * MS, ask, None)
    ((_, _, left_ms),) = sending.run()
    # The second one waits for a chunk that has begun, of which the first window has let out one segment of three.
    assert known == [pytest.approx(known_ms, abs=0.01)]
    assert left_ms > 95


def test_a_request_does_not_count_as_use_of_a_connection() -> None:
    sending = Sending(2, rate_bps=None)
    sending.queue("a", 0, 100)
    sending.events.at(10 * MS, lambda now_ns, _: sending.channel.request(now_ns, HEADER_BYTES, lambda _: None), None)
    sending.queue("b", 200, 100)
    sending.run()
    # The second connection has not carried a chunk before, and takes both.
    assert [sender.sent for sender in sending.channel._senders] == [100, HEADER_BYTES + 100]


@pytest.mark.parametrize(("connections", "begun_ms"), [(1, 0), (2, 52)])
def test_a_connection_alone_takes_a_few_chunks_beyond_which_it_is_not_writable(
    connections: int, begun_ms: float
) -> None:
    # Ten segments are sent at once. A socket is writable while less than two wait, but takes more until four do.
    sending = Sending(connections, unsent_bytes=4 * PAYLOAD_BYTES)
    for number in range(connections + 1):
        sending.queue(str(number), 0, 13 * PAYLOAD_BYTES)
    begun = {name: first_ms for name, first_ms, _ in sending.run()}
    assert begun[str(connections)] == pytest.approx(begun_ms, abs=0.1)


class Waits:
    """The source of chunks that remembers what has become of them."""

    def __init__(self) -> None:
        self.count = {"begun": 0, "accepted": 0}

    def begun(self) -> None:
        self.count["begun"] += 1

    def accepted(self) -> None:
        self.count["accepted"] += 1


def test_chunks_of_served_queues_go_in_order_of_precedence_and_before_transfers() -> None:
    sending, source = Sending(unsent_bytes=1), Waits()
    order: list[tuple[str, float]] = []
    queues = {name: ChunkQueue() for name in ("later", "sooner")}
    for precedence, name in ((1, "later"), (0, "sooner")):

        def arrived(_begun_ns: int, at_ns: int, chunk: QueuedChunk, name: str = name) -> None:
            assert chunk.header.length == PAYLOAD_BYTES
            order.append((name, at_ns))

        sending.channel.serve(queues[name], precedence, arrived)
    # The first transfer fills the window, so that all else waits for a round trip.
    sending.queue("before", 0, 30 * PAYLOAD_BYTES)
    sending.queue("after", 0, PAYLOAD_BYTES)

    def add(now_ns: int, _: None) -> None:
        for queue in queues.values():
            header = FrameHeader(FrameKind.ACTIVATION, 0, 0, 0, PAYLOAD_BYTES, 0, PAYLOAD_BYTES)
            queue.add(QueuedChunk(header, memoryview(b""), source))
            sending.channel.touch(now_ns)

    sending.events.at(10 * MS, add, None)
    left = sending.run()
    assert [name for name, _ in order] == ["sooner", "later"]
    assert [name for name, *_ in left] == ["before", "after"]
    assert order[-1][1] / MS - 20 < left[-1][2]
    assert source.count == {"begun": 2, "accepted": 2}


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


def left_ms(
    *hosts: tuple[str, str],
    segments: int = 4,
    seed: str = "seed",
    loss: float = 0.0,
    congestion: str = "cubic",
    **rates: str,
) -> list[float]:
    """When so many segments of each channel, between two hosts, have left that all begin at once."""
    events = EventQueue()
    made = links(events, seed=seed, back_ms=20, loss=loss, **rates)
    left: dict[int, float] = {}
    for number, ends in enumerate(hosts):
        channel = made.channel(
            Line(RATE_BPS, 20 * MS, headers=True),
            ends,
            1,
            TcpSettings(2**20, congestion=congestion),
            unsent_bytes=1 << 20,
        )

        def has_left(_: int, last_ns: int, number: int = number) -> None:
            left[number] = last_ns / MS

        channel.queue(0, segments * PAYLOAD_BYTES, has_left)
    run_all(events)
    return [left[number] for number in range(len(hosts))]


E0, E1, TO_ONE = ("east-0", "west-0"), ("east-1", "west-1"), ("east-1", "west-0")

RATE = f"{RATE_BPS}bit"


@pytest.mark.parametrize(
    ("hosts", "rates", "left"),
    [
        pytest.param([E0, E1], {"node_pair_rate": RATE}, [4, 4], id="node pairs each have their rate"),
        pytest.param([E0], {}, [0], id="what nothing limits takes no time"),
        pytest.param([E0], {"rate": RATE}, [4], id="a trunk alone"),
        pytest.param([E0, E1], {"rate": RATE}, [6, 8], id="a shared trunk"),
        pytest.param([E0, TO_ONE], {"intra": RATE}, [6, 8], id="a shared port"),
        pytest.param([E0] * 2, {"node_pair_rate": RATE}, [6, 8], id="channels between two hosts share its line"),
    ],
)
def test_packets_wait_for_all_that_they_cross(
    hosts: list[tuple[str, str]], rates: dict[str, str], left: list[float]
) -> None:
    # A bucket holds two frames, which go at once.
    assert left_ms(*hosts, **rates) == pytest.approx(left, abs=2)


def test_the_seed_and_the_hosts_decide_what_is_lost() -> None:
    def lost(source: str, seed: str = "seed") -> list[float]:
        return left_ms((source, "west-0"), segments=800, loss=0.02, seed=seed, rate=RATE)

    assert lost("east-0") == lost("east-0")
    assert len({tuple(each) for each in (lost("east-0"), lost("east-1"), lost("east-0", "other"))}) == 3


def test_each_congestion_control_sends_in_its_own_way() -> None:
    # Reno halves its window at a loss, cubic leaves seven tenths, and BBR does not mind.
    took = {
        congestion: left_ms(E0, segments=1000, loss=0.01, congestion=congestion, rate=RATE)[0]
        for congestion in ("reno", "cubic", "bbr")
    }
    assert len(set(took.values())) == 3
    assert took["bbr"] < min(took["reno"], took["cubic"])


def test_over_a_single_connection_chunks_are_handed_over_one_by_one_where_there_are_buffers() -> None:
    cutting = Cutting(256 * 1024, 1, 1)
    assert share_striping(cutting, 0, 1, Sending().channel) == Striping(1, 16, 16 * 1024)
    alone = PrivateChannel(Line(RATE_BPS, 20 * MS, headers=True), TcpWindow(40 * MS, None, None))
    assert share_striping(cutting, 0, 1, alone) is None
    assert share_striping(cutting, 0, 3, alone) == Striping(3, 16, 16 * 1024)


def test_connections_that_are_made_at_once_measure_longer_round_trips_one_after_the_other() -> None:
    # At 1 byte a microsecond: 74 bytes ask for a connection, and 166 acknowledge and greet it.
    way = Way.over(EventQueue(), NetemPlan(0, 1000, 1_000_000, Impairments()), "a")
    of_the_caller = [greeting_rtts_ns(MS, way, before, calls=True) for before in (0, 3)]
    assert of_the_caller == [(MS, MS), (MS + 3 * 74_000, MS + 3 * 92_000)]
    of_the_called = [greeting_rtts_ns(MS, way, before, calls=False) for before in (0, 3)]
    assert of_the_called == [(MS, MS), (MS + 3 * 92_000, MS)]
