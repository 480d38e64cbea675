from runner.simulator.segments.bbr import Bbr
from runner.simulator.segments.segment import Segment

RTT_NS = 40_000_000
LEAST_SEGMENTS = 4


def acknowledged(bbr: Bbr, now_ns: int, in_flight: int, *, recovers: bool = False, lost: int = 0) -> int:
    """Let a segment that was sent a round trip ago arrive; return the window."""
    segment = Segment(0, 1448)
    segment.sent_ns = now_ns - RTT_NS
    segment.stamp = bbr.stamped(segment.sent_ns, idle=False)
    bbr.arrived(segment, now_ns)
    bbr.control(now_ns, 1, lost, in_flight, recovers=recovers)
    return bbr.window


def test_a_loss_narrows_the_window_to_what_arrives_for_a_round_and_no_longer() -> None:
    bbr = Bbr(RTT_NS, "seed")
    bbr.window = 100
    bbr.reduced()
    assert acknowledged(bbr, RTT_NS, 20, recovers=True, lost=1) == 21
    assert acknowledged(bbr, 2 * RTT_NS, 20) >= 100


def test_the_round_trip_is_measured_for_200_ms_from_when_few_segments_are_in_flight() -> None:
    bbr = Bbr(RTT_NS, "seed")
    bbr.window = 100
    begun_ns = 11_000_000_000
    bbr.sampled(begun_ns, RTT_NS, 0, 0)
    # What was in flight drains first, however long that takes.
    for number in range(10):
        assert acknowledged(bbr, begun_ns + number * 50_000_000, 50) == LEAST_SEGMENTS
    drained_ns = begun_ns + 500_000_000
    for number in range(5):
        assert acknowledged(bbr, drained_ns + number * 50_000_000, LEAST_SEGMENTS) == LEAST_SEGMENTS
    assert acknowledged(bbr, drained_ns + 250_000_001, LEAST_SEGMENTS) >= 100
