"""Files that grow on machines, which are a folder here: their copies grow with them."""

import os
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from wanbed.testbed.rack.driver.files import mirrored_files
from wanbed.testbed.rack.driver.files.mirrored_files import MirroredFiles
from wanbed.testbed.rack.lease.files import LeaseFiles
from wanbed.testbed.rack.machine_handle import MachineLostError

AHEAD_NS = 7 * 10**9


class Answer:
    def __init__(self, value: Any) -> None:
        self._value = value

    def result(self, timeout_s: float | None = None) -> Any:
        return self._value


class Machine:
    """A machine whose clock is ahead, with the files of one lease."""

    class clock:  # noqa: N801
        ahead_ns = AHEAD_NS

    def __init__(self, name: str, folder: Path) -> None:
        folder.mkdir()
        self.name, self.files, self.calls = name, LeaseFiles(folder), 0
        self.lost = False

    def start_call(self, method: str, *arguments: Any) -> Answer:
        if self.lost:
            raise MachineLostError(f"machine {self.name} has gone")
        self.calls += 1
        found = self.files.read(*arguments)
        return Answer({name: piece._replace(modified_ns=piece.modified_ns + AHEAD_NS) for name, piece in found.items()})

    def call(self, method: str, patterns: Sequence[str]) -> None:
        self.files.remove(patterns)


@pytest.fixture
def machines(tmp_path: Path) -> list[Machine]:
    return [Machine(name, tmp_path / name) for name in ("east", "west")]


@pytest.fixture
def here(tmp_path: Path) -> Path:
    (tmp_path / "here" / "trial").mkdir(parents=True)
    return tmp_path / "here"


def contents(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def test_copies_of_all_machines_grow_and_what_is_taken_is_removed_there(machines: list[Machine], here: Path) -> None:
    east, west = machines
    copies = MirroredFiles(machines, here, "trial")  # type: ignore[arg-type]
    east.files.write({"trial/rank-0.spans": b"one\n", "trial/rank-0.stdout": b"printed"})
    west.files.write({"trial/rank-1.spans": b""})
    copies.look(["*.spans"])
    assert contents(here) == {"trial/rank-0.spans": b"one\n", "trial/rank-1.spans": b""}
    east.files.write({"trial/rank-0.spans": b"one\ntwo\n"})
    copies.take(["*.spans"])
    assert contents(here)["trial/rank-0.spans"] == b"one\ntwo\n"
    assert east.files.read(["trial/*"], {}, 100).keys() == {"trial/rank-0.stdout"}


def test_what_is_large_comes_in_pieces(machines: list[Machine], here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(mirrored_files, "_PIECE_BYTES", 10)
    machines[0].files.write({"a": b"x" * 25, "b": b"y" * 3})
    MirroredFiles(machines, here).look(["*"])  # type: ignore[arg-type]
    assert contents(here) == {"a": b"x" * 25, "b": b"y" * 3}
    assert [machine.calls for machine in machines] == [3, 1]


def test_a_copy_is_as_old_as_the_file_by_this_machines_clock(machines: list[Machine], here: Path) -> None:
    machines[0].files.write({"first": b""})
    written_ns = time.time_ns() - 60 * 10**9
    os.utime(machines[0].files.path("first"), ns=(written_ns, written_ns))
    MirroredFiles(machines, here).look(["*"])  # type: ignore[arg-type]
    assert (here / "first").stat().st_mtime_ns == pytest.approx(written_ns, abs=10**8)


def test_files_that_are_to_stay_as_they_are_here_do(machines: list[Machine], here: Path) -> None:
    (here / "rank-0.json").write_text("for here")
    machines[0].files.write({"rank-0.json": b"translated", "rank-0.spans": b"spans"})
    MirroredFiles(machines[:1], here, apart_from={"rank-0.json": 10}).look(["rank-0.*"])  # type: ignore[arg-type]
    assert contents(here) == {"rank-0.json": b"for here", "rank-0.spans": b"spans"}


def test_a_machine_that_has_gone_is_named(machines: list[Machine], here: Path) -> None:
    machines[1].lost = True
    with pytest.raises(MachineLostError, match="west"):
        MirroredFiles(machines, here).look(["*"])  # type: ignore[arg-type]
