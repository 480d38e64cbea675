from collections import Counter
from ipaddress import IPv4Address, IPv4Network

from hypothesis import given
from hypothesis import strategies as st

from wanbed.testbed.network import addressing
from wanbed.testbed.network.addressing import GATEWAY_SIDE, HOST_SIDE, MAX_SLOTS
from wanbed.testbed.network.topology import MAX_EMULATED_HOSTS_PER_DATACENTER
from wanbed.testbed.network.topology_spec import MAX_DATACENTERS

SLOTS = st.integers(1, MAX_SLOTS)
DATACENTERS = st.integers(0, MAX_DATACENTERS - 1)
HOSTS = st.integers(0, MAX_EMULATED_HOSTS_PER_DATACENTER - 1)


@given(SLOTS, DATACENTERS, HOSTS)
def test_a_datacenters_subnet_holds_its_gateway_and_its_hosts(slot: int, datacenter: int, host: int) -> None:
    network = IPv4Network(f"{addressing.subnet(slot, datacenter)}/24")
    gateway = IPv4Address(addressing.gateway_address(slot, datacenter))
    address = IPv4Address(addressing.host_address(slot, datacenter, host))
    assert {gateway, address} < set(network.hosts())
    assert gateway != address


@given(SLOTS, DATACENTERS, HOSTS)
def test_addresses_are_private_and_contain_slot_datacenter_and_host(slot: int, datacenter: int, host: int) -> None:
    address = IPv4Address(addressing.host_address(slot, datacenter, host))
    assert address.is_private
    assert list(address.packed) == [10, slot, datacenter, host + 2]


def test_no_two_interfaces_of_a_testbed_share_a_mac_address() -> None:
    datacenters, hosts = 6, MAX_EMULATED_HOSTS_PER_DATACENTER
    macs = [
        addressing.host_link_mac(7, datacenter, host, side)
        for datacenter in range(datacenters)
        for host in range(hosts)
        for side in (HOST_SIDE, GATEWAY_SIDE)
    ]
    macs += [
        addressing.wan_link_mac(7, datacenter, peer)
        for datacenter in range(datacenters)
        for peer in range(datacenters)
        if datacenter != peer
    ]
    assert Counter(macs).most_common(1)[0][1] == 1


@given(SLOTS, DATACENTERS, HOSTS)
def test_mac_addresses_are_six_octets_of_a_locally_administered_single_card(
    slot: int, datacenter: int, host: int
) -> None:
    for mac in (
        addressing.host_link_mac(slot, datacenter, host, HOST_SIDE),
        addressing.host_link_mac(slot, datacenter, host, GATEWAY_SIDE),
        addressing.wan_link_mac(slot, datacenter, host),
    ):
        octets = bytes.fromhex(mac.replace(":", ""))
        assert len(octets) == len(mac.split(":")) == 6
        assert octets[0] & 0b11 == 0b10


def test_addresses_are_numbered_as_the_module_says() -> None:
    assert addressing.gateway_address(7, 3) == "10.7.3.1"
    assert [addressing.host_address(7, 3, host) for host in (0, 249)] == ["10.7.3.2", "10.7.3.251"]
    assert addressing.subnet(7, 3) == "10.7.3.0"


def test_macs_are_derived_from_the_same_numbers() -> None:
    assert addressing.host_link_mac(7, 3, 5, HOST_SIDE) == "02:01:07:03:00:05"
    assert addressing.host_link_mac(7, 3, 5, GATEWAY_SIDE) == "02:02:07:03:00:05"
    assert addressing.wan_link_mac(7, 3, 5) == "02:03:07:03:05:00"
    assert addressing.machine_link_mac(0x123456, 0x0102) == "02:12:34:56:01:02"


def test_machines_of_a_rack_have_the_addresses_of_a_link_from_the_first_on() -> None:
    found = [addressing.tunnel_address(machine) for machine in (0, 254, 255)]
    assert found == ["169.254.0.1", "169.254.0.255", "169.254.1.0"]


def test_a_part_of_the_loopback_has_two_subnets_and_its_owner_an_address_of_no_host() -> None:
    assert [addressing.loopback_address(3, 4, 5, reached=reached) for reached in (False, True)] == [
        "127.6.4.7",
        "127.7.4.7",
    ]
    assert addressing.loopback_lock_address(3) == "127.6.255.254"
    # The last part is within the loopback.
    assert addressing.loopback_address(addressing.LOOPBACK_SUBNETS, 0, 0, reached=True) == "127.251.0.2"
