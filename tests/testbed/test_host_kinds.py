import pytest

from tests.testbed.hosts.conformity import differences
from wanbed.testbed import host_kinds
from wanbed.testbed.host_kinds import HOST_KINDS, host_network
from wanbed.testbed.hosts.emulated_hosts import EmulatedHost, EmulatedNetwork
from wanbed.testbed.hosts.host import HostNetwork, NetworkHost
from wanbed.testbed.virtual_time.light_hosts import LightHost, LightNetwork


@pytest.mark.parametrize("host", [EmulatedHost, LightHost])
def test_every_kind_of_host_implements_the_protocol(host: type) -> None:
    assert differences(host, NetworkHost) == []


@pytest.mark.parametrize("network", HOST_KINDS.values())
def test_every_kind_makes_and_ends_its_hosts_in_the_same_way(network: type) -> None:
    assert differences(network, HostNetwork) == []


def test_missing_or_different_methods_are_found() -> None:
    class Other:
        namespace = "/proc/1/ns/net"

        def spawn(self, argv: list[str]) -> None: ...

    assert differences(Other, NetworkHost) == ["configure", "namespace", "shell_pid", "spawn", "start_module"]


@pytest.mark.parametrize(("virtual", "network"), [(False, EmulatedNetwork), (True, LightNetwork)])
def test_the_clock_decides_which_kind_is_taken(virtual: bool, network: type, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(host_kinds, "in_virtual_time", lambda: virtual)
    assert type(host_network()) is network
