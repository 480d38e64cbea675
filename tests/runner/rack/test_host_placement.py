import random
from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from wanbed.ground.strict_model import InputError
from wanbed.runner.rack.host_placement import (
    DATACENTER_LABEL,
    GATEWAY_LABEL,
    Node,
    gateway_machines,
    gpus_wanted,
    in_order,
    place_hosts,
    unknown_labels,
)
from wanbed.testbed.network.topology import Topology, resolve_topology
from wanbed.testbed.network.topology_spec import TopologySpec


def network(gpus_per_host: int = 1, **hosts: int) -> Topology:
    datacenters = [{"name": name, "hosts": count, "gpus_per_host": gpus_per_host} for name, count in hosts.items()]
    return resolve_topology(
        TopologySpec.model_validate({"datacenters": datacenters, "wan": {"latency": "5ms", "rate": "1Gbit"}})
    )


def node(name: str, datacenter: str | None = None, cpus: float = 4, gpus: float = 0) -> Node:
    labels = {} if datacenter is None else {DATACENTER_LABEL: datacenter}
    return Node(name, f"id-of-{name}", f"10.0.0.{len(name)}", labels, cpus, gpus)


RACK = [node(f"rack{number}") for number in range(1, 13)]


def test_machines_without_labels_are_taken_in_the_order_of_their_names() -> None:
    assert [each.name for each in in_order(RACK[::-1])] == [f"rack{number}" for number in range(1, 13)]
    assert place_hosts(network(east=2, west=1), RACK[::-1]) == {
        "east-0": "rack1",
        "east-1": "rack2",
        "west-0": "rack3",
    }


def test_a_label_decides_and_machines_without_one_fill_up() -> None:
    nodes = [node("a"), node("b", "west"), node("c", "east"), node("d")]
    assert place_hosts(network(east=2, west=2), nodes) == {
        "east-0": "c",
        "east-1": "a",
        "west-0": "b",
        "west-1": "d",
    }


def test_several_hosts_share_a_machine_and_two_datacenters_never_do() -> None:
    assert place_hosts(network(east=3, west=1), RACK, 2) == {
        "east-0": "rack1",
        "east-1": "rack1",
        "east-2": "rack2",
        "west-0": "rack3",
    }


def test_a_machine_without_cpus_only_drives() -> None:
    assert place_hosts(network(east=1, west=1), [node("a-head", cpus=0), *RACK])["east-0"] == "rack1"


@pytest.mark.parametrize(
    ("topology", "nodes", "per_machine", "sharing", "said"),
    [
        (
            network(east=2, west=2),
            [*RACK[:3], node("head", cpus=0)],
            1,
            None,
            "no room for the hosts of west: 4 hosts in 2 datacenters, 1 a machine, want 4 machines, and the rack has "
            "3; 1 machine more without CPUs in Ray only drive: add machines, or give --hosts-per-machine 2",
        ),
        (
            network(east=1, west=1),
            [node("a", "east"), node("b", "eats")],
            1,
            None,
            "no room for the hosts of west: 2 hosts in 2 datacenters, 1 a machine, want 2 machines, and the rack has "
            "2; 2 of them labelled for other datacenters; b is labelled wanbed.datacenter=eats, no datacenter here, "
            "did you mean east?: add machines",
        ),
        (
            network(gpus_per_host=8, east=1, west=1),
            [node("a", gpus=8), node("b", gpus=4)],
            1,
            1,
            "no room for the hosts of west: 2 hosts in 2 datacenters, 1 a machine, want 2 machines, and the rack has "
            "2; a host of west wants 8 GPUs, and Ray counts 8 and 4 on them: add machines",
        ),
        (
            network(east=1, west=1),
            [],
            1,
            None,
            "no room for the hosts of east: 2 hosts in 2 datacenters, 1 a machine, want 2 machines, and the rack has "
            "0: add machines",
        ),
    ],
)
def test_hosts_that_do_not_fit_are_refused_with_the_arithmetic(
    topology: Topology, nodes: list[Node], per_machine: int, sharing: int | None, said: str
) -> None:
    with pytest.raises(InputError) as refusal:
        place_hosts(topology, nodes, per_machine, sharing)
    assert str(refusal.value) == said


def test_a_machine_for_another_experiments_datacenter_is_left_alone() -> None:
    nodes = [node("a", "north"), node("b"), node("c")]
    assert set(place_hosts(network(east=1, west=1), nodes).values()) == {"b", "c"}
    assert unknown_labels(network(east=1, west=1), nodes) == [
        "a is labelled wanbed.datacenter=north, no datacenter here: there are east and west"
    ]


def test_a_label_that_would_change_the_terminal_is_shown_escaped() -> None:
    (line,) = unknown_labels(network(east=1, west=1), [node("a", "no\x1b[31m\u202erth")])
    assert line.startswith("a is labelled wanbed.datacenter=no\\x1b[31m\\u202erth, no datacenter here")


def gateway(name: str, datacenter: str) -> Node:
    return Node(name, f"id-of-{name}", "10.0.0.99", {GATEWAY_LABEL: datacenter}, 4)


def test_a_gateway_machine_is_that_of_its_datacenter_and_carries_no_hosts() -> None:
    topology = network(east=2, west=1)
    nodes = [gateway("a", "east"), node("b"), node("c"), node("d"), gateway("e", "north")]
    assert gateway_machines(topology, nodes) == {"east": "a"}
    assert set(place_hosts(topology, nodes).values()) == {"b", "c", "d"}
    with pytest.raises(InputError, match=r"the rack has 2; .*; a and e more only forward, as a gateway: add machines"):
        place_hosts(topology, nodes[:3] + nodes[4:])


def test_a_datacenter_with_two_gateway_machines_is_refused() -> None:
    nodes = [*RACK, gateway("one", "east"), gateway("two", "east")]
    said = "one and two are labelled wanbed.gateway=east, and a trunk goes through one machine: leave one of the labels"
    with pytest.raises(InputError) as refusal:
        gateway_machines(network(east=1, west=1), nodes)
    assert str(refusal.value) == said


def test_a_datacenter_with_many_gpus_a_host_gets_the_machines_that_have_them() -> None:
    spec = {"datacenters": [{"name": "small", "hosts": 1}, {"name": "large", "hosts": 1, "gpus_per_host": 8}]}
    topology = resolve_topology(TopologySpec.model_validate({**spec, "wan": {"latency": "5ms"}}))
    nodes = [node("a", gpus=8), node("b", gpus=1)]
    assert place_hosts(topology, nodes, 1, 1) == {"small-0": "b", "large-0": "a"}


def test_emulated_gpus_share_real_ones() -> None:
    topology = network(gpus_per_host=4, east=2, west=1)
    assert gpus_wanted(topology.hosts, 2) == 6
    assert gpus_wanted(topology.hosts, None) == 0
    assert set(place_hosts(topology, [node("a", gpus=2), node("b", gpus=2), node("c", gpus=2)], 1, 2).values()) == set(
        "abc"
    )


@st.composite
def racks(draw: st.DrawFn) -> tuple[Topology, list[Node], int, int | None]:
    names = ["east", "west", "north"][: draw(st.integers(1, 3))]
    topology = network(draw(st.integers(1, 4)), **{name: draw(st.integers(1, 5)) for name in names})
    label = st.sampled_from([None, None, *names, "elsewhere"])
    nodes = [
        node(f"m{number}", draw(label), draw(st.sampled_from([0, 4, 4])), draw(st.integers(0, 8)))
        for number in range(draw(st.integers(0, 12)))
    ]
    return topology, nodes, draw(st.integers(1, 4)), draw(st.sampled_from([None, 1, 2]))


@given(racks(), st.randoms())
def test_a_placement_keeps_every_rule_or_is_refused(
    rack: tuple[Topology, list[Node], int, int | None], dice: random.Random
) -> None:
    topology, nodes, per_machine, sharing = rack
    shuffled = nodes[:]
    dice.shuffle(shuffled)
    try:
        machine_of = place_hosts(topology, nodes, per_machine, sharing)
    except InputError:
        with pytest.raises(InputError, match="no room"):
            place_hosts(topology, shuffled, per_machine, sharing)
        return
    by_name = {each.name: each for each in nodes}
    assert place_hosts(topology, shuffled, per_machine, sharing) == machine_of
    assert list(machine_of) == [host.name for host in topology.hosts]
    assert max(Counter(machine_of.values()).values()) <= per_machine
    for machine in set(machine_of.values()):
        hosts = [host for host in topology.hosts if machine_of[host.name] == machine]
        (datacenter,) = {host.datacenter for host in hosts}
        assert by_name[machine].carries_hosts
        assert by_name[machine].datacenter in {None, datacenter}
        assert gpus_wanted(hosts, sharing) <= by_name[machine].gpus


@given(racks())
def test_hosts_are_refused_only_where_machines_are_too_few(rack: tuple[Topology, list[Node], int, int | None]) -> None:
    topology, nodes, per_machine, _ = rack
    carrying = [each for each in nodes if each.carries_hosts]
    short = sum(
        max(0, -(-len(each.hosts) // per_machine) - sum(node.datacenter == each.name for node in carrying))
        for each in topology.datacenters
    )
    if short <= sum(node.datacenter is None for node in carrying):
        assert place_hosts(topology, nodes, per_machine)
    else:
        with pytest.raises(InputError, match="no room"):
            place_hosts(topology, nodes, per_machine)
