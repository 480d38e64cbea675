"""The dilation of a run over a rack: the smallest with which every machine carries its part."""

from pathlib import Path
from typing import Any

import pytest

from tests.support.runner.background import with_background
from wanbed.runner.planner.experiment_file import parse_experiment
from wanbed.runner.rack.host_placement import Node
from wanbed.runner.rack.point_placement import PointPlacement, place_point
from wanbed.runner.rack.rack_dilation import MachineDemand, RackDilation, derived_factor, heaviest_demands
from wanbed.runner.resolve.dilation import CapacityError

MBIT = 10**6
RACK = [Node(name, f"id-of-{name}", "10.0.0.1") for name in ("one", "two")]


def placements(**sweep: list[str]) -> list[PointPlacement]:
    """Return where the hosts of one pipeline over two datacenters are, for every rate of a sweep."""
    document: dict[str, Any] = {**with_background(engine="rack"), "sweep": {"topology.wan.rate": sweep["rate"]}}
    return [place_point(point, RACK, 1) for point in parse_experiment(document, "file", Path()).points()]


def test_the_machine_that_has_least_to_spare_decides_and_is_recorded() -> None:
    loads = {"one": MachineDemand(700 * MBIT, 1000 * MBIT, 8, 1), "two": MachineDemand(400 * MBIT, 250 * MBIT, 2, 3)}
    factor = derived_factor(loads, real_time=False)
    assert factor == 2.0
    facts = RackDilation(factor, loads).facts()
    assert (facts["dilation"], facts["capacity_bps"], facts["dilation_decided_by"]) == (2.0, 250 * MBIT, "two")
    assert facts["dilation_machines"]["one"] == {
        "demand_bps": 700 * MBIT,
        "capacity_bps": 1000 * MBIT,
        "cores": 8,
        "hosts": 1,
    }


def test_machines_with_enough_to_spare_dilate_nothing() -> None:
    assert derived_factor({"one": MachineDemand(700 * MBIT, 1000 * MBIT, 8, 1)}, real_time=True) == 1.0
    assert derived_factor({}, real_time=False) == 1.0
    assert RackDilation(1.0, {}).facts() == {"dilation": 1.0, "capacity_bps": None}


def test_a_machine_that_cannot_carry_its_part_is_named() -> None:
    loads = {"two": MachineDemand(400 * MBIT, 250 * MBIT, 2, 3)}
    with pytest.raises(
        CapacityError,
        match=r"ask for 400Mbit at once, more than 200Mbit, 80 % of the 250Mbit that machine two carries, and what",
    ):
        derived_factor(loads, real_time=True)


def test_what_is_heaviest_for_every_machine_is_measured_alone() -> None:
    every = placements(rate=["20Mbit", "80Mbit", "40Mbit"])
    ((placed, demand),) = heaviest_demands(every)
    assert placed is every[1]
    assert demand.wan_bps == 2 * 80 * MBIT


def test_nothing_is_measured_where_no_link_has_a_rate() -> None:
    assert heaviest_demands([]) == []
