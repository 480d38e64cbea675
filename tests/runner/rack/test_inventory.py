from typing import Any

from wanbed.runner.rack.inventory import nodes_of


def entry(hostname: str, address: str, **more: Any) -> dict[str, Any]:
    return {
        "NodeID": f"id-{address}",
        "Alive": True,
        "NodeManagerAddress": address,
        "NodeManagerHostname": hostname,
        "NodeName": address,
        "Resources": {"CPU": 8.0, "GPU": 2.0},
        "Labels": {"wanbed.datacenter": "east"},
        **more,
    }


def test_machines_are_listed_by_name_with_what_ray_counts() -> None:
    (first, second) = nodes_of([entry("rack10", "10.0.0.1"), entry("rack9", "10.0.0.2", Resources={}, Labels=None)])
    assert (first.name, first.datacenter, first.cpus, first.carries_hosts) == ("rack9", None, 0, False)
    assert (second.name, second.datacenter, second.cpus, second.gpus) == ("rack10", "east", 8, 2)


def test_a_name_that_ray_was_given_comes_before_the_hostname() -> None:
    (node,) = nodes_of([entry("vm", "10.0.0.1", NodeName="front")])
    assert node.name == "front"


def test_machines_of_one_hostname_are_told_apart_by_their_addresses() -> None:
    assert [
        node.name for node in nodes_of([entry("vm", "10.0.0.10"), entry("vm", "10.0.0.9"), entry("x", "1.1.1.1")])
    ] == [
        "10.0.0.9",
        "10.0.0.10",
        "x",
    ]


def test_machines_that_have_left_are_not_listed() -> None:
    assert nodes_of([entry("rack1", "10.0.0.1", Alive=False)]) == []


def test_a_machine_of_any_name_is_listed_by_one_that_can_be_shown() -> None:
    names = ["rack\x1b[31m\u202e", "x" * 5000, "9" * 5000, "rack²", "rack\u0661"]
    listed = nodes_of([entry(name, f"10.0.0.{number}") for number, name in enumerate(names, start=1)])
    assert {node.name for node in listed} == {
        "rack\\x1b[31m\\u202e",
        f"{'x' * 60}...",
        f"{'9' * 60}...",
        "rack²",
        "rack\u0661",
    }
