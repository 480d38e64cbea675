from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from ground.strict_model import parse_model
from testbed.network.address_book import LoopbackAddressBook
from testbed.network.topology import resolve_topology
from testbed.network.topology_spec import TopologySpec
from testbed.relay.loopback_subnet import LoopbackSubnet
from testbed.relay.relay_substrate import RelaySubstrate
from testbed.substrate.substrate import SubstrateError

DOCUMENT = {
    "datacenters": [{"name": name, "hosts": 1} for name in ("east", "west")],
    "wan": {"latency": "20ms", "rate": "100Mbit"},
}


@pytest.fixture
def relay(tmp_path: Path) -> Iterator[RelaySubstrate]:
    with closing(LoopbackSubnet()) as subnet:
        addresses = LoopbackAddressBook(resolve_topology(parse_model(TopologySpec, DOCUMENT, "test")), subnet.number)
        relay = RelaySubstrate(addresses, tmp_path, "wb-test", 1.0)
        yield relay
        relay.stop()


def test_a_relay_that_was_killed_is_an_error_that_says_so_and_stops_without_another(relay: RelaySubstrate) -> None:
    relay.start({})
    assert {port.total.wire_bytes for port in relay.read_counters()} == {0}
    assert relay._process is not None
    relay._process.kill()
    relay._process.wait()
    with pytest.raises(SubstrateError, match=r"^the relay ended; its stderr tail: "):
        relay.settle(1)
    relay.stop()
