"""Where the hosts of a sweep point are, with those of flows in the background."""

from pathlib import Path
from typing import Any

from tests.support.runner.background import TO_WEST, with_background
from wanbed.runner.planner.experiment_file import parse_experiment
from wanbed.runner.rack.host_placement import Node
from wanbed.runner.rack.point_placement import place_point
from wanbed.runner.resolve.experiment import SweepPoint

RACK = [Node(name, f"id-of-{name}", "10.0.0.1") for name in ("m1", "m2", "m3")]


def point(*flows: dict[str, Any], east: int = 1) -> SweepPoint:
    document = with_background(*flows, engine="rack")
    document["topology"]["datacenters"][0]["hosts"] = east
    document["training"]["stages"] = 1 + east
    (only,) = parse_experiment(document, "file", Path()).points()
    return only


def test_hosts_of_flows_take_no_place_of_hosts_that_train() -> None:
    placed = place_point(point(TO_WEST), RACK[:2], 1)
    assert placed.machine_of == {
        "east-0": "m1",
        "east-background-0": "m1",
        "west-0": "m2",
        "west-background-0": "m2",
    }
    assert [placed.gpus(name) for name in placed.machines] == [0, 0]


def test_flows_are_spread_over_the_machines_of_their_datacenter() -> None:
    flows = [{**TO_WEST, "name": str(number)} for number in range(3)]
    machine_of = place_point(point(*flows, east=2), RACK, 1).machine_of
    assert [machine_of[f"east-background-{number}"] for number in range(3)] == ["m1", "m2", "m1"]
    assert {machine_of[f"west-background-{number}"] for number in range(3)} == {"m3"}
