import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from wanbed.flow.line import FRAME_BYTES, PAYLOAD_BYTES, Line


@given(st.integers(0, 2**62), st.integers(576, 9216))
def test_what_is_on_the_wire_is_exact_however_much_it_is_in_columns_too(payload_bytes: int, mtu_bytes: int) -> None:
    line = Line(10**9, 0, headers=True, mtu_bytes=mtu_bytes)
    expected = payload_bytes * (mtu_bytes + 14) // (mtu_bytes - 52)
    assert line.wire_bytes(payload_bytes) == expected
    assert line.wire_bytes(np.array([payload_bytes], np.int64)).tolist() == [expected]
    assert Line(10**9, 0, headers=False).wire_bytes(payload_bytes) == payload_bytes


def test_what_is_sent_takes_its_time_at_the_lines_rate_or_at_another() -> None:
    line = Line(8_000_000, 0, headers=False)
    assert (line.duration_ns(1000), line.duration_ns(1000, 4_000_000)) == (10**6, 2 * 10**6)
    assert Line(8_000_000, 0, headers=True).duration_ns(PAYLOAD_BYTES) == FRAME_BYTES * 1000
    # Larger frames have as many headers.
    assert Line(8_000_000, 0, headers=True, mtu_bytes=9001).duration_ns(8949) == 9015 * 1000
    unlimited = Line(None, 0, headers=False)
    assert (unlimited.duration_ns(1000), unlimited.duration_ns(1000, 4_000_000)) == (0, 2 * 10**6)


def test_a_duration_is_rounded_up_and_what_a_round_trip_carries_too() -> None:
    line = Line(3 * 10**9, 10, headers=False)
    assert [line.duration_ns(size_bytes) for size_bytes in (0, 1, 3)] == [0, 3, 8]
    # 20 ns at 0.375 bytes a nanosecond.
    assert line.payload_per_rtt() == 8
    assert Line(8 * FRAME_BYTES * 1000, 10**6, headers=True).payload_per_rtt() in {
        2 * PAYLOAD_BYTES,
        2 * PAYLOAD_BYTES + 1,
    }
    assert Line(None, 10, headers=False).payload_per_rtt() == 0


def test_what_returns_takes_the_latency_of_the_other_direction_if_that_is_another() -> None:
    assert (Line(None, 10, headers=False).return_ns, Line(None, 10, headers=False).rtt_ns) == (10, 20)
    for back_ns in (0, 3):
        line = Line(None, 10, headers=False, back_ns=back_ns)
        assert (line.return_ns, line.rtt_ns) == (back_ns, 10 + back_ns)
