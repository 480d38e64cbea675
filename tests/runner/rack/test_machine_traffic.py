"""What crosses each machine of a rack when all node pairs send at once."""

from collections.abc import Mapping

import pytest

from tests.support.rack.three_machines import MACHINE_OF, MBIT, demand_of, topology
from wanbed.runner.rack.machine_traffic import Carriers
from wanbed.testbed.network.topology import Topology


def demands(network: Topology, gateways: Mapping[str, str] = {}) -> dict[str, int]:
    return Carriers(network, MACHINE_OF, gateways).demands_bps(demand_of(network))


def test_a_machine_carries_what_its_own_hosts_send_and_receive() -> None:
    # A pipeline of east-0, east-1, west-0, west-1: only east-1 and west-0 use the WAN, both ways.
    assert demands(topology(node_pair_rate="200Mbit")) == {
        "one": 300 * MBIT,
        "two": 300 * MBIT + 2 * 200 * MBIT,
        "three": 300 * MBIT + 2 * 200 * MBIT,
    }


def test_a_gateway_machine_carries_what_its_datacenter_sends_in_and_out() -> None:
    found = demands(topology(node_pair_rate="200Mbit"), {"east": "gate"})
    assert found["gate"] == 2 * 200 * MBIT
    assert found["two"] == 300 * MBIT + 2 * 200 * MBIT


def test_no_link_carries_more_than_its_trunk() -> None:
    network = topology(node_pair_rate="800Mbit")
    found = Carriers(network, MACHINE_OF, {}).demands_bps(demand_of(network, pipelines=2))
    assert found == {"one": 2 * 800 * MBIT, "two": 2 * 800 * MBIT, "three": 2 * 1000 * MBIT}


def test_no_machine_sends_more_than_its_part_of_a_divided_trunk() -> None:
    network = topology(node_pair_rate="800Mbit")
    parts = {("east", "west"): 500 * MBIT}
    found = Carriers(network, MACHINE_OF, {}).demands_bps(demand_of(network, pipelines=2), parts)
    assert found == {"one": (500 + 800) * MBIT, "two": (500 + 800) * MBIT, "three": 2 * 1000 * MBIT}


def test_what_was_measured_is_added_up_without_a_limit() -> None:
    network = topology(node_pair_rate="200Mbit")
    rates = [(pair, 123.5 * MBIT) for pair in demand_of(network).wan_pairs]
    assert Carriers(network, MACHINE_OF, {}).traffic_bps(rates) == {
        "one": 0,
        "two": pytest.approx(247 * MBIT),
        "three": pytest.approx(247 * MBIT),
    }
