from collections.abc import Sequence
from itertools import combinations
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from wanbed.ground.errors import InputError
from wanbed.runner.planner.experiment_file import parse_experiment
from wanbed.runner.rack_runs.cluster import Node
from wanbed.runner.rack_runs.diagnosis import CarriedPoint, PlainPath, WantedOfMachines, carried_point, rounds
from wanbed.runner.rack_runs.sent_programs import ProgramNeeds
from wanbed.runner.resolve.experiment import SweepPoint

NODES = [Node(name, f"id-{name}", f"10.0.0.{number}") for number, name in enumerate("abc", 1)]

FAST = [PlainPath(*ends, rtt_ms=0.08, there_bps=9e9, back_bps=8e9) for ends in ("ab", "ac", "bc")]


def carried(paths: list[PlainPath], missing: dict[str, list[str]] | None = None, **wan: Any) -> CarriedPoint:
    topology = {"datacenters": [{"name": "east", "hosts": 2}, {"name": "west", "hosts": 1}], "wan": wan}
    experiment = parse_experiment({"name": "x", "topology": topology, "engine": "rack"}, "x.yaml", Path())
    (point,) = experiment.points()
    return carried_point(point, NODES, 1, paths, missing=missing or {})


def test_links_slower_than_the_plain_network_are_carried() -> None:
    found = carried(FAST, latency="10ms", rate="1Gbit")
    assert found.machine_of == {"east-0": "a", "east-1": "b", "west-0": "c"}
    assert found.reasons == ()


def test_a_link_faster_than_the_plain_network_is_named_with_both_figures() -> None:
    assert carried(FAST, latency="10ms", rate="8.5Gbit").reasons == (
        "west to east: 8500Mbit between two hosts is wanted, and a and c have 8.00 Gbit/s without any emulation",
    )


def test_the_worst_pair_of_machines_counts() -> None:
    paths = [*FAST[:2], PlainPath("b", "c", rtt_ms=30.0, there_bps=9e9, back_bps=8e9)]
    assert carried(paths, latency="10ms").reasons == (
        "east to west: an RTT of 20.0 ms is wanted, and b and c have 30.0 ms without any emulation",
    )


def test_machines_that_do_not_reach_each_other_are_named() -> None:
    paths = [*FAST[1:], PlainPath("a", "b", fault="No route to host")]
    assert carried(paths, latency="10ms").reasons == ("a and b do not reach each other: No route to host",)


def test_what_a_machine_lacks_and_hosts_without_room_are_reasons() -> None:
    assert carried(FAST, {"c": ["iperf3 is not installed"], "d": ["ping"]}, latency="10ms").reasons == (
        "c: iperf3 is not installed",
    )
    topology = {"datacenters": [{"name": "east", "hosts": 4}]}
    (point,) = parse_experiment({"name": "x", "topology": topology, "engine": "rack"}, "x.yaml", Path()).points()
    (reason,) = carried_point(point, NODES, 1, FAST, missing={}).reasons
    assert reason.startswith("no room for the hosts of east: 4 hosts")


def test_what_the_experiment_wants_is_asked_of_the_machines_that_would_carry_it() -> None:
    datacenters = [{"name": "east", "hosts": 1}, {"name": "west", "hosts": 1}]
    topology = {"datacenters": datacenters, "wan": {"latency": "10ms"}}
    (point,) = parse_experiment({"name": "x", "topology": topology, "engine": "rack"}, "x.yaml", Path()).points()

    def lacking(_: SweepPoint, machines: Sequence[str]) -> list[str]:
        return [f"{machine}: no nccl-tests" for machine in machines]

    found = carried_point(point, NODES, 1, FAST, missing={"a": ["ping"], "c": ["ping"]}, lacking=lacking)
    assert found.reasons == ("a: ping", "a: no nccl-tests", "b: no nccl-tests")


def test_a_label_that_names_no_datacenter_is_noted_where_the_hosts_fit_all_the_same() -> None:
    nodes = [*NODES[:2], Node("d", "id-d", "10.0.0.4", {"wanbed.datacenter": "esat"})]
    datacenters = [{"name": "east", "hosts": 1}, {"name": "west", "hosts": 1}]
    topology = {"datacenters": datacenters, "wan": {"latency": "10ms"}}
    (point,) = parse_experiment({"name": "x", "topology": topology, "engine": "rack"}, "x.yaml", Path()).points()
    found = carried_point(point, nodes, 1, FAST, missing={})
    assert found.reasons == ()
    assert found.notes == ("d is labelled wanbed.datacenter=esat, no datacenter here, did you mean east?",)


@given(st.integers(0, 17))
def test_every_two_machines_meet_once_and_none_is_in_two_measurements_at_a_time(count: int) -> None:
    names = [f"rack{number}" for number in range(count)]
    found = list(rounds(names))
    assert sorted(tuple(sorted(pair)) for pairs in found for pair in pairs) == sorted(
        tuple(sorted(pair)) for pair in combinations(names, 2)
    )
    for pairs in found:
        busy = [name for pair in pairs for name in pair]
        assert len(set(busy)) == len(busy)


def test_the_bandwidth_of_a_path_is_that_of_its_direction() -> None:
    path = PlainPath("a", "b", 0.1, there_bps=2e9, back_bps=1e9)
    assert (path.bps("a"), path.bps("b")) == (2e9, 1e9)


def points(**program: Any) -> tuple[SweepPoint, ...]:
    return parse_experiment(
        {
            "name": "x",
            "topology": {"datacenters": [{"name": "east", "hosts": 1}, {"name": "west", "hosts": 1}], "wan": {}},
            "variants": [{"name": "mine", "program": {"pattern": "step", "iterations": 4, **program}}],
            "sweep": {"topology.wan.latency": ["1ms", "2ms"]},
            "engine": "rack",
        },
        "x.yaml",
        Path(),
    ).points()


@pytest.fixture(autouse=True)
def _folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "train.py").touch()
    monkeypatch.chdir(tmp_path)


class Machines:
    """Machines of which one lacks a program; ``asked`` are the questions."""

    def __init__(self, lacking: str) -> None:
        self.asked: list[tuple[str, str]] = []
        self._lacking = lacking

    def ask(self, machine: str, method: str, wanted: tuple[Any, ...]) -> str | None:
        self.asked.append((machine, method))
        (needs,) = wanted if method == "lacking_program" else (ProgramNeeds(),)
        lacks = machine == self._lacking and any(program.name == "nccl-tests" for program in needs.programs)
        return "variants.0.program.command: nccl-tests: there is no such program" if lacks else None


def test_the_machine_that_lacks_a_program_is_named_with_the_field(tmp_path: Path) -> None:
    machines = Machines("b")
    wanted = WantedOfMachines(machines.ask, tmp_path / "runs")
    for point in points(command=["nccl-tests", "train.py"]):
        assert wanted.lacking(point, ["a", "b"]) == [
            "b: variants.0.program.command: nccl-tests: there is no such program"
        ]
    # Both sweep points want the same.
    assert len(machines.asked) == len({*machines.asked}) == 6


def test_a_file_that_is_neither_sent_nor_on_the_machines_is_refused_as_by_a_run(tmp_path: Path) -> None:
    wanted = WantedOfMachines(Machines("").ask, tmp_path / "runs")
    (tmp_path / "below").mkdir()
    point, _ = points(command=["{python}", "../beside.py"])
    (tmp_path.parent / "beside.py").touch()
    with pytest.raises(InputError, match=r"variants\.0\.program\.command: .*is not among the files"):
        wanted.lacking(point, ["a"])
