"""The host kernel's substrate, on kernels without sch_netem too: everything but delays and the rates of node pairs.

The netem leaves are left out of every shape; namespaces, veth pairs, addresses, routes, HTB classes and the classifier
are real. Where the kernel has netem, the other system tests run on it whole.
"""

import time
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from wanbed.testbed.hosts.ping import ping
from wanbed.testbed.kernel import gateway_programming
from wanbed.testbed.kernel.port_shape import PortShape, host_port_shape, wan_port_shape
from wanbed.testbed.measurement.iperf3 import Flow, measure_goodput
from wanbed.testbed.network.goodput import tcp_goodput_bps
from wanbed.testbed.network.tcp_settings import TcpSettings
from wanbed.testbed.network.topology import Topology
from wanbed.testbed.substrate.offer import KERNEL, Offer
from wanbed.testbed.testbed import bring_up

pytestmark = pytest.mark.measures

TRUNK_BPS = 200_000_000


def without_netem(shape: Callable[..., PortShape]) -> Callable[..., PortShape]:
    def bare(*arguments: Any) -> PortShape:
        whole = shape(*arguments)
        return replace(whole, classes=tuple(replace(each, netem=None) for each in whole.classes))

    return bare


def test_twelve_hosts_on_the_host_kernel_share_their_trunks(
    resolved: Callable[[dict[str, Any]], Topology], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(gateway_programming, "host_port_shape", without_netem(host_port_shape))
    monkeypatch.setattr(gateway_programming, "wan_port_shape", without_netem(wan_port_shape))
    monkeypatch.setattr("wanbed.testbed.testbed.choose_substrate", lambda _: Offer(KERNEL, True, "netem left out"))
    topology = resolved(
        {
            "datacenters": [{"name": name, "hosts": 4} for name in ("east", "central", "west")],
            "wan": {"latency": "0ms", "rate": "200Mbit"},
        }
    )
    start = time.monotonic()
    with bring_up(topology) as testbed:
        print(f"up in {time.monotonic() - start:.2f} s, netem left out")
        assert testbed.facts.name == KERNEL
        assert ping(testbed.spawn, "east-3", "west-3", 20).lost == 0
        testbed.use_tcp(TcpSettings(window_bytes=358 * 1024))
        flows = [Flow("east-0", "west-0", 2), Flow("east-2", "west-1", 2), Flow("east-1", "central-3", 2)]
        # For the first second or so windows fill the queues, and shares are not equal yet.
        first, second, alone = measure_goodput(testbed, flows, rtt_s=0.001, seconds=4)
        assert first + second == pytest.approx(tcp_goodput_bps(TRUNK_BPS), rel=0.05)
        assert first == pytest.approx(second, rel=0.1)
        assert alone == pytest.approx(tcp_goodput_bps(TRUNK_BPS), rel=0.05)
        carried = {
            pair for port in testbed.read_counters() for pair, counters in port.pairs.items() if counters.wire_bytes
        }
    directed = {("east-3", "west-3"), ("east-0", "west-0"), ("east-2", "west-1"), ("east-1", "central-3")}
    # By which bring-up measures the delay of the first link.
    directed.add(("east-0", "central-0"))
    assert carried == directed | {pair[::-1] for pair in directed}
