"""Successive transfers over the connections of a boundary, as a plan models them."""

import pytest

from wanbed.runner.resolve.cell_costs import BoundaryTcp
from wanbed.testbed.network.flow_model.line import Line
from wanbed.testbed.network.flow_model.striping import Striping
from wanbed.testbed.network.flow_model.window import INITIAL_SEGMENTS, SEGMENT_BYTES
from wanbed.testbed.network.tcp_settings import TcpSettings

MS = 1_000_000
FIRST_BYTES = INITIAL_SEGMENTS * SEGMENT_BYTES
UNLIMITED = Line(None, 20 * MS, headers=True)


def tcp(size_bytes: int, *, line: Line = UNLIMITED, connections: int = 1, restarts: bool = True) -> BoundaryTcp:
    settings = TcpSettings(2**22, congestion="reno", slow_start_after_idle=restarts)
    return BoundaryTcp(line, size_bytes, settings, Striping(connections, 16, -(-size_bytes // 16)))


@pytest.mark.parametrize(("size_bytes", "rounds"), [(FIRST_BYTES, 0), (FIRST_BYTES + 1, 1), (7 * FIRST_BYTES, 2)])
def test_a_new_connection_doubles_what_it_sends_each_round_trip(size_bytes: int, rounds: int) -> None:
    assert tcp(size_bytes).cold_ns == (40 * rounds + 20) * MS


def test_windows_stay_open_and_close_after_a_pause_unless_configured() -> None:
    for restarts, after_a_pause_ms in ((True, 60), (False, 20)):
        links = tcp(3 * FIRST_BYTES, restarts=restarts).opened()
        left_ns, _ = links.send(0)
        soon_ns, later_ns = left_ns + 100 * MS, left_ns + 2_000 * MS
        assert links.send(soon_ns)[1] - soon_ns == 20 * MS
        assert links.send(later_ns)[1] - later_ns == after_a_pause_ms * MS


def test_transfers_leave_one_after_the_other() -> None:
    links = tcp(1448 * 1000, line=Line(121_120_000, 0, headers=True)).opened()
    assert links.send(0) == (100 * MS, 100 * MS)
    assert links.send(0) == (200 * MS, 200 * MS)
    assert links.send(250 * MS)[0] == 350 * MS
