"""Traffic is counted exactly where the products fit in 64 bits, and never exceeds what was sent."""

from array import array

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.runner.simulator.variants import sweep_point
from wanbed.runner.simulator.network.history import History
from wanbed.runner.simulator.network.wan_traffic import ChannelTraffic, part_sent
from wanbed.runner.simulator.variant_simulation import simulate_variant
from wanbed.testbed.network.flow_model.line import Line

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
    point = sweep_point(document)
    simulation = simulate_variant(point.topology, point.variants[0], 1, symmetry=False)
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
    odd = np.array([2**40 + 1])
    assert part_sent(odd, np.array([2**39]), np.array([2**40])).tolist() == [2**39]
    none = np.zeros(0, np.int64)
    assert part_sent(none, none, none).tolist() == []
