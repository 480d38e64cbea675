from contextlib import closing
from typing import Any

import pytest

from wanbed.ground.errors import MissingError
from wanbed.testbed.network.gateway_layout import plan_gateways
from wanbed.testbed.network.topology import resolve_topology
from wanbed.testbed.network.topology_spec import TopologySpec
from wanbed.testbed.substrate import host_kernel
from wanbed.testbed.substrate.host_kernel import UNSHAPED, unshaped_gateways, unshaped_offer
from wanbed.testbed.substrate.offer import Offer


def test_gateways_are_connected_and_nothing_is_shaped(monkeypatch: pytest.MonkeyPatch) -> None:
    class Programmer:
        """Fails for any other call."""

        connected = closed = False

        def connect(self) -> None:
            self.connected = True

        def close(self) -> None:
            self.closed = True

    topology = resolve_topology(TopologySpec.model_validate({"datacenters": [{"name": "east", "hosts": 1}]}))
    network: Any = object()
    programmer = Programmer()
    monkeypatch.setattr(host_kernel, "connected_programmer", lambda *_: closing(programmer))
    with unshaped_gateways(plan_gateways(topology, 1), network, "wb-1", {}) as gateways:
        assert gateways.facts.name == UNSHAPED
        assert programmer.connected
        gateways.settle(1000)
        assert (gateways.read_qdiscs(), gateways.read_counters()) == ({}, [])
    assert programmer.closed


def test_missing_namespaces_are_reported_with_a_remedy(monkeypatch: pytest.MonkeyPatch) -> None:
    refusal = Offer(UNSHAPED, False, "no namespaces for hosts: Operation not permitted", "run as root")
    monkeypatch.setattr(host_kernel, "hosts_refused", lambda _: refusal)
    with pytest.raises(MissingError, match=r"^no namespaces for hosts: Operation not permitted \(run as root\)$"):
        unshaped_offer()
