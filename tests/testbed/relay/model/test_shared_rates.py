import pytest
from hypothesis import given
from hypothesis import strategies as st

from wanbed.testbed.network.flow_model.line import Line
from wanbed.testbed.relay.model.lanes import SharedLane
from wanbed.testbed.relay.model.shared_rates import SharedRates
from wanbed.testbed.relay.model.timeline import Timeline

MBPS = 1_000_000
TRUNK, PORT = 0, 1


class Senders:
    """Lanes over the resources with these capacities, and when what they were given has left (ns)."""

    def __init__(self, capacities_bps: dict[int, int]) -> None:
        self.timeline = Timeline()
        self.sharing = SharedRates(capacities_bps)
        self.left: dict[str, tuple[int, int]] = {}

    def lane(self, rate_bps: int, *resources: int) -> SharedLane:
        return SharedLane(Line(rate_bps, 0, headers=False), resources, self.sharing, self.timeline)

    def send(self, lane: SharedLane, name: str, size_bytes: int, now_ns: int = 0) -> None:
        def left(start_ns: int, end_ns: int) -> None:
            self.left[name] = start_ns, end_ns

        self.timeline.at(now_ns, lambda time_ns: lane.queue(time_ns, size_bytes, left))

    def ended_s(self) -> dict[str, float]:
        self.timeline.handle(10**12)
        return {name: end_ns / 1e9 for name, (_, end_ns) in self.left.items()}


def test_a_lone_lane_has_its_own_rate_although_it_crosses_a_shared_trunk() -> None:
    senders = Senders({TRUNK: 300 * MBPS})
    senders.send(senders.lane(200 * MBPS, TRUNK), "a", 25_000_000)
    assert senders.ended_s() == {"a": pytest.approx(1)}


def test_lanes_that_fill_a_trunk_share_it_equally_and_the_last_one_has_the_rest() -> None:
    senders = Senders({TRUNK: 300 * MBPS})
    senders.send(senders.lane(200 * MBPS, TRUNK), "a", 18_750_000)
    senders.send(senders.lane(200 * MBPS, TRUNK), "b", 18_750_000 + 12_500_000)
    assert senders.ended_s() == {"a": pytest.approx(1), "b": pytest.approx(1.5)}


def test_what_a_lane_cannot_use_goes_to_the_others() -> None:
    senders = Senders({TRUNK: 300 * MBPS})
    senders.send(senders.lane(50 * MBPS, TRUNK), "slow", 6_250_000)
    senders.send(senders.lane(300 * MBPS, TRUNK), "fast", 31_250_000)
    assert senders.ended_s() == {"slow": pytest.approx(1), "fast": pytest.approx(1)}


def test_a_lane_that_begins_slows_down_what_is_being_sent() -> None:
    senders = Senders({TRUNK: 200 * MBPS})
    senders.send(senders.lane(200 * MBPS, TRUNK), "a", 25_000_000)
    senders.send(senders.lane(200 * MBPS, TRUNK), "b", 12_500_000, now_ns=500_000_000)
    assert senders.ended_s() == {"a": pytest.approx(1.5), "b": pytest.approx(1.5)}


def test_a_port_slows_a_lane_down_and_the_trunks_other_lane_takes_what_it_leaves() -> None:
    senders = Senders({TRUNK: 300 * MBPS, PORT: 100 * MBPS})
    senders.send(senders.lane(250 * MBPS, TRUNK), "far", 31_250_000)
    senders.send(senders.lane(100 * MBPS, TRUNK, PORT), "one", 6_250_000)
    senders.send(senders.lane(100 * MBPS, PORT), "near", 6_250_000)
    assert senders.ended_s() == {name: pytest.approx(1) for name in ("far", "one", "near")}


def test_pieces_of_one_lane_leave_in_order_and_later_ones_wait() -> None:
    senders = Senders({TRUNK: 100 * MBPS})
    lane = senders.lane(100 * MBPS, TRUNK)
    for name in "abc":
        senders.send(lane, name, 1_250_000)
    senders.timeline.handle(0)
    assert lane.wait_ns(0) == pytest.approx(300_000_000)
    senders.timeline.handle(150_000_000)
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
    senders = Senders({TRUNK: trunk_mbps * MBPS})
    lanes = [senders.lane(100 * MBPS, TRUNK) for _ in range(4)]
    for number, (lane, now_ns, size_bytes) in enumerate(sends):
        senders.send(lanes[lane], str(number), size_bytes, now_ns)
    ended_s = senders.ended_s()
    assert len(ended_s) == len(sends)
    begun_s = min(now_ns for _, now_ns, _ in sends) / 1e9
    least_s = sum(size_bytes for _, _, size_bytes in sends) * 8 / (trunk_mbps * MBPS)
    assert max(ended_s.values()) >= begun_s + least_s - 1e-4
    for number, (_, now_ns, size_bytes) in enumerate(sends):
        assert ended_s[str(number)] >= now_ns / 1e9 + size_bytes * 8 / (100 * MBPS) - 1e-4
