from wanbed.ground.strict_model import parse_model
from wanbed.testbed.network.address_book import AddressBook, LoopbackAddressBook
from wanbed.testbed.network.topology import resolve_topology
from wanbed.testbed.network.topology_spec import TopologySpec

TOPOLOGY = resolve_topology(
    parse_model(
        TopologySpec,
        {"datacenters": [{"name": "east", "hosts": 2}, {"name": "west", "hosts": 1}], "wan": {"latency": "1ms"}},
        "test",
    )
)


def test_a_hosts_address_follows_from_slot_datacenter_and_number() -> None:
    book = AddressBook(TOPOLOGY, slot=3)
    assert {host.name: book.address(host) for host in TOPOLOGY.hosts} == {
        "east-0": "10.3.0.2",
        "east-1": "10.3.0.3",
        "west-0": "10.3.1.2",
    }


def test_two_slots_share_no_address() -> None:
    one, other = ({AddressBook(TOPOLOGY, slot).address(host) for host in TOPOLOGY.hosts} for slot in (1, 2))
    assert not one & other


def test_the_hosts_file_names_every_host_and_the_host_itself() -> None:
    text = AddressBook(TOPOLOGY, slot=3).hosts_file()
    assert text.endswith("\n")
    assert [line.split() for line in text.splitlines()] == [
        ["127.0.0.1", "localhost"],
        ["10.3.0.2", "east-0"],
        ["10.3.0.3", "east-1"],
        ["10.3.1.2", "west-0"],
    ]


def test_hosts_on_the_loopback_are_reached_by_others_at_an_address_of_its_own() -> None:
    book = LoopbackAddressBook(TOPOLOGY, 3)
    one, other, far = TOPOLOGY.hosts
    assert [book.address(host) for host in (one, other, far)] == ["127.6.0.2", "127.6.0.3", "127.6.1.2"]
    assert book.address_from(far, one) == "127.7.1.2"
    assert book.address_from(one, one) == book.address(one)


def test_in_namespaces_every_host_is_reached_where_it_is() -> None:
    book = AddressBook(TOPOLOGY, 3)
    assert [book.address_from(far, TOPOLOGY.hosts[0]) for far in TOPOLOGY.hosts] == [
        book.address(host) for host in TOPOLOGY.hosts
    ]
