from pathlib import Path
from typing import Any

import pytest

from wanbed.ground.strict_model import InputError
from wanbed.runner.planner.experiment_file import parse_experiment
from wanbed.runner.rack.diagnosis.wanted_of_machines import WantedOfMachines
from wanbed.runner.rack.shipped.program_needs import ProgramNeeds
from wanbed.runner.resolve.experiment import SweepPoint


def points(**program: Any) -> tuple[SweepPoint, ...]:
    document = {
        "name": "x",
        "topology": {"datacenters": [{"name": "east", "hosts": 1}, {"name": "west", "hosts": 1}], "wan": {}},
        "variants": [{"name": "mine", "program": {"pattern": "step", "iterations": 4, **program}}],
        "sweep": {"topology.wan.latency": ["1ms", "2ms"]},
        "engine": "rack",
    }
    return parse_experiment(document, "x.yaml", Path()).points()


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
