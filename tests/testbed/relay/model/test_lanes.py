from hypothesis import given
from hypothesis import strategies as st

from wanbed.testbed.network.flow_model.line import Line
from wanbed.testbed.relay.model.lanes import OwnLane

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
