"""How long a testbed takes to come up: 12 hosts in 3 datacenters, qdiscs included, beside Mininet's own nodes alone."""

import time
from statistics import median

from wanbed.ground.strict_model import parse_model
from wanbed.testbed.hosts.emulated_hosts import EmulatedNetwork
from wanbed.testbed.network.topology import resolve_topology
from wanbed.testbed.network.topology_spec import TopologySpec
from wanbed.testbed.substrate.probe import probe_guest, probe_kernel
from wanbed.testbed.testbed import bring_up

ROUNDS = 5
DOCUMENT = {
    "datacenters": [{"name": name, "hosts": 4} for name in ("east", "central", "west")],
    "wan": {"latency": "40ms", "rate": "100Gbit", "node_pair_rate": "5Gbit"},
}


def nodes_alone_s() -> float:
    start = time.monotonic()
    network = EmulatedNetwork()
    try:
        for number in range(15):
            network.add(f"node-{number}", "benchmark")
        return time.monotonic() - start
    finally:
        network.stop()


def test_bring_up() -> None:
    topology = resolve_topology(parse_model(TopologySpec, DOCUMENT, "benchmark"))
    print(f"\n15 Mininet nodes alone: {median(nodes_alone_s() for _ in range(ROUNDS)):.2f} s (median of {ROUNDS})")
    for offer in (probe_kernel(), probe_guest()):
        if not offer.available:
            print(f"{offer.name}: not measured, {offer.reason}")
            continue
        seconds = []
        for _ in range(ROUNDS):
            start = time.monotonic()
            with bring_up(topology, substrate=offer.name):
                seconds.append(time.monotonic() - start)
        print(f"{offer.name}: {median(seconds):.2f} s for 12 hosts in 3 datacenters (median of {ROUNDS})")
        assert len(seconds) == ROUNDS
