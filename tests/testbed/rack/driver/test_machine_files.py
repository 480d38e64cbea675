"""Files on machines, which are folders here: copies grow with them, and what programs wrote comes back."""

import os
import time
from pathlib import Path
from typing import Any, cast

import pytest

from wanbed.testbed.rack.driver import machine_files
from wanbed.testbed.rack.driver.machine_files import FilesOnMachines, Written, fetched
from wanbed.testbed.rack.driver.rack_machine import RackMachine
from wanbed.testbed.rack.machine.lease_files import LeaseFiles, WrittenFiles
from wanbed.testbed.rack.machine_handle import MachineLostError

AHEAD_NS = 7 * 10**9
ATTEMPT = "trial/attempt-0"


class Answer:
    def __init__(self, value: Any) -> None:
        self._value = value

    def result(self, timeout_s: float | None = None) -> Any:
        return self._value


class Machine:
    """A machine whose clock is ahead, with the files of one lease. It counts what it is asked for and sent."""

    class clock:  # noqa: N801
        ahead_ns = AHEAD_NS

    def __init__(self, name: str, folder: Path) -> None:
        folder.mkdir()
        self.name, self.files, self.asked, self.received = name, LeaseFiles(folder), 0, 0
        self.lost = False

    def start_call(self, method: str, *arguments: Any) -> Answer:
        return Answer(self.call(method, *arguments))

    def call(self, method: str, *arguments: Any) -> Any:
        if self.lost:
            raise MachineLostError(f"machine {self.name} has gone")
        if method == "read_files":
            self.asked += 1
            found = self.files.read(*arguments)
            return {name: each._replace(modified_ns=each.modified_ns + AHEAD_NS) for name, each in found.items()}
        self.received += method == "append_file"
        return {"append_file": self.files.append, "remove_files": self.files.remove}[method](*arguments)


@pytest.fixture
def machines(tmp_path: Path) -> list[Any]:
    return [Machine(name, tmp_path / name) for name in ("east", "west")]


@pytest.fixture
def with_checkpoints(machines: list[Any]) -> list[Any]:
    east, west = machines
    east.files.write({f"{ATTEMPT}/after-1/stage-0": b"0123456789", f"{ATTEMPT}/after-1/stage-0.partial": b"0"})
    west.files.write({f"{ATTEMPT}/after-1/stage-1": b"abc", f"{ATTEMPT}/after-2/stage-1": b"later"})
    return machines


@pytest.fixture
def here(tmp_path: Path) -> Path:
    (tmp_path / "here" / ATTEMPT).mkdir(parents=True)
    return tmp_path / "here"


def contents(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def test_copies_of_all_machines_grow_and_what_is_taken_is_removed_there(machines: list[Any], here: Path) -> None:
    east, west = machines
    copies = FilesOnMachines(machines, here, "trial")
    east.files.write({"trial/rank-0.spans": b"one\n", "trial/rank-0.stdout": b"printed"})
    west.files.write({"trial/rank-1.spans": b""})
    copies.look(["*.spans"])
    assert contents(here) == {"trial/rank-0.spans": b"one\n", "trial/rank-1.spans": b""}
    east.files.write({"trial/rank-0.spans": b"one\ntwo\n"})
    copies.take(["*.spans"])
    assert contents(here)["trial/rank-0.spans"] == b"one\ntwo\n"
    assert east.files.read(["trial/*"], {}, 100).keys() == {"trial/rank-0.stdout"}


def test_what_is_large_comes_in_pieces(machines: list[Any], here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(machine_files, "_PIECE_BYTES", 10)
    machines[0].files.write({"a": b"x" * 25, "b": b"y" * 3})
    FilesOnMachines(machines, here).look(["*"])
    assert contents(here) == {"a": b"x" * 25, "b": b"y" * 3}
    assert [machine.asked for machine in machines] == [3, 1]


def test_a_copy_is_as_old_as_the_file_by_this_machines_clock(machines: list[Any], here: Path) -> None:
    machines[0].files.write({"first": b""})
    written_ns = time.time_ns() - 60 * 10**9
    os.utime(machines[0].files.path("first"), ns=(written_ns, written_ns))
    FilesOnMachines(machines, here).look(["*"])
    assert (here / "first").stat().st_mtime_ns == pytest.approx(written_ns, abs=10**8)


def test_files_that_are_to_stay_as_they_are_here_do(machines: list[Any], here: Path) -> None:
    (here / "rank-0.json").write_text("for here")
    machines[0].files.write({"rank-0.json": b"translated", "rank-0.spans": b"spans"})
    FilesOnMachines(machines[:1], here, apart_from={"rank-0.json": 10}).look(["rank-0.*"])
    assert contents(here) == {"rank-0.json": b"for here", "rank-0.spans": b"spans"}


def test_a_machine_that_has_gone_is_named(machines: list[Any], here: Path) -> None:
    machines[1].lost = True
    with pytest.raises(MachineLostError, match="west"):
        FilesOnMachines(machines, here).look(["*"])


def test_files_of_all_machines_are_known_and_none_is_copied(with_checkpoints: list[Any], here: Path) -> None:
    shared = FilesOnMachines(with_checkpoints, here, ATTEMPT)
    assert shared.names("after-*/stage-?") == {"after-1/stage-0", "after-1/stage-1", "after-2/stage-1"}
    assert contents(here) == {}


def test_a_machine_gets_what_it_lacks_in_pieces(
    with_checkpoints: list[Any], here: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(machine_files, "_PIECE_BYTES", 4)
    FilesOnMachines(with_checkpoints, here, ATTEMPT).spread(["after-1/stage-0", "after-1/stage-1"])
    for root in (here, here.with_name("east"), here.with_name("west")):
        assert (root / ATTEMPT / "after-1" / "stage-0").read_bytes() == b"0123456789"
        assert (root / ATTEMPT / "after-1" / "stage-1").read_bytes() == b"abc"
    # Three pieces to the one, one to the other: nobody is sent what it has.
    assert [machine.received for machine in with_checkpoints] == [1, 3]


def test_what_a_trial_leaves_is_removed_everywhere(with_checkpoints: list[Any], here: Path) -> None:
    shared = FilesOnMachines(with_checkpoints, here, "trial")
    shared.remove("attempt-*/after-*/stage-*")
    assert shared.names("attempt-*/after-*/stage-*") == set()


class WritingMachine:
    def __init__(self, name: str, folder: Path) -> None:
        (folder / "0").mkdir(parents=True)
        self.name, self.folder, self._written = name, folder, WrittenFiles(folder)

    def call(self, method: str, *arguments: Any) -> Any:
        return {"written_files": self._written.changed, "read_written": self._written.read}[method](*arguments)


@pytest.fixture(name="writing_machines")
def two_machines(tmp_path: Path) -> list[WritingMachine]:
    return [WritingMachine(name, tmp_path / name) for name in ("east", "west")]


def fetch(
    writing_machines: list[WritingMachine], here: Path, most_bytes: int = 1000, roots: tuple[str, ...] = ("/home/me",)
) -> Written:
    return fetched(
        cast("list[RackMachine]", writing_machines), [Path(root) for root in roots], here, "written", most_bytes
    )


def test_files_come_from_each_machine_in_pieces(
    writing_machines: list[WritingMachine], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(machine_files, "_PIECE_BYTES", 4)
    for machine in writing_machines:
        (machine.folder / "0" / "log.txt").write_text(f"on {machine.name}")
    found = fetch(writing_machines, tmp_path / "here")
    assert {name: path.read_text() for name, path in found.files.items()} == {
        "written/east/log.txt": "on east",
        "written/west/log.txt": "on west",
    }
    assert found.document() == {"files": 2, "not_brought_back": {}}
    assert fetch(writing_machines, tmp_path / "here").files == {}


def test_of_more_than_there_is_room_for_the_smallest_files_come_and_the_others_are_named(
    writing_machines: list[WritingMachine], tmp_path: Path
) -> None:
    for size in (10, 600, 700):
        (writing_machines[0].folder / "0" / f"{size}.bin").write_bytes(bytes(size))
    found = fetch(writing_machines, tmp_path / "here")
    assert [*found.files] == ["written/east/10.bin", "written/east/600.bin"]
    left = {"files": 1, "bytes": 700, "first": {"0/700.bin": 700}}
    assert found.document() == {"files": 2, "not_brought_back": {"east": left}}


def test_of_two_folders_that_were_sent_each_is_named(writing_machines: list[WritingMachine], tmp_path: Path) -> None:
    (writing_machines[1].folder / "1").mkdir()
    (writing_machines[1].folder / "1" / "log.txt").touch()
    found = fetch(writing_machines, tmp_path / "here", roots=("/home/me/data", "/home/me/run"))
    assert [*found.files] == ["written/west/1-run/log.txt"]
