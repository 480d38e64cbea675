"""What one TCP connection reaches falls as 1/RTT, and many reach the node pair's cap.

The network is dilated by 2, which brings the untuned window's 2 Gbit/s at 10 ms into reach of a small machine: every
delay is twice as long and every rate half, so the law and its ratios are the same.
"""

from collections.abc import Callable
from typing import Any

import pytest

from wanbed.testbed.measurement.iperf3 import Flow, measure_goodput
from wanbed.testbed.network.goodput import tcp_goodput_bps
from wanbed.testbed.network.tcp_settings import TcpSettings
from wanbed.testbed.network.topology import Topology
from wanbed.testbed.testbed import bring_up

# Virtual time holds the law exactly, and test_transport.py sees on the real clock that many carry what one does not.
pytestmark = [pytest.mark.measures, pytest.mark.soak]

DILATION = 2
NEAR_RTT_S, FAR_RTT_S = 2 * DILATION * 0.010, 2 * DILATION * 0.040
CAP_BPS = 1_600_000_000


def test_one_untuned_connection_and_many(substrate: str, resolved: Callable[[dict[str, Any]], Topology]) -> None:
    topology = resolved(
        {
            "datacenters": [{"name": name, "hosts": 1} for name in ("here", "near", "far")],
            "wan": {"latency": "40ms", "rate": "100Gbit", "node_pair_rate": "1.6Gbit"},
            "links": [{"between": ["here", "near"], "latency": "10ms", "node_pair_rate": "5Gbit"}],
        }
    ).dilated(DILATION)
    with bring_up(topology, substrate=substrate) as testbed:
        testbed.use_tcp(TcpSettings())
        (near,) = measure_goodput(testbed, [Flow("here-0", "near-0")], rtt_s=NEAR_RTT_S, seconds=3)
        far = {
            n: measure_goodput(testbed, [Flow("here-0", "far-0", n)], rtt_s=FAR_RTT_S, seconds=3)[0] for n in (1, 2, 8)
        }
    lines = {"10 ms": near * DILATION / 1e6, **{f"40 ms x {n}": rate * DILATION / 1e6 for n, rate in far.items()}}
    print({name: f"{rate:.0f} Mbit/s" for name, rate in lines.items()})
    assert 3.5 < near / far[1] < 4.5
    assert far[2] >= 0.9 * 2 * far[1]
    assert far[8] >= 0.93 * CAP_BPS / DILATION
    assert far[8] <= 1.01 * tcp_goodput_bps(CAP_BPS / DILATION)
