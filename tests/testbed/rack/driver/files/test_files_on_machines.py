"""Files on machines, which are folders here: their copies grow with them, and what one has all can be given."""

import os
import time
from pathlib import Path
from typing import Any

import pytest

from wanbed.testbed.rack.driver.files import files_on_machines
from wanbed.testbed.rack.driver.files.files_on_machines import FilesOnMachines
from wanbed.testbed.rack.machine.lease_files import LeaseFiles
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
    monkeypatch.setattr(files_on_machines, "_PIECE_BYTES", 10)
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
    monkeypatch.setattr(files_on_machines, "_PIECE_BYTES", 4)
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
