"""A configuration that the driver has written is one that a machine's process can use."""

import json
from pathlib import Path

import pytest

from wanbed.testbed.rack.driver.started_module import MachinePlace, Translation, input_path

DRIVER = Path("/run/wanbed/3")


@pytest.fixture
def translation() -> Translation:
    return translation_for(DRIVER, set())


def translation_for(driver_folder: Path, inputs: set[str]) -> Translation:
    return Translation(MachinePlace(driver_folder, "/run/wanbed/7/files", parent_pid=41, ahead_ns=-250), inputs)


def test_paths_of_the_testbed_are_those_of_the_machine(translation: Translation) -> None:
    document = {
        "span_log": f"{DRIVER}/trial/rank-0.spans",
        "start_gate": f"{DRIVER}/trial/start",
        "also": [f"{DRIVER}/x"],
    }
    assert translation.translated(document) == {
        "span_log": "/run/wanbed/7/files/trial/rank-0.spans",
        "start_gate": "/run/wanbed/7/files/trial/start",
        "also": ["/run/wanbed/7/files/x"],
    }


def test_the_epoch_is_on_the_machines_clock_and_the_parent_is_the_machines_process(translation: Translation) -> None:
    document = {"epoch_ns": 1_000, "parent_pid": 7, "serving": {"epoch_ns": 1_000, "parent_pid": None}}
    expected = {"epoch_ns": 750, "parent_pid": 41, "serving": {"epoch_ns": 750, "parent_pid": None}}
    assert translation.translated(document) == expected


def test_everything_else_is_left_as_it_is(translation: Translation) -> None:
    document = {"host": "east-0", "rank": 3, "rate": 0.5, "gone": None, "chunks": [1, [2]], "kind": "/no/such/file"}
    assert translation.translated(document) == json.loads(json.dumps(document))


def test_a_file_that_the_driver_has_elsewhere_goes_along(translation: Translation, tmp_path: Path) -> None:
    text = tmp_path / "corpus.txt"
    text.write_text("words")
    document = {"compute": {"text": str(text)}, "log": f"{DRIVER}/trial/log"}
    assert translation.translated(document)["compute"]["text"] == f"/run/wanbed/7/files/{input_path(text)}"
    assert translation.files == {input_path(text): b"words"}
    again = translation_for(DRIVER, {input_path(text)})
    assert again.translated(document) == translation.translated(document)
    assert again.files == {}
    other = tmp_path / "other"
    other.mkdir()
    assert input_path(other / "corpus.txt") != input_path(text)


def test_a_program_is_called_as_it_is_written_but_for_paths_of_the_testbed(translation: Translation) -> None:
    document = {
        "command": ["/bin/sh", f"{DRIVER}/trial/each.json", "--plain"],
        "environment": {"TEXT": "/etc/hostname", "OWN": f"{DRIVER}/trial"},
        "hook": {"log": f"{DRIVER}/trial/rank-{{rank}}.spans", "epoch_ns": 1_000},
    }
    assert translation.translated(document) == {
        "command": ["/bin/sh", "/run/wanbed/7/files/trial/each.json", "--plain"],
        "environment": document["environment"],
        "hook": {"log": "/run/wanbed/7/files/trial/rank-{rank}.spans", "epoch_ns": 750},
    }
    assert translation.files == {}


def test_what_a_launcher_hands_on_is_a_configuration_too(tmp_path: Path) -> None:
    launcher, each = tmp_path / "launcher.json", tmp_path / "each.json"
    each.write_text('{"epoch_ns": 1000}')
    launcher.write_text(json.dumps({"command": ["/bin/sh", str(each), str(tmp_path / "none.json"), "/etc/hostname"]}))
    translation = translation_for(tmp_path, set())
    translation.add(launcher)
    assert {name: json.loads(content) for name, content in translation.files.items()} == {
        "launcher.json": {
            "command": [
                "/bin/sh",
                "/run/wanbed/7/files/each.json",
                "/run/wanbed/7/files/none.json",
                "/etc/hostname",
            ]
        },
        "each.json": {"epoch_ns": 750},
    }
