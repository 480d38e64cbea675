"""Four hosts in two datacenters, on three machines."""

from typing import Any

from wanbed.ground.strict_model import parse_model
from wanbed.runner.resolve.connections import NetworkDemand, network_demand
from wanbed.runner.resolve.placement import place_stages
from wanbed.testbed.network.topology import Topology, resolve_topology
from wanbed.testbed.network.topology_spec import TopologySpec

MBIT = 10**6
MACHINE_OF = {"east-0": "one", "east-1": "two", "west-0": "three", "west-1": "three"}


def topology(**wan: Any) -> Topology:
    document = {
        "datacenters": [{"name": "east", "hosts": 2}, {"name": "west", "hosts": 2}],
        "wan": {"latency": "5ms", "rate": "1Gbit", **wan},
        "intra": {"rate": "300Mbit", "latency": "50us"},
    }
    return resolve_topology(parse_model(TopologySpec, document, "test"))


def demand_of(network: Topology, pipelines: int = 1) -> NetworkDemand:
    """Return the demand of a pipeline over all hosts, or of two that both cross from east to west."""
    if pipelines == 1:
        return network_demand(network, place_stages(network, 4).boundaries)
    one, other = place_stages(network, 2, 2).boundaries
    return network_demand(network, [one, other])
