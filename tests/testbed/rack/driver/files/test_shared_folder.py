"""A folder that machines have as if they shared a disk: what one has written, all can be given."""

from pathlib import Path
from typing import Any

import pytest

from wanbed.testbed.rack.driver.files import shared_folder
from wanbed.testbed.rack.driver.files.shared_folder import SharedFolder
from wanbed.testbed.rack.lease.files import LeaseFiles

BELOW = "trial/attempt-0"


class Answer:
    def __init__(self, value: Any) -> None:
        self._value = value

    def result(self, timeout_s: float | None = None) -> Any:
        return self._value


class Machine:
    """A machine with the files of one lease."""

    class clock:  # noqa: N801
        ahead_ns = 0

    def __init__(self, name: str, folder: Path) -> None:
        folder.mkdir()
        self.name, self.files, self.received = name, LeaseFiles(folder), 0

    def start_call(self, method: str, *arguments: Any) -> Answer:
        return Answer(self.call(method, *arguments))

    def call(self, method: str, *arguments: Any) -> Any:
        self.received += method in {"write_files", "append_file"}
        called = {
            "read_files": self.files.read,
            "write_files": self.files.write,
            "append_file": self.files.append,
            "remove_files": self.files.remove,
        }
        return called[method](*arguments)


@pytest.fixture
def machines(tmp_path: Path) -> list[Machine]:
    made = [Machine(name, tmp_path / name) for name in ("one", "two")]
    made[0].files.write({f"{BELOW}/after-1/stage-0": b"0123456789", f"{BELOW}/after-1/stage-0.partial": b"0"})
    made[1].files.write({f"{BELOW}/after-1/stage-1": b"abc", f"{BELOW}/after-2/stage-1": b"later"})
    return made


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    made = tmp_path / "here" / BELOW
    made.mkdir(parents=True)
    return made


def test_files_of_all_machines_are_known_and_none_is_copied(machines: list[Any], folder: Path) -> None:
    shared = SharedFolder(machines, folder, BELOW)
    assert shared.names("after-*/stage-?") == {"after-1/stage-0", "after-1/stage-1", "after-2/stage-1"}
    assert [*folder.iterdir()] == []


def test_a_machine_gets_what_it_lacks_in_pieces(
    machines: list[Any], folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(shared_folder, "_PIECE_BYTES", 4)
    SharedFolder(machines, folder, BELOW).spread(["after-1/stage-0", "after-1/stage-1"])
    for root in (folder, tmp_path / "one" / BELOW, tmp_path / "two" / BELOW):
        assert (root / "after-1" / "stage-0").read_bytes() == b"0123456789"
        assert (root / "after-1" / "stage-1").read_bytes() == b"abc"
    # Three pieces to the one, one to the other: nobody is sent what it has.
    assert [machine.received for machine in machines] == [1, 3]


def test_what_a_trial_leaves_is_removed_everywhere(machines: list[Any], folder: Path) -> None:
    shared = SharedFolder(machines, folder.parent, "trial")
    shared.remove("attempt-*/after-*/stage-*")
    assert shared.names("attempt-*/after-*/stage-*") == set()
