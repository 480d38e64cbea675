"""System tests build real namespaces and qdiscs. They need root; without it they fail and say so, they never hide."""

import os
from collections.abc import Callable
from typing import Any

import pytest

from wanbed.ground.strict_model import parse_model
from wanbed.testbed.network.topology import Topology, resolve_topology
from wanbed.testbed.network.topology_spec import TopologySpec
from wanbed.testbed.substrate.offer import SUBSTRATES
from wanbed.testbed.substrate.probe import probe_guest, probe_kernel

OFFERS = {"kernel": probe_kernel, "guest": probe_guest}


@pytest.fixture(autouse=True, scope="session")
def _root() -> None:
    if os.geteuid() != 0:
        pytest.fail("system tests build network namespaces: run `make test` as root or with sudo, or `make test-pure`")


@pytest.fixture(params=SUBSTRATES, scope="module")
def substrate(request: pytest.FixtureRequest) -> str:
    """Each substrate in turn; one that this machine lacks is skipped with the reason.

    That one is there is a test, and that the kernel's works where it is not: ``test_kernel_in_a_guest.py``.
    """
    offer = OFFERS[request.param]()
    if not offer.available:
        pytest.skip(f"no {request.param} substrate: {offer.reason}")
    return offer.name


@pytest.fixture(scope="session")
def resolved() -> Callable[[dict[str, Any]], Topology]:
    return lambda document: resolve_topology(parse_model(TopologySpec, document, "test"))
