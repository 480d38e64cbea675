from pathlib import Path
from typing import Any

import pytest

from wanbed.ground.errors import InputError
from wanbed.runner.emulation import virtual_clock
from wanbed.runner.emulation.virtual_clock import status_of_inner, wants_guest
from wanbed.runner.experiment.experiment_spec import ExperimentSpec
from wanbed.runner.planner.experiment_file import parse_experiment
from wanbed.testbed.virtual_time.guest import GuestError

TOPOLOGY = {"datacenters": [{"name": "east", "hosts": 1}, {"name": "west", "hosts": 1}], "wan": {"rate": "1Gbit"}}


def spec(**fields: Any) -> ExperimentSpec:
    return parse_experiment({"topology": TOPOLOGY, **fields}, "exp.yaml", Path()).spec


def test_only_the_virtual_clock_asks_for_a_guest_and_only_outside(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(virtual_clock, "in_virtual_time", lambda: False)
    assert wants_guest(spec(clock="virtual"), "auto")
    assert not wants_guest(spec(clock="real"), "auto")
    monkeypatch.setattr(virtual_clock, "in_virtual_time", lambda: True)
    assert not wants_guest(spec(clock="virtual"), "auto")


@pytest.mark.parametrize("substrate", ["guest", "relay"])
def test_nothing_but_the_kernel_stands_between_hosts_in_virtual_time(substrate: str) -> None:
    with pytest.raises(InputError, match=f"^--substrate {substrate}: in virtual time"):
        wants_guest(spec(clock="virtual"), substrate)


@pytest.mark.parametrize(
    ("fields", "text"),
    [
        ({"compute": {"kind": "torch"}, "model": "gpt-tiny"}, "compute.kind: in virtual time computation is free"),
        ({"dilation": 2}, "dilation: virtual time carries every rate, it is never dilated"),
    ],
)
def test_what_virtual_time_cannot_do_is_refused_and_a_simulation_does_not_mind(
    fields: dict[str, Any], text: str
) -> None:
    with pytest.raises(InputError, match=f"^exp.yaml: {text}"):
        spec(clock="virtual", **fields)
    assert spec(clock="virtual", engine="simulate", **fields).clock == "virtual"


def test_a_command_that_was_killed_inside_leaves_no_data() -> None:
    assert [status_of_inner(status) for status in (0, 1, 4)] == [0, 1, 4]
    with pytest.raises(GuestError, match=r"^virtual time: the command inside was killed by signal 9$"):
        status_of_inner(137)
