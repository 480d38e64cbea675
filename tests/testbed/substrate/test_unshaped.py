from typing import Any

import pytest

from wanbed.testbed.kernel.missing import MissingError
from wanbed.testbed.network.gateway_layout import plan_gateways
from wanbed.testbed.network.topology import resolve_topology
from wanbed.testbed.network.topology_spec import TopologySpec
from wanbed.testbed.substrate import unshaped
from wanbed.testbed.substrate.offer import Offer
from wanbed.testbed.substrate.unshaped import UNSHAPED, UnshapedKernel, unshaped_offer


def test_gateways_are_connected_and_nothing_is_shaped() -> None:
    class Programmer:
        """Fails for any other call."""

        connected = False

        def connect(self) -> None:
            self.connected = True

    topology = resolve_topology(TopologySpec.model_validate({"datacenters": [{"name": "east", "hosts": 1}]}))
    network, programmer = object(), Programmer()
    kernel: Any = UnshapedKernel(plan_gateways(topology, 1), network, "wb-1")  # type: ignore[arg-type]
    assert kernel._program(programmer).name == UNSHAPED
    assert programmer.connected
    kernel.settle(1000)
    assert (kernel.read_qdiscs(), kernel.read_counters()) == ({}, [])


def test_missing_namespaces_are_reported_with_a_remedy(monkeypatch: pytest.MonkeyPatch) -> None:
    refusal = Offer(UNSHAPED, False, "no namespaces for hosts: Operation not permitted", "run as root")
    monkeypatch.setattr(unshaped, "hosts_refused", lambda _: refusal)
    with pytest.raises(MissingError, match=r"^no namespaces for hosts: Operation not permitted \(run as root\)$"):
        unshaped_offer()
