"""Files that programs have written on machines, which are a folder here."""

from pathlib import Path
from typing import Any, cast

import pytest

from wanbed.testbed.rack.driver.files import written_files
from wanbed.testbed.rack.driver.files.written_files import Written, fetched
from wanbed.testbed.rack.driver.rack_machine import RackMachine
from wanbed.testbed.rack.machine.written_files import WrittenFiles


class Machine:
    def __init__(self, name: str, folder: Path) -> None:
        (folder / "0").mkdir(parents=True)
        self.name, self.folder, self._written = name, folder, WrittenFiles(folder)

    def call(self, method: str, *arguments: Any) -> Any:
        return {"written_files": self._written.changed, "read_written": self._written.read}[method](*arguments)


@pytest.fixture(name="machines")
def two_machines(tmp_path: Path) -> list[Machine]:
    return [Machine(name, tmp_path / name) for name in ("east", "west")]


def fetch(
    machines: list[Machine], here: Path, most_bytes: int = 1000, roots: tuple[str, ...] = ("/home/me",)
) -> Written:
    return fetched(cast("list[RackMachine]", machines), [Path(root) for root in roots], here, "written", most_bytes)


def test_files_come_from_each_machine_in_pieces(
    machines: list[Machine], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(written_files, "_PIECE_BYTES", 4)
    for machine in machines:
        (machine.folder / "0" / "log.txt").write_text(f"on {machine.name}")
    found = fetch(machines, tmp_path / "here")
    assert {name: path.read_text() for name, path in found.files.items()} == {
        "written/east/log.txt": "on east",
        "written/west/log.txt": "on west",
    }
    assert found.document() == {"files": 2, "not_brought_back": {}}
    assert fetch(machines, tmp_path / "here").files == {}


def test_of_more_than_there_is_room_for_the_smallest_files_come_and_the_others_are_named(
    machines: list[Machine], tmp_path: Path
) -> None:
    for size in (10, 600, 700):
        (machines[0].folder / "0" / f"{size}.bin").write_bytes(bytes(size))
    found = fetch(machines, tmp_path / "here")
    assert [*found.files] == ["written/east/10.bin", "written/east/600.bin"]
    left = {"files": 1, "bytes": 700, "first": {"0/700.bin": 700}}
    assert found.document() == {"files": 2, "not_brought_back": {"east": left}}


def test_of_two_folders_that_were_sent_each_is_named(machines: list[Machine], tmp_path: Path) -> None:
    (machines[1].folder / "1").mkdir()
    (machines[1].folder / "1" / "log.txt").touch()
    found = fetch(machines, tmp_path / "here", roots=("/home/me/data", "/home/me/run"))
    assert [*found.files] == ["written/west/1-run/log.txt"]
