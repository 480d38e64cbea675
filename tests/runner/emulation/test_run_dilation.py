from pathlib import Path
from typing import Any

import pytest

from wanbed.ground.errors import InputError
from wanbed.runner.emulation import run_dilation
from wanbed.runner.emulation.run_dilation import RunDilation, check_link_rates, decide_dilation
from wanbed.runner.planner.experiment_file import parse_experiment
from wanbed.runner.resolve.dilation import CapacityError
from wanbed.runner.resolve.experiment import SweepPoint


def points(**changes: Any) -> tuple[SweepPoint, ...]:
    return parse_experiment(
        {
            "topology": {
                "datacenters": [{"name": "east", "hosts": 1}, {"name": "west", "hosts": 1}],
                "wan": {"latency": "10ms", "rate": "1Gbit"},
            },
            **changes,
        },
        "exp.yaml",
        Path(),
    ).points()


class Machine:
    """Measures a capacity, and notes for what: that of its last measurement again, once all are done."""

    def __init__(self, *capacities_bps: int) -> None:
        self.capacities_bps = [*capacities_bps]
        self.asked: list[tuple[str, int]] = []

    def measure(self, substrate: str, demand_bps: int) -> int:
        self.asked.append((substrate, demand_bps))
        return self.capacities_bps[min(len(self.asked), len(self.capacities_bps)) - 1]


@pytest.fixture
def machine(monkeypatch: pytest.MonkeyPatch) -> Machine:
    machine = Machine(1_000_000_000)
    monkeypatch.setattr(run_dilation, "measure_capacity_bps", machine.measure)
    return machine


def test_a_configured_factor_is_used_without_measuring(machine: Machine) -> None:
    assert decide_dilation(points(dilation=4), "guest") == RunDilation(4.0, None)
    assert machine.asked == []


def test_auto_measures_the_machine_at_the_demand(machine: Machine) -> None:
    # 1 Gbit/s each way, of which 80 % of 1 Gbit/s can be carried.
    assert decide_dilation(points(), "guest") == RunDilation(2.5, 1_000_000_000)
    assert machine.asked == [("guest", 2_000_000_000), ("guest", 800_000_000)]


def test_a_machine_that_carries_less_of_slower_links_is_dilated_by_what_it_carries_of_them(machine: Machine) -> None:
    machine.capacities_bps = [1_000_000_000, 500_000_000, 600_000_000]
    assert decide_dilation(points(), "guest") == RunDilation(5.0, 500_000_000)
    assert [demand_bps for _, demand_bps in machine.asked] == [2_000_000_000, 800_000_000, 400_000_000]


def test_a_machine_that_carries_it_needs_no_dilation(machine: Machine) -> None:
    machine.capacities_bps = [10_000_000_000]
    assert decide_dilation(points(), "kernel").factor == 1.0
    assert len(machine.asked) == 1


def test_one_factor_serves_the_sweep_point_that_asks_for_most(machine: Machine) -> None:
    swept = points(sweep={"topology.wan.rate": ["10Mbit", "2Gbit", "100Mbit"]})
    assert decide_dilation(swept, "guest").factor == 5.0
    assert machine.asked[0] == ("guest", 4_000_000_000)


def test_a_demand_far_beyond_the_machine_is_refused(machine: Machine) -> None:
    machine.capacities_bps = [10_000_000]
    with pytest.raises(CapacityError, match=r"^dilation: the links in use ask for 2Gbit at once, more than "):
        decide_dilation(points(), "guest")


def test_dilation_is_one_for_a_whole_run_and_not_swept() -> None:
    with pytest.raises(
        InputError, match=r"^exp\.yaml: sweep: dilation: a run has one for all its sweep points, leave it out"
    ):
        points(sweep={"dilation": [1, 2]})


def test_virtual_time_is_never_dilated_and_nothing_is_measured(machine: Machine) -> None:
    machine.capacities_bps = [1]
    assert decide_dilation(points(clock="virtual"), "kernel") == RunDilation(1.0, None)
    assert machine.asked == []


@pytest.mark.parametrize(("dilation", "rate"), [("auto", "56kbit"), (1, "56kbit"), (20, "19Mbit")])
def test_links_too_slow_for_the_real_clock_are_refused(dilation: object, rate: str) -> None:
    slow = points(dilation=dilation, sweep={"topology.wan.rate": ["1Gbit", rate]})
    with pytest.raises(InputError, match=f"the link from east to west has {rate}.*: on the real clock"):
        check_link_rates(slow)


def test_links_that_the_derived_dilation_makes_too_slow_are_refused() -> None:
    slow = points(sweep={"topology.wan.rate": ["2Mbit", "2Gbit"]})
    check_link_rates(slow)
    with pytest.raises(InputError, match="has 2Mbit, which dilation divides by 5: "):
        check_link_rates(slow, 5)


def test_virtual_time_takes_links_of_any_rate() -> None:
    check_link_rates(points(clock="virtual", sweep={"topology.wan.rate": ["9600bit", "1Gbit"]}))
