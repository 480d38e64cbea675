import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from testbed.network.flow_model.line import FRAME_BYTES, PAYLOAD_BYTES, Line


@given(st.integers(0, 2**62))
def test_what_is_on_the_wire_is_exact_however_much_it_is_in_columns_too(payload_bytes: int) -> None:
    line = Line(10**9, 0, headers=True)
    expected = payload_bytes * FRAME_BYTES // PAYLOAD_BYTES
    assert line.wire_bytes(payload_bytes) == expected
    assert line.wire_bytes(np.array([payload_bytes], np.int64)).tolist() == [expected]
    assert Line(10**9, 0, headers=False).wire_bytes(payload_bytes) == payload_bytes


def test_what_is_sent_takes_its_time_at_the_lines_rate_or_at_another() -> None:
    line = Line(8_000_000, 0, headers=False)
    assert (line.duration_ns(1000), line.duration_ns(1000, 4_000_000)) == (10**6, 2 * 10**6)
    assert Line(8_000_000, 0, headers=True).duration_ns(PAYLOAD_BYTES) == FRAME_BYTES * 1000
    unlimited = Line(None, 0, headers=False)
    assert (unlimited.duration_ns(1000), unlimited.duration_ns(1000, 4_000_000)) == (0, 2 * 10**6)
