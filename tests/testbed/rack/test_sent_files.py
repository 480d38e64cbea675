import io
import tarfile
from pathlib import Path

import pytest

from wanbed.testbed.rack.machine.machine import Machine
from wanbed.testbed.rack.machine_handle import MachineOrder, RunOrder
from wanbed.testbed.rack.machine_plan import MachinePlan
from wanbed.testbed.rack.sent_files import NotSentError, SentFiles, path_on_machine, unpack


def archive_of(names: list[str]) -> bytes:
    made = io.BytesIO()
    with tarfile.open(fileobj=made, mode="w") as archive:
        for name in names:
            archive.addfile(tarfile.TarInfo(name))
    return made.getvalue()


def test_a_path_of_the_driver_is_one_below_the_folder_of_sent_files() -> None:
    roots = Path("/home/me/one"), Path("/home/me/two")
    names = frozenset({"/home/me/one", "/home/me/one/train.py", "/home/me/two/data/x"})
    sent = SentFiles(roots, names, b"")
    assert path_on_machine(sent, "/tmp/wb-1", "/home/me/one") == "/tmp/wb-1/0"
    assert path_on_machine(sent, "/tmp/wb-1", "/home/me/two/data/x") == "/tmp/wb-1/1/data/x"
    assert path_on_machine(sent, "/tmp/wb-1", "/home/me/one/absent") == "/home/me/one/absent"
    assert path_on_machine(sent, "/tmp/wb-1", "--plain") == "--plain"
    assert path_on_machine(None, None, "/home/me/one") == "/home/me/one"


def test_nothing_is_unpacked_outside_of_the_folder(tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    with pytest.raises(tarfile.OutsideDestinationError):
        unpack(archive_of(["../out"]), tmp_path / "in")
    assert not (tmp_path / "out").exists()


def test_a_machine_refuses_a_run_whose_files_it_has_not_received(tmp_path: Path) -> None:
    machine, plan = Machine(root=tmp_path / "claims"), object.__new__(MachinePlan)
    digest = machine.receive_archive(archive_of(["0"]))
    other = "0" + digest[1:] if digest[0] != "0" else "1" + digest[1:]
    with pytest.raises(NotSentError, match=other[:12]):
        machine.bring_up(MachineOrder(RunOrder("a run"), 1, plan, "", sent=other))
    assert machine.used_slots() == set()
