import os
import signal
import socket
from collections.abc import Iterator
from contextlib import closing, suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from wanbed.ground.errors import InputError
from wanbed.ground.strict_model import parse_model
from wanbed.testbed.network.address_book import LoopbackAddressBook
from wanbed.testbed.network.links.wan_link import course_of
from wanbed.testbed.network.topology import Topology, resolve_topology
from wanbed.testbed.network.topology_spec import TopologySpec
from wanbed.testbed.relay.loopback_hosts import LoopbackSubnet
from wanbed.testbed.relay.relay import Listeners
from wanbed.testbed.relay.relay_config import RelayConfig
from wanbed.testbed.relay.relay_substrate import RelayedStacks, RelaySubstrate, check_can_be_relayed, running_relay
from wanbed.testbed.substrate.substrate import SubstrateError

DOCUMENT = {
    "datacenters": [{"name": name, "hosts": 1} for name in ("east", "west")],
    "wan": {"latency": "20ms", "rate": "100Mbit"},
}


@pytest.fixture
def addresses() -> Iterator[LoopbackAddressBook]:
    with closing(LoopbackSubnet()) as subnet:
        yield addresses_of(subnet.number)


@pytest.fixture
def relay(addresses: LoopbackAddressBook, tmp_path: Path) -> Iterator[RelaySubstrate]:
    with running_relay(addresses, tmp_path, "wb-test", 1.0) as relay:
        yield relay


def addresses_of(subnet_number: int) -> LoopbackAddressBook:
    return LoopbackAddressBook(resolve_topology(parse_model(TopologySpec, DOCUMENT, "test")), subnet_number)


def test_a_relay_that_was_killed_is_an_error_that_says_so_and_stops_without_another(
    addresses: LoopbackAddressBook, tmp_path: Path
) -> None:
    with running_relay(addresses, tmp_path, "wb-test", 1.0) as relay:
        assert {port.total.wire_bytes for port in relay.read_counters()} == {0}
        os.kill(relay._process.pid, signal.SIGKILL)
        os.waitid(os.P_PID, relay._process.pid, os.WEXITED | os.WNOWAIT)
        with pytest.raises(SubstrateError, match=r"^the relay ended; its stderr tail: "):
            relay.settle(1)


def test_a_measurement_does_not_call_another_users_socket(
    relay: RelaySubstrate, addresses: LoopbackAddressBook, monkeypatch: pytest.MonkeyPatch
) -> None:
    stacks = RelayedStacks(addresses, relay)
    west = addresses.topology.host("west-0")
    with (
        stacks.open_socket("east-0", socket.SOCK_STREAM) as caller,
        socket.create_server((addresses.reached_at(west), 0)) as taken,
    ):
        port = taken.getsockname()[1]
        monkeypatch.setattr(os, "geteuid", lambda: os.getuid() + 1)
        with pytest.raises(SubstrateError, match=rf"^--substrate relay: .*:{port} is taken by .* west-0 .*: end that"):
            stacks.connect(caller, "east-0", "west-0", port)


def test_a_relay_takes_only_its_own_users_sockets_for_programs(monkeypatch: pytest.MonkeyPatch) -> None:
    with closing(LoopbackSubnet()) as subnet:
        addresses = addresses_of(subnet.number)
        west = addresses.topology.host("west-0")
        listeners = Listeners({addresses.address(west): addresses.reached_at(west)}, lambda *_: None, 65_536)
        with socket.create_server((addresses.address(west), 0)):
            opened, _ = listeners.look()
            assert len(opened) == 1
            monkeypatch.setattr(os, "geteuid", lambda: os.getuid() + 1)
            assert listeners.look() == ([], opened)
        opened[0].close()


def test_a_relay_drops_another_users_connection_and_names_the_user_once(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    accepted: list[socket.socket] = []
    strangers = ["uid 65534", "uid 65534"]
    monkeypatch.setattr("wanbed.testbed.relay.relay.foreign_caller", lambda _: strangers.pop() if strangers else None)
    with closing(LoopbackSubnet()) as subnet:
        addresses = addresses_of(subnet.number)
        west = addresses.topology.host("west-0")
        reached = {addresses.address(west): addresses.reached_at(west)}
        listeners = Listeners(reached, lambda made, *_: accepted.append(made), 65_536)
        with socket.create_server((addresses.address(west), 0)) as program:
            ((opened,), _) = listeners.look()
            callers = [socket.create_connection(opened.getsockname()) for _ in range(3)]
            listeners.accept(opened)
            port = program.getsockname()[1]
            for each in (*callers, *accepted, opened):
                each.close()
    assert len(accepted) == 1
    told = capsys.readouterr().err
    assert told == f"dropped a connection of uid 65534 to {addresses.address(west)}:{port}, and all others of theirs\n"


def test_a_relay_outlives_garbage_and_a_thousand_clients_that_are_no_hosts(
    relay: RelaySubstrate, addresses: LoopbackAddressBook
) -> None:
    stacks = RelayedStacks(addresses, relay)
    west = addresses.topology.host("west-0")
    with stacks.open_socket("west-0", socket.SOCK_STREAM) as program:
        program.listen(1)
        relay.look()
        for number in range(1000):
            with socket.create_connection((addresses.reached_at(west), program.getsockname()[1])) as stranger:
                if number % 2:
                    with suppress(OSError):
                        stranger.sendall(b"GET / HTTP/1.1\r\n\r\n")
        program.setblocking(False)
        with pytest.raises(BlockingIOError):
            program.accept()
    assert stacks.echoes("east-0", "west-0", 2).lost == 0


def topology(**wan: Any) -> Topology:
    document = {
        "datacenters": [{"name": name, "hosts": 1} for name in ("east", "west")],
        "wan": {"latency": "20ms", **wan},
    }
    return resolve_topology(parse_model(TopologySpec, document, "test"))


def test_latency_and_rates_can_be_relayed() -> None:
    check_can_be_relayed(topology(rate="1Gbit", node_pair_rate="100Mbit"))


@pytest.mark.parametrize(("wan", "name"), [({"loss": "1%"}, "loss"), ({"jitter": "1ms"}, "jitter")])
def test_an_impairment_is_refused_by_its_name_with_the_link_and_a_remedy(wan: dict[str, str], name: str) -> None:
    with pytest.raises(InputError, match=f"^--substrate relay: east to west has {name}, .*: leave it out, or use "):
        check_can_be_relayed(topology(**wan))


def test_a_configuration_is_the_same_after_it_was_written_and_read(tmp_path: Any) -> None:
    config = RelayConfig(topology(rate="1Gbit"), {"east-0": "127.2.0.2"}, {"east-0": "127.3.0.2"}, 1.5)
    config.write(tmp_path / "relay.json")
    assert RelayConfig.read(tmp_path / "relay.json") == config


def test_a_link_that_changes_is_refused_by_its_ends_with_a_remedy() -> None:
    constant = topology()
    (link,) = constant.wan
    course = course_of([(0, link.conditions), (1, replace(link.conditions, latency_ns=0))])
    changing = replace(constant, wan=(replace(link, courses=(None, course)),))
    check_can_be_relayed(constant)
    with pytest.raises(InputError, match=r"^--substrate relay: the link from west to east changes .*, or use netem"):
        check_can_be_relayed(changing)
