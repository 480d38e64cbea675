"""The lanes of node pairs: whose packets share what, and what is drawn for them."""

from wanbed.ground.impairments import Impairments
from wanbed.runner.simulator.event_queue import EventQueue
from wanbed.runner.simulator.segments.segment_links import SegmentLinks, Way
from wanbed.testbed.network.flow_model.line import FRAME_BYTES, PAYLOAD_BYTES, Line
from wanbed.testbed.network.tcp_settings import TcpSettings

MS = 1_000_000
RATE_BPS = FRAME_BYTES * 8 * 1000
"""A segment takes a millisecond."""
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
    while events.handle_next_instant():
        pass
    return [left[number] for number in range(len(channels))]


PAIR, TRUNK, PORT = ("node_pair", "", ""), ("trunk", "east", "west"), ("port", "west", "")


def test_a_node_pair_has_a_rate_of_its_own() -> None:
    pairs: list[tuple[str, str, Crossed]] = [("e0", "w0", {PAIR: RATE_BPS}), ("e1", "w1", {PAIR: 2 * RATE_BPS})]
    assert left_ms(*pairs) == [4, 2]


def test_what_nothing_limits_takes_no_time() -> None:
    assert left_ms(("e0", "w0", {})) == [0]


def test_node_pairs_share_trunks_and_ports() -> None:
    for shared in (TRUNK, PORT):
        # The first one's packets are handed over first, as fast as the whole line carries them.
        alone, both = (
            left_ms(("e0", "w0", {shared: RATE_BPS})),
            left_ms(("e0", "w0", {shared: RATE_BPS}), ("e1", "w0", {shared: RATE_BPS})),
        )
        assert alone == [4]
        assert both == [4, 8]


def test_the_narrowest_of_all_that_a_packet_crosses_decides() -> None:
    assert left_ms(("e0", "w0", {PAIR: 4 * RATE_BPS, TRUNK: 2 * RATE_BPS, PORT: RATE_BPS})) == [4]
    assert left_ms(("e0", "w0", {PAIR: RATE_BPS, TRUNK: 2 * RATE_BPS})) == [4]


def test_channels_between_two_hosts_are_one_lane() -> None:
    assert left_ms(("e0", "w0", {PAIR: RATE_BPS}), ("e0", "w0", {PAIR: RATE_BPS})) == [4, 8]


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
