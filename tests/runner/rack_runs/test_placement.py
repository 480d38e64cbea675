"""Where the hosts of a sweep point are, with those of flows in the background."""

import random
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support.present import present
from tests.support.refused import refused
from tests.support.runner.background import TO_WEST, with_background
from wanbed.ground.errors import InputError, MissingError
from wanbed.runner.planner.experiment_file import parse_experiment
from wanbed.runner.rack_runs.cluster import DATACENTER_LABEL, GATEWAY_LABEL, Node, in_order
from wanbed.runner.rack_runs.placement import (
    assigned_gpus,
    check_memory,
    gateway_machines,
    gpu_sharing,
    gpus_of,
    gpus_wanted,
    place_hosts,
    place_point,
    unknown_labels,
    used_nodes,
)
from wanbed.runner.resolve.experiment import SweepPoint
from wanbed.testbed.gpus.gpus import Gpu, GpuMemory
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


@pytest.mark.parametrize(
    ("topology", "nodes", "per_machine", "machines"),
    [
        pytest.param(
            network(east=2, west=2),
            [node("a"), node("b", "west"), node("c", "east"), node("d")],
            1,
            ["c", "a", "b", "d"],
            id="a label decides and machines without one fill up",
        ),
        pytest.param(
            network(east=3, west=1),
            RACK,
            2,
            ["rack1", "rack1", "rack2", "rack3"],
            id="several hosts share a machine and two datacenters never do",
        ),
        pytest.param(
            network(east=1, west=1),
            [node("a-head", cpus=0), *RACK],
            1,
            ["rack1", "rack2"],
            id="a machine without CPUs only drives",
        ),
        pytest.param(
            network(east=1, west=1),
            [node("a", "north"), node("b"), node("c")],
            1,
            ["b", "c"],
            id="a machine for another experiment's datacenter is left alone",
        ),
    ],
)
def test_hosts_are_placed_in_their_order(
    topology: Topology, nodes: list[Node], per_machine: int, machines: list[str]
) -> None:
    assert place_hosts(topology, nodes, per_machine) == dict(
        zip((host.name for host in topology.hosts), machines, strict=True)
    )


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
    assert refused(lambda: place_hosts(topology, nodes, per_machine, sharing)) == said


def test_a_label_that_names_no_datacenter_is_told() -> None:
    assert unknown_labels(network(east=1, west=1), [node("a", "north"), node("b"), node("c")]) == [
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
    assert refused(lambda: gateway_machines(network(east=1, west=1), nodes)) == said


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


MACHINES = [Node(name, f"id-of-{name}", "10.0.0.1") for name in ("m1", "m2", "m3")]


def point(*flows: dict[str, Any], east: int = 1) -> SweepPoint:
    document = with_background(*flows, engine="rack")
    document["topology"]["datacenters"][0]["hosts"] = east
    document["training"]["stages"] = 1 + east
    (only,) = parse_experiment(document, "file", Path()).points()
    return only


def test_hosts_of_flows_take_no_place_of_hosts_that_train() -> None:
    placed = place_point(point(TO_WEST), MACHINES[:2], 1)
    assert placed.machine_of == {
        "east-0": "m1",
        "east-background-0": "m1",
        "west-0": "m2",
        "west-background-0": "m2",
    }
    assert [placed.gpus(name) for name in placed.machines] == [0, 0]


def test_flows_are_spread_over_the_machines_of_their_datacenter() -> None:
    flows = [{**TO_WEST, "name": str(number)} for number in range(3)]
    machine_of = place_point(point(*flows, east=2), MACHINES, 1).machine_of
    assert [machine_of[f"east-background-{number}"] for number in range(3)] == ["m1", "m2", "m1"]
    assert {machine_of[f"west-background-{number}"] for number in range(3)} == {"m3"}


TORCH = {"kind": "torch"}

MODEL = {"hidden": 64, "context": 16, "heads": 4, "vocabulary": 128, "layers": 8}


def point_of(compute: dict[str, Any], model: Any = "gpt-a", hosts: int = 1, gpus: int = 1) -> SweepPoint:
    datacenters = [{"name": name, "hosts": hosts, "gpus_per_host": gpus} for name in ("east", "west")]
    document = {
        "name": "x",
        "topology": {"datacenters": datacenters, "wan": {"latency": "5ms"}},
        "compute": compute,
        "engine": "rack",
    }
    (point,) = parse_experiment({**document, "model": model}, "x.yaml", Path()).points()
    return point


def nodes(*gpus: float, cpus: float = 4) -> list[Node]:
    return [Node(f"rack{place}", f"id{place}", f"10.0.0.{place}", {}, cpus, count) for place, count in enumerate(gpus)]


def gpu(name: str) -> Gpu:
    return Gpu("H200", "570", name)


def test_what_waits_for_the_clock_takes_no_gpu() -> None:
    assert gpu_sharing(point_of({}), nodes(8, 8)) is None


def test_what_computes_takes_gpus_where_ray_counts_some() -> None:
    assert gpu_sharing(point_of(TORCH, MODEL), nodes(1, 1)) == 1
    assert gpu_sharing(point_of({**TORCH, "sharing": 2}, MODEL), nodes(1, 1)) == 2
    assert gpu_sharing(point_of(TORCH, MODEL), nodes(0, 0)) is None
    assert gpu_sharing(point_of({**TORCH, "device": "cpu"}, MODEL), nodes(1, 1)) is None


def test_a_machine_that_only_drives_lends_no_gpu() -> None:
    cuda = point_of({**TORCH, "device": "cuda"}, MODEL)
    with pytest.raises(MissingError, match="Ray counts no GPU on the rack's machines: give `ray start` --num-gpus"):
        gpu_sharing(cuda, nodes(8, cpus=0))


def test_a_run_takes_the_most_gpus_that_any_of_its_points_takes_of_a_machine() -> None:
    small, large = (point_of(TORCH, MODEL, gpus=count) for count in (1, 2))
    rack = nodes(4, 4, 4)
    used, gpus = used_nodes(rack, [place_point(point, rack, 1) for point in (small, large)])
    assert ([node.name for node in used], gpus) == (["rack0", "rack1"], {"rack0": 2, "rack1": 2})


def test_hosts_get_gpus_of_their_own_machine() -> None:
    topology = point_of(TORCH, MODEL, hosts=2).topology
    machine_of = {"east-0": "a", "east-1": "a", "west-0": "b", "west-1": "c"}
    visible = {"a": [gpu("A1"), gpu("A2")], "b": [gpu("B1")], "c": [gpu("C1")]}
    assert assigned_gpus(topology, machine_of, visible, 1).uuids == {
        "east-0": ("A1",),
        "east-1": ("A2",),
        "west-0": ("B1",),
        "west-1": ("C1",),
    }
    assert assigned_gpus(topology, machine_of, {**visible, "a": [gpu("A1")]}, 2).most_sharers == 2
    with pytest.raises(InputError, match=r"compute\.sharing: the hosts have 2 GPUs and this machine 1 GPU"):
        assigned_gpus(topology, machine_of, {**visible, "a": [gpu("A1")]}, 1)


def test_a_gpu_without_uuid_cannot_be_given_to_a_host() -> None:
    topology = point_of(TORCH, MODEL).topology
    with pytest.raises(MissingError, match="machine a: hosts get their GPUs by UUID"):
        assigned_gpus(topology, {"east-0": "a", "west-0": "b"}, {"a": [Gpu("H200", "570")], "b": [gpu("B")]}, 1)


class GpuMachine:
    """A machine with one GPU, which it names after itself; ``free_bytes`` is None where NVML says nothing of it."""

    def __init__(self, name: str, free_bytes: int | None) -> None:
        self.name = name
        self._free_bytes = free_bytes

    def gpus(self) -> list[Gpu]:
        return [gpu(f"GPU-of-{self.name}")]

    def call(self, method: str, uuids: list[str]) -> dict[str, GpuMemory]:
        assert method == "gpu_memories"
        return {} if self._free_bytes is None else {uuid: GpuMemory("H200", 2**37, self._free_bytes) for uuid in uuids}

    def start_call(self, method: str, *arguments: Any) -> Any:
        raise NotImplementedError


@pytest.mark.parametrize("east_bytes", [2**36, None])
def test_what_fits_or_is_not_known_is_let_through(east_bytes: int | None) -> None:
    placed = place_point(point_of({**TORCH, "device": "cuda"}, MODEL), nodes(1, 1), 1)
    machines = {"rack0": GpuMachine("rack0", east_bytes), "rack1": GpuMachine("rack1", 2**36)}
    check_memory(placed, machines)
    assigned = present(gpus_of(placed, machines))
    assert dict(assigned.uuids) == {"east-0": ("GPU-of-rack0",), "west-0": ("GPU-of-rack1",)}


def test_a_gpu_of_a_machine_that_others_fill_is_named_before_the_run() -> None:
    placed = place_point(point_of({**TORCH, "device": "cuda"}, MODEL), nodes(1, 1), 1)
    machines = {"rack0": GpuMachine("rack0", 2**36), "rack1": GpuMachine("rack1", 2**20)}
    with pytest.raises(InputError, match=r"H200 \(GPU-of-rack1\) of rack1"):
        check_memory(placed, machines)
