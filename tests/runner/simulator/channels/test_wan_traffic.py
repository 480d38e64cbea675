"""Traffic is counted exactly where the products fit in 64 bits, and never exceeds what was sent."""

from array import array
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.support.simulator.events import run_all
from tests.support.simulator.simulation_of import simulation_of
from wanbed.flow.event_queue import EventQueue
from wanbed.flow.line import FRAME_BYTES, PAYLOAD_BYTES, Line
from wanbed.flow.stream import Sender, Stream
from wanbed.runner.simulator.channels.wan_traffic import ChannelTraffic, History, ServedStreams, part_sent

DAY_NS = 86_400 * 10**9


@given(st.integers(1, 2**42), st.integers(1, 100 * 365 * DAY_NS), st.lists(st.floats(0, 1), min_size=1, max_size=9))
def test_a_part_of_a_stretch_grows_with_time_to_the_whole(size: int, whole_ns: int, shares: list[float]) -> None:
    moved_ns = np.array([0, *sorted(int(share * whole_ns) for share in shares), whole_ns], np.int64)
    alike = np.ones(len(moved_ns), np.int64)
    sent = part_sent(size * alike, moved_ns, whole_ns * alike)
    assert (sent[0], sent[-1]) == (0, size)
    assert (np.diff(sent) >= 0).all()
    exact = [size * moved // whole_ns for moved in moved_ns.tolist()]
    assert sent.tolist() == pytest.approx(exact, rel=1e-9, abs=1)


def test_node_pairs_are_told_in_the_order_of_their_senders() -> None:
    names = ["west", "middle", "east"]
    document = {
        "topology": {
            "datacenters": [{"name": name, "hosts": 6} for name in names],
            "wan": {"latency": "1ms", "rate": "1Gbit"},
        },
        "compute": {"forward": "1ms", "activation": "1KB", "gradient": "1KB"},
        "training": {"stages": 3, "pipelines": 6, "microbatches": 1, "iterations": 1, "warmup": 0},
        "engine": "simulate",
        "variants": [{"name": "any", "schedule": "gpipe", "placement": names}],
    }
    simulation = simulation_of(document, 1, symmetry=False)
    ways = [("west", "middle"), ("middle", "west"), ("middle", "east"), ("east", "middle")]
    assert [(traffic.source, traffic.destination) for traffic in simulation.traffic] == [
        (f"{one}-{pipeline}", f"{other}-{pipeline}") for pipeline in range(6) for one, other in ways
    ]


def test_channels_of_a_node_pair_are_summed_until_the_last_byte_of_any() -> None:
    histories = [History(array("q", rows)) for rows in ([0, 10, 100], [5, 25, 40, 30, 40, 10])]
    traffic = ChannelTraffic("east-0", "west-0", histories, Line(None, 0, headers=False))
    assert traffic.last_ns == 40
    # Half of the first by 5, all of it and a quarter of the next 40 by 10, and so on.
    times_ns = np.array([0, 5, 10, 15, 25, 30, 35, 40, 99])
    assert traffic.sent_by(times_ns).tolist() == [0, 50, 110, 120, 140, 140, 145, 150, 150]
    renamed = traffic.renamed("a", "b")
    assert (renamed.source, renamed.destination, renamed.last_ns) == ("a", "b", 40)
    assert ChannelTraffic("east-0", "west-0", [], Line(None, 0, headers=False)).last_ns == 0


def test_a_channel_that_sent_nothing_adds_nothing_to_others() -> None:
    histories = [History(array("q", rows)) for rows in ([0, 10, 100], [])]
    traffic = ChannelTraffic("a", "b", histories, Line(None, 0, headers=False))
    assert traffic.counts()[1].tolist() == [0, 100]
    assert traffic.sent_by(np.array([5, 20])).tolist() == [50, 100]


def test_connections_that_are_kept_warm_and_never_pause_send_nothing_more() -> None:
    document = {
        "topology": {
            "datacenters": [{"name": "east", "hosts": 1}, {"name": "west", "hosts": 1}],
            "wan": {"latency": "1ms", "rate": "1Gbit"},
        },
        "compute": {"forward": "1ms", "activation": "1KB"},
        "training": {"stages": 2, "microbatches": 2, "iterations": 1, "warmup": 0},
        "engine": "simulate",
        "variants": [{"name": "any", "schedule": "gpipe", "transport": {"keep_warm": True}}],
    }
    for traffic in simulation_of(document, 1).traffic:
        assert 2 * 1000 < traffic.wire_bytes[-1] < 3 * 1000


def test_a_single_channel_has_sent_what_its_stretches_say_at_any_time() -> None:
    traffic = ChannelTraffic("a", "b", [History(array("q", [0, 20, 100, 30, 40, 50]))], Line(None, 0, headers=False))
    expected = {0: 0, 5: 25, 15: 75, 20: 100, 25: 100, 30: 100, 35: 125, 40: 150, 99: 150}
    times_ns = list(expected)
    assert traffic.sent_by(np.array(times_ns)).tolist() == list(expected.values())
    # Whether it is asked for alone, in which order, or twice.
    assert [traffic.sent_by(np.array([each])).tolist() for each in times_ns] == [[each] for each in expected.values()]
    assert traffic.sent_by(np.array([35, 5, 35])).tolist() == [125, 25, 125]
    assert traffic.counts()[0].tolist() == [0, 20, 30, 40]
    assert traffic.counts()[1].tolist() == [0, 100, 100, 150]


def test_several_channels_asked_for_one_time_are_interpolated_each() -> None:
    histories = [History(array("q", rows)) for rows in ([0, 10, 100], [4, 12, 80])]
    traffic = ChannelTraffic("a", "b", histories, Line(None, 0, headers=False))
    expected = {2: 20, 4: 40, 5: 60, 11: 170, 12: 180, 13: 180}
    assert [traffic.sent_by(np.array([each])).tolist() for each in expected] == [[each] for each in expected.values()]


def test_headers_are_counted_of_all_that_a_node_pair_has_sent_together() -> None:
    # 724 bytes are half of a frame: that of both channels together has 1514 bytes on the wire.
    histories = [History(array("q", rows)) for rows in ([0, 10, 724], [0, 10, 724])]
    assert ChannelTraffic("a", "b", histories, Line(None, 0, headers=True)).counts()[1].tolist() == [0, 1514]


def test_parts_are_exact_up_to_the_largest_product_and_do_not_overflow_beyond() -> None:
    # 7 divides 2^63 - 1: but for one part in 10^18 all is sent, which a double would round up to all.
    whole_ns = (2**63 - 1) // 7
    assert part_sent(np.array([7]), np.array([whole_ns - 1]), np.array([whole_ns])).tolist() == [6]
    assert part_sent(np.array([8]), np.array([2**60]), np.array([2**60])).tolist() == [8]
    # The largest size and the longest stretch count, also of different stretches.
    sizes, moved_ns, wholes_ns = np.array([1, 2**40, 2**40]), np.array([0, 2**39, 2**40]), np.array([1, 2**40, 2**40])
    assert part_sent(sizes, moved_ns, wholes_ns).tolist() == [0, 2**39, 2**40]
    assert part_sent(np.array([2**40 + 1]), np.array([2**39]), np.array([2**40])).tolist() == [2**39]
    none = np.zeros(0, np.int64)
    assert part_sent(none, none, none).tolist() == []


def full_trunks(gpus_per_host: int, **transport: Any) -> dict[str, Any]:
    """Twelve pipelines over trunks that carry three node pairs at once."""
    return {
        "topology": {
            "datacenters": [{"name": name, "hosts": 12, "gpus_per_host": gpus_per_host} for name in ("east", "west")],
            "intra": {"latency": "10us", "rate": "10Gbit"},
            "wan": {"latency": "10ms", "rate": "3Gbit", "node_pair_rate": "1Gbit"},
        },
        "compute": {"forward": "7ms", "backward": "13ms", "activation": "1300KiB", "gradient": "10MiB"},
        "training": {
            "stages": 2 * gpus_per_host,
            "pipelines": 12,
            "microbatches": 6,
            "iterations": 1,
            "warmup": 0,
        },
        "engine": "simulate",
        "variants": [{"name": "any", "schedule": "1f1b", "transport": {"connections": 2, **transport}}],
    }


@pytest.mark.parametrize("gpus_per_host", [1, 2])
@settings(max_examples=25)
@given(st.data())
def test_what_is_asked_for_is_what_all_changes_say(gpus_per_host: int, data: st.DataObject) -> None:
    pair = data.draw(st.sampled_from(TRAFFIC[gpus_per_host]))
    asked_ns = np.array(data.draw(st.lists(st.integers(0, pair.last_ns + 5), min_size=1, max_size=4)))
    assert pair.sent_by(asked_ns).tolist() == np.interp(asked_ns, pair.times_ns, pair.wire_bytes, left=0).tolist()


def _traffic(gpus_per_host: int) -> tuple[Any, ...]:
    return simulation_of(full_trunks(gpus_per_host), 1, symmetry=False).traffic


TRAFFIC = {gpus_per_host: _traffic(gpus_per_host) for gpus_per_host in (1, 2)}


@given(
    st.integers(1, 3000),
    st.lists(st.tuples(st.integers(1, 9), st.integers(1, 40)), min_size=1, max_size=8),
    st.booleans(),
)
def test_whole_bytes_have_left_by_each_change_of_a_streams_rate(
    size_bytes: int, changes: list[tuple[int, int]], headers: bool
) -> None:
    frame, payload = (FRAME_BYTES, PAYLOAD_BYTES) if headers else (1, 1)
    events = EventQueue()
    sender = Sender(events, Line(None, 0, headers))
    stream = Stream(events, 0, sender.payload_share)
    now_ns, carried_bits_ns = 10, 0
    stream.set_rate(8, 5, 1)
    sender.load(size_bytes, 0, now_ns)
    sender.join(stream, now_ns, 2)
    # By each change, in bits x 10^9, and the whole bytes of payload that these are.
    expected, rate_bps = [(now_ns, 0)], 8
    for gap_ds, rate in changes:
        carried_bits_ns += rate_bps * gap_ds * 10**8
        now_ns, rate_bps = now_ns + gap_ds * 10**8, 8 * rate if rate_bps != 8 * rate else 8 * rate + 1
        gone = carried_bits_ns * payload // (8 * 10**9 * frame)
        if gone >= size_bytes:
            break
        stream.set_rate(rate_bps, now_ns, 2)
        expected.append((now_ns, gone))
    stream.arm(now_ns)
    run_all(events)
    history = History(
        sender.history, sender.varied, ServedStreams([stream]), sender.bits_ns_per_byte, sender.payload_share
    )
    assert not sender.stream
    whole = history.whole()
    assert [(int(begin_ns), int(whole[:number, 2].sum())) for number, (begin_ns, _, _) in enumerate(whole)] == expected
    assert int(whole[:, 2].sum()) == size_bytes
    for at_ns, gone in expected[1:]:
        around = history.around(np.array([at_ns]))
        assert int(around[around[:, 1] <= at_ns, 2].sum()) == gone
