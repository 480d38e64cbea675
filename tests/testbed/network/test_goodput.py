"""What of a line's rate is payload: 1448 of the 1514 bytes that a full TCP segment takes in Ethernet."""

import pytest

from wanbed.testbed.network.goodput import tcp_goodput_bps


def test_full_segments_carry_1448_of_1514_bytes() -> None:
    assert tcp_goodput_bps(1e9) == pytest.approx(1e9 * 1448 / 1514)
    assert tcp_goodput_bps(5e6) == pytest.approx(4.782e6, rel=1e-3)
