from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from wanbed.flow.event_queue import EventQueue
from wanbed.flow.line import Line
from wanbed.flow.shared_capacity import NodePairFlow, SharedCapacity
from wanbed.ground.strict_model import parse_model
from wanbed.testbed.network.topology import resolve_topology
from wanbed.testbed.network.topology_spec import TopologySpec
from wanbed.testbed.relay.lanes import OwnLane, RelayLane, SharedLane, lanes

LINE = Line(100_000_000, 10_000_000, headers=True)
MS = 1_000_000


def times(lane: OwnLane, now_ns: int, size_bytes: int) -> tuple[int, int]:
    found: list[tuple[int, int]] = []
    lane.queue(now_ns, size_bytes, lambda start_ns, end_ns: found.append((start_ns, end_ns)))
    return found[0]


def test_pieces_leave_one_after_the_other_at_the_lines_rate_headers_included() -> None:
    lane = OwnLane(LINE)
    each_ns = 144_800 * 8 * 10 * 1514 // 1448
    assert times(lane, 5 * MS, 144_800) == (5 * MS, 5 * MS + each_ns)
    assert times(lane, 6 * MS, 144_800) == (5 * MS + each_ns, 5 * MS + 2 * each_ns)
    assert lane.wait_ns(6 * MS) == 2 * each_ns - MS
    assert lane.wait_ns(500 * MS) == 0
    assert lane.wire_bytes == 2 * 151_400


def test_an_unlimited_line_passes_everything_at_once() -> None:
    lane = OwnLane(Line(None, 0, headers=True))
    assert times(lane, 3, 10**9) == (3, 3)


@given(st.lists(st.tuples(st.integers(0, 50 * MS), st.integers(1, 200_000)), min_size=1, max_size=30))
def test_a_lane_is_never_faster_than_its_line_and_never_idle_with_bytes_waiting(pieces: list[tuple[int, int]]) -> None:
    lane, now_ns, free_ns = OwnLane(LINE), 0, 0
    for pause_ns, size_bytes in pieces:
        now_ns += pause_ns
        start_ns, end_ns = times(lane, now_ns, size_bytes)
        assert start_ns == max(now_ns, free_ns)
        assert end_ns - start_ns == LINE.duration_ns(size_bytes)
        free_ns = end_ns


MBPS = 1_000_000
PORT, TRUNK = 90, 91


class Senders:
    """Lanes over the resources with these capacities, and when what they were given has left (ns).

    Each lane is given by its own rate and the resources that it shares.
    """

    def __init__(self, capacities_bps: dict[int, int], *lanes: tuple[int, ...]) -> None:
        self.events = EventQueue()
        own = {number: rate_bps for number, (rate_bps, *_) in enumerate(lanes)}
        ports = {PORT} & set(capacities_bps)
        capacity = SharedCapacity(self.events, own | capacities_bps, own=own, ports=ports)
        self.lanes = [
            SharedLane(Line(rate_bps, 0, headers=False), NodePairFlow(number, (number, *shared)), capacity)
            for number, (rate_bps, *shared) in enumerate(lanes)
        ]
        self.left: dict[str, tuple[int, int]] = {}

    def send(self, lane: int, name: str, size_bytes: int, now_ns: int = 0) -> None:
        def left(start_ns: int, end_ns: int) -> None:
            self.left[name] = start_ns, end_ns

        self.events.at(now_ns, lambda time_ns, _: self.lanes[lane].queue(time_ns, size_bytes, left), None)

    def ended_s(self) -> dict[str, float]:
        self.events.handle_until(10**12)
        return {name: end_ns / 1e9 for name, (_, end_ns) in self.left.items()}


def test_a_lone_lane_has_its_own_rate_although_it_crosses_a_shared_trunk() -> None:
    senders = Senders({TRUNK: 300 * MBPS}, (200 * MBPS, TRUNK), (200 * MBPS, TRUNK))
    senders.send(0, "a", 25_000_000)
    assert senders.ended_s() == {"a": pytest.approx(1)}


def test_lanes_that_fill_a_trunk_share_it_equally_and_the_last_one_has_the_rest() -> None:
    senders = Senders({TRUNK: 300 * MBPS}, (200 * MBPS, TRUNK), (200 * MBPS, TRUNK))
    senders.send(0, "a", 18_750_000)
    senders.send(1, "b", 18_750_000 + 12_500_000)
    assert senders.ended_s() == {"a": pytest.approx(1), "b": pytest.approx(1.5)}


def test_what_a_lane_cannot_use_goes_to_the_others() -> None:
    senders = Senders({TRUNK: 300 * MBPS}, (50 * MBPS, TRUNK), (300 * MBPS, TRUNK))
    senders.send(0, "slow", 6_250_000)
    senders.send(1, "fast", 31_250_000)
    assert senders.ended_s() == {"slow": pytest.approx(1), "fast": pytest.approx(1)}


def test_a_lane_that_begins_slows_down_what_is_being_sent() -> None:
    senders = Senders({TRUNK: 200 * MBPS}, (200 * MBPS, TRUNK), (200 * MBPS, TRUNK))
    senders.send(0, "a", 25_000_000)
    senders.send(1, "b", 12_500_000, now_ns=500_000_000)
    assert senders.ended_s() == {"a": pytest.approx(1.5), "b": pytest.approx(1.5)}


def test_a_port_slows_a_lane_down_and_the_trunks_other_lane_takes_what_it_leaves() -> None:
    lanes = (250 * MBPS, TRUNK), (100 * MBPS, PORT, TRUNK), (100 * MBPS, PORT)
    senders = Senders({TRUNK: 300 * MBPS, PORT: 100 * MBPS}, *lanes)
    senders.send(0, "far", 31_250_000)
    senders.send(1, "one", 6_250_000)
    senders.send(2, "near", 6_250_000)
    assert senders.ended_s() == {name: pytest.approx(1) for name in ("far", "one", "near")}


def test_pieces_of_one_lane_leave_in_order_and_later_ones_wait() -> None:
    senders = Senders({TRUNK: 100 * MBPS}, (100 * MBPS, TRUNK))
    lane = senders.lanes[0]
    for name in "abc":
        senders.send(0, name, 1_250_000)
    senders.events.handle_until(0)
    assert lane.wait_ns(0) == pytest.approx(300_000_000)
    senders.events.handle_until(150_000_000)
    assert lane.wait_ns(150_000_000) == pytest.approx(150_000_000)
    assert senders.ended_s() == {"a": pytest.approx(0.1), "b": pytest.approx(0.2), "c": pytest.approx(0.3)}
    assert lane.wait_ns(10**12) == 0


SENDS = st.lists(
    st.tuples(st.integers(0, 3), st.integers(0, 300_000_000), st.integers(1, 5_000_000)), min_size=1, max_size=20
)


@given(SENDS, st.integers(50, 400))
def test_a_trunk_carries_everything_and_never_more_than_its_rate(
    sends: list[tuple[int, int, int]], trunk_mbps: int
) -> None:
    senders = Senders({TRUNK: trunk_mbps * MBPS}, *[(100 * MBPS, TRUNK)] * 4)
    for number, (lane, now_ns, size_bytes) in enumerate(sends):
        senders.send(lane, str(number), size_bytes, now_ns)
    ended_s = senders.ended_s()
    assert len(ended_s) == len(sends)
    begun_s = min(now_ns for _, now_ns, _ in sends) / 1e9
    least_s = sum(size_bytes for _, _, size_bytes in sends) * 8 / (trunk_mbps * MBPS)
    assert max(ended_s.values()) >= begun_s + least_s - 1e-4
    for number, (_, now_ns, size_bytes) in enumerate(sends):
        assert ended_s[str(number)] >= now_ns / 1e9 + size_bytes * 8 / (100 * MBPS) - 1e-4


def made(wan: dict[str, str], hosts: int = 2, **topology: Any) -> dict[tuple[str, str], RelayLane]:
    document = {
        "datacenters": [{"name": name, "hosts": hosts} for name in ("east", "west")],
        "wan": {"latency": "20ms", **wan},
        **topology,
    }
    return lanes(resolve_topology(parse_model(TopologySpec, document, "test")), EventQueue())


def shared(found: dict[tuple[str, str], RelayLane]) -> set[tuple[str, str]]:
    return {ends for ends, lane in found.items() if isinstance(lane, SharedLane)}


def test_every_host_has_a_lane_to_every_other_with_latency_and_rate_of_the_path() -> None:
    found = made({"rate": "1Gbit", "node_pair_rate": "100Mbit"})
    assert len(found) == 12
    assert (found["east-0", "west-1"].line.rate_bps, found["east-0", "west-1"].line.latency_ns) == (10**8, 20_000_000)
    assert found["east-0", "east-1"].line.latency_ns < 1_000_000


def test_a_trunk_is_shared_only_if_its_node_pairs_can_fill_it() -> None:
    assert shared(made({"rate": "1Gbit", "node_pair_rate": "250Mbit"})) == set()
    across = {(a, b) for a, b in made({}) if a[:4] != b[:4]}
    assert shared(made({"rate": "1Gbit", "node_pair_rate": "251Mbit"})) == across


def test_a_port_is_shared_by_all_who_send_to_its_host() -> None:
    found = made({"rate": "10Gbit", "node_pair_rate": "100Mbit"}, intra={"rate": "1Gbit"})
    assert shared(found) == set(found)
    crossed = [
        lane.flow.resources for ends, lane in found.items() if ends[1] == "east-0" and isinstance(lane, SharedLane)
    ]
    assert len({number for own, number in crossed}) == 1


@pytest.mark.parametrize("hosts", [1, 3])
def test_without_rates_nothing_is_shared(hosts: int) -> None:
    found = made({}, hosts)
    assert all(isinstance(lane, OwnLane) and lane.line.rate_bps is None for lane in found.values())
