"""One direction of a node pair: loss, jitter and the rate, as netem applies them."""

from hypothesis import given
from hypothesis import strategies as st

from wanbed.runner.simulator.segments.lane import Lane, LaneCapacity, LaneRate

LATENCY_NS = 20_000_000


def lane(rate_bps: int | None = None, *, loss: float = 0.0, jitter_ns: int = 0, seed: str = "a") -> Lane:
    return Lane(LaneRate(rate_bps), LATENCY_NS, loss=loss, jitter_ns=jitter_ns, seed=seed)


def test_a_packet_arrives_after_the_latency_and_its_own_time() -> None:
    assert lane().send(5, 1514) == 5 + LATENCY_NS
    assert lane(8_000_000).send(0, 1000) == LATENCY_NS + 1_000_000


def test_packets_wait_for_those_before_them() -> None:
    line = lane(8_000_000)
    assert [line.send(0, 1000) for _ in range(3)] == [LATENCY_NS + each * 1_000_000 for each in (1, 2, 3)]


@given(st.integers(0, 10**6))
def test_jitter_keeps_the_order_and_its_bounds(seed: int) -> None:
    line = lane(jitter_ns=3_000_000, seed=str(seed))
    sent_ns = range(0, 40_000_000, 500_000)
    arrived_ns = [line.send(at_ns, 1514) for at_ns in sent_ns]
    assert arrived_ns == sorted(arrived_ns)
    late_ns = [there - (at + LATENCY_NS) for at, there in zip(sent_ns, arrived_ns, strict=True)]
    assert all(-3_000_000 <= each <= 3_000_000 for each in late_ns)


def test_the_last_of_many_packets_comes_late_by_almost_all_of_the_jitter() -> None:
    line = lane(jitter_ns=3_000_000)
    assert LATENCY_NS + 2_900_000 < max(line.send(0, 1514) for _ in range(1000)) <= LATENCY_NS + 3_000_000


def test_the_share_that_is_lost_is_as_configured() -> None:
    line = lane(loss=0.01)
    assert 900 < sum(line.send(each, 1514) < 0 for each in range(100_000)) < 1100


def test_the_seed_alone_decides_what_is_drawn() -> None:
    def drawn(seed: str) -> list[int]:
        line = lane(loss=0.1, jitter_ns=1_000_000, seed=seed)
        return [line.send(each, 1514) for each in range(100)]

    assert drawn("a") == drawn("a")
    assert drawn("a") != drawn("b")


def test_lanes_that_send_at_once_share_a_trunk() -> None:
    trunk = LaneCapacity(8_000_000)
    one, other = (Lane(LaneRate(None, [trunk]), 0, loss=0, jitter_ns=0, seed="a") for _ in range(2))
    assert one.send(0, 1000) == 1_000_000
    assert other.send(0, 1000) == 2_000_000
    assert other.send(10_000_000, 1000) == 11_000_000


def test_a_lane_has_the_least_of_its_own_rate_and_its_shares() -> None:
    for own, shared, least in ((None, (), None), (5, (), 5), (5, (9, 7), 5), (8, (9, 7), 7), (None, (7, 9), 7)):
        assert LaneRate(own, [LaneCapacity(each) for each in shared]).rate_bps(0) == least


def test_lanes_share_a_trunk_equally_while_they_send_and_no_longer() -> None:
    trunk = LaneCapacity(12)
    one, two, three = (LaneRate(None, [trunk]) for _ in range(3))
    assert one.rate_bps(0) == 12
    two.busy_until(100)
    three.busy_until(50)
    assert [one.rate_bps(at) for at in (0, 49, 50, 99, 100)] == [4, 4, 6, 6, 12]
    # A lane counts once, whether it still has packets there or begins now.
    assert [two.rate_bps(at) for at in (49, 50, 100)] == [6, 12, 12]
    one.busy_until(60)
    assert [one.rate_bps(at) for at in (49, 50, 60)] == [4, 6, 6]


def test_a_lane_is_busy_on_everything_that_it_crosses() -> None:
    trunk, port = LaneCapacity(12), LaneCapacity(10)
    both, on_trunk, on_port = LaneRate(None, [trunk, port]), LaneRate(None, [trunk]), LaneRate(None, [port])
    both.busy_until(1)
    assert (on_trunk.rate_bps(0), on_port.rate_bps(0)) == (6, 5)


def test_a_share_is_a_bit_a_second_at_least() -> None:
    trunk = LaneCapacity(2)
    lanes = [LaneRate(None, [trunk]) for _ in range(5)]
    for lane in lanes:
        lane.busy_until(1)
    assert lanes[0].rate_bps(0) == 1
