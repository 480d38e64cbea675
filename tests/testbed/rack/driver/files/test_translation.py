"""A configuration that the driver has written is one that a machine's process can use."""

import json
from pathlib import Path

import pytest

from wanbed.testbed.rack.driver.files.translation import (
    MachinePlace,
    input_path,
    named_configurations,
    named_inputs,
    translated,
)

DRIVER = Path("/run/wanbed/3")


@pytest.fixture
def place() -> MachinePlace:
    return MachinePlace(DRIVER, "/run/wanbed/7/files", parent_pid=41, ahead_ns=-250)


def test_paths_of_the_testbed_are_those_of_the_machine(place: MachinePlace) -> None:
    document = {
        "span_log": f"{DRIVER}/trial/rank-0.spans",
        "start_gate": f"{DRIVER}/trial/start",
        "also": [f"{DRIVER}/x"],
    }
    assert translated(document, place) == {
        "span_log": "/run/wanbed/7/files/trial/rank-0.spans",
        "start_gate": "/run/wanbed/7/files/trial/start",
        "also": ["/run/wanbed/7/files/x"],
    }


def test_the_epoch_is_on_the_machines_clock_and_the_parent_is_the_machines_process(place: MachinePlace) -> None:
    document = {"epoch_ns": 1_000, "parent_pid": 7, "serving": {"epoch_ns": 1_000, "parent_pid": None}}
    expected = {"epoch_ns": 750, "parent_pid": 41, "serving": {"epoch_ns": 750, "parent_pid": None}}
    assert translated(document, place) == expected


def test_everything_else_is_left_as_it_is(place: MachinePlace) -> None:
    document = {"host": "east-0", "rank": 3, "rate": 0.5, "gone": None, "chunks": [1, [2]], "kind": "/no/such/file"}
    assert translated(document, place) == json.loads(json.dumps(document))


def test_a_file_that_the_driver_has_elsewhere_goes_along(place: MachinePlace, tmp_path: Path) -> None:
    text = tmp_path / "corpus.txt"
    text.write_text("words")
    document = {"compute": {"text": str(text)}, "log": f"{DRIVER}/trial/log"}
    assert [*named_inputs(document, DRIVER)] == [text]
    assert translated(document, place)["compute"]["text"] == f"/run/wanbed/7/files/{input_path(text)}"
    other = tmp_path / "other"
    other.mkdir()
    assert input_path(other / "corpus.txt") != input_path(text)


def test_a_program_is_called_as_it_is_written_but_for_paths_of_the_testbed(place: MachinePlace) -> None:
    document = {
        "command": ["/bin/sh", f"{DRIVER}/trial/each.json", "--plain"],
        "environment": {"TEXT": "/etc/hostname", "OWN": f"{DRIVER}/trial"},
        "hook": {"log": f"{DRIVER}/trial/rank-{{rank}}.spans", "epoch_ns": 1_000},
    }
    assert [*named_inputs(document, DRIVER)] == []
    assert translated(document, place) == {
        "command": ["/bin/sh", "/run/wanbed/7/files/trial/each.json", "--plain"],
        "environment": document["environment"],
        "hook": {"log": "/run/wanbed/7/files/trial/rank-{rank}.spans", "epoch_ns": 750},
    }


def test_what_a_launcher_hands_on_is_a_configuration_too(tmp_path: Path) -> None:
    each = tmp_path / "each.json"
    each.write_text("{}")
    document = {"command": ["/bin/sh", str(each), str(tmp_path / "none.json"), "/etc/hostname"]}
    assert [*named_configurations(document, tmp_path)] == [each]
    assert [*named_configurations([], tmp_path)] == []
