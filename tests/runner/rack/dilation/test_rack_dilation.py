"""The dilation of a run over a rack: the smallest with which every machine carries its part."""

from typing import Any

import pytest

from ground.strict_model import parse_model
from runner.rack.dilation.rack_dilation import MachineLoad, RackDilation, derived_factor, machine_demands_bps
from runner.resolve.demand import network_demand
from runner.resolve.dilation import CapacityError
from runner.resolve.placement import place_stages
from testbed.network.topology import Topology, resolve_topology
from testbed.network.topology_spec import TopologySpec

MBIT = 10**6
MACHINE_OF = {"east-0": "one", "east-1": "two", "west-0": "three", "west-1": "three"}


def topology(**wan: Any) -> Topology:
    document = {
        "datacenters": [{"name": "east", "hosts": 2}, {"name": "west", "hosts": 2}],
        "wan": {"latency": "5ms", "rate": "1Gbit", **wan},
        "intra": {"rate": "300Mbit", "latency": "50us"},
    }
    return resolve_topology(parse_model(TopologySpec, document, "test"))


def demands(network: Topology, **gateways: str) -> dict[str, int]:
    demand = network_demand(network, place_stages(network, 4).boundaries)
    return machine_demands_bps(network, demand, MACHINE_OF, gateways)


def test_a_machine_carries_what_its_own_hosts_send_and_receive() -> None:
    # A pipeline of east-0, east-1, west-0, west-1: only east-1 and west-0 use the WAN, both ways.
    assert demands(topology(node_pair_rate="200Mbit")) == {
        "one": 300 * MBIT,
        "two": 300 * MBIT + 2 * 200 * MBIT,
        "three": 300 * MBIT + 2 * 200 * MBIT,
    }


def test_a_gateway_machine_carries_what_its_datacenter_sends_in_and_out() -> None:
    found = demands(topology(node_pair_rate="200Mbit"), east="gate")
    assert found["gate"] == 2 * 200 * MBIT
    assert found["two"] == 300 * MBIT + 2 * 200 * MBIT


def test_the_machine_that_has_least_to_spare_decides_and_is_recorded() -> None:
    loads = {"one": MachineLoad(700 * MBIT, 1000 * MBIT, 8, 1), "two": MachineLoad(400 * MBIT, 250 * MBIT, 2, 3)}
    factor = derived_factor(loads, real_time=False)
    assert factor == 2.0
    facts = RackDilation(factor, loads).facts()
    assert (facts["dilation"], facts["capacity_bps"], facts["dilation_decided_by"]) == (2.0, 250 * MBIT, "two")
    assert facts["dilation_machines"]["one"] == {
        "demand_bps": 700 * MBIT,
        "capacity_bps": 1000 * MBIT,
        "cores": 8,
        "hosts": 1,
    }


def test_machines_with_enough_to_spare_dilate_nothing() -> None:
    assert derived_factor({"one": MachineLoad(700 * MBIT, 1000 * MBIT, 8, 1)}, real_time=True) == 1.0
    assert derived_factor({}, real_time=False) == 1.0
    assert RackDilation(1.0, {}).facts() == {"dilation": 1.0, "capacity_bps": None}


def test_a_machine_that_cannot_carry_its_part_is_named() -> None:
    loads = {"two": MachineLoad(400 * MBIT, 250 * MBIT, 2, 3)}
    with pytest.raises(
        CapacityError, match=r"ask for 400Mbit at once and machine two carries 250Mbit, and what really"
    ):
        derived_factor(loads, real_time=True)
