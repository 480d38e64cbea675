"""The rate of a lane: its own, and equal shares of the trunks and ports that it crosses with others."""

from wanbed.runner.simulator.segments.shared_rates import LaneCapacity, LaneRate


def test_a_lane_has_the_least_of_its_own_rate_and_its_shares() -> None:
    assert LaneRate(None).rate_bps(0) is None
    assert LaneRate(5).rate_bps(0) == 5
    assert LaneRate(5, [LaneCapacity(9), LaneCapacity(7)]).rate_bps(0) == 5
    assert LaneRate(8, [LaneCapacity(9), LaneCapacity(7)]).rate_bps(0) == 7
    assert LaneRate(None, [LaneCapacity(7), LaneCapacity(9)]).rate_bps(0) == 7


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
