"""Does classifying a packet get slower with the number of node pairs? Goodput with 4 and with 400 of them.

Both testbeds are up at once and measured in turn, between the last hosts of each, so that a machine that drifts drifts
alike for both. The WAN has no cap: what limits is the work that each packet costs. `make bench` prints the figures.
"""

from contextlib import ExitStack
from statistics import median

from wanbed.ground.strict_model import parse_model
from wanbed.testbed.measurement.iperf3 import Flow, measure_goodput
from wanbed.testbed.network.topology import Topology, resolve_topology
from wanbed.testbed.network.topology_spec import TopologySpec
from wanbed.testbed.testbed import Testbed, bring_up

ROUNDS = 7
HOSTS = {4: 2, 400: 20}
SLOWEST_RATIO = 0.9
"""A chain of u32 filters would be searched 200 deep on average, and lose far more than a shared machine's noise."""


def network(hosts: int) -> Topology:
    document = {
        "datacenters": [{"name": "east", "hosts": hosts}, {"name": "west", "hosts": hosts}],
        "wan": {"latency": "1ms"},
    }
    return resolve_topology(parse_model(TopologySpec, document, "benchmark"))


def goodput_bps(testbed: Testbed) -> float:
    last = len(testbed.topology.datacenters[0].hosts) - 1
    (goodput,) = measure_goodput(testbed, [Flow(f"east-{last}", f"west-{last}", 4)], rtt_s=0.002, seconds=2)
    return goodput


def test_goodput_does_not_fall_with_the_number_of_node_pairs() -> None:
    with ExitStack() as up:
        testbeds = {pairs: up.enter_context(bring_up(network(hosts))) for pairs, hosts in HOSTS.items()}
        measured: dict[int, list[float]] = {pairs: [] for pairs in testbeds}
        for _ in range(ROUNDS):
            for pairs, testbed in testbeds.items():
                measured[pairs].append(goodput_bps(testbed))
    few, many = (median(measured[pairs]) for pairs in HOSTS)
    ratio = median(b / a for a, b in zip(measured[4], measured[400], strict=True))
    print(
        f"\n4 pairs {few / 1e6:.0f} Mbit/s, 400 pairs {many / 1e6:.0f} Mbit/s, ratio {ratio:.3f} (median of {ROUNDS})"
    )
    assert ratio > SLOWEST_RATIO
