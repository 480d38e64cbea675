import os
from pathlib import Path

import pytest

from wanbed.testbed.kernel.missing import MissingError
from wanbed.testbed.kernel.user_mode_linux import guest_memory
from wanbed.testbed.kernel.user_mode_linux.guest_memory import memory_for_guest
from wanbed.testbed.substrate.guest_kernel import gateway_guest_memory

MIB, GIB = 2**20, 2**30


class Machine:
    """A machine whose folders have as much room as they are given."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self._room_bytes: dict[Path, int] = {}
        monkeypatch.setattr(guest_memory, "_memory_folders", lambda: list(self._room_bytes))
        monkeypatch.setattr(guest_memory, "_available_memory_bytes", lambda: 100 * GIB)
        monkeypatch.setattr(guest_memory.os, "statvfs", self._state)

    def folder(self, folder: Path, room_bytes: int) -> Path:
        folder.mkdir()
        self._room_bytes[folder] = room_bytes
        return folder

    def _state(self, folder: Path) -> os.statvfs_result:
        blocks = self._room_bytes[folder] // 4096
        return os.statvfs_result((4096, 4096, blocks, blocks, blocks, 0, 0, 0, 0, 255))


@pytest.fixture
def machine(monkeypatch: pytest.MonkeyPatch) -> Machine:
    return Machine(monkeypatch)


def test_a_guest_gets_what_it_wants_or_three_quarters_of_the_free(machine: Machine, tmp_path: Path) -> None:
    folder = machine.folder(tmp_path / "shm", 4 * GIB)
    assert memory_for_guest("a guest", 2 * GIB, GIB) == (folder, 2 * GIB)
    assert memory_for_guest("a guest", 6 * GIB, GIB) == (folder, 3 * GIB)


def test_available_memory_limits_it_where_the_folder_has_more(
    machine: Machine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = machine.folder(tmp_path / "shm", 100 * GIB)
    monkeypatch.setattr(guest_memory, "_available_memory_bytes", lambda: 2 * GIB)
    assert memory_for_guest("a guest", 6 * GIB, GIB) == (folder, GIB * 3 // 2)


def test_too_little_memory_is_reported_with_the_place_and_the_remedy(machine: Machine, tmp_path: Path) -> None:
    folder = machine.folder(tmp_path / "shm", GIB)
    with pytest.raises(MissingError) as refused:
        memory_for_guest("virtual time", 6 * GIB, GIB)
    assert str(refused.value) == (
        f"virtual time takes 1365 MiB of memory: {folder} has 1024 MiB to spare: make room, in a container by docker "
        "run --shm-size=1365m, or name another folder in TMPDIR"
    )


def test_the_gateway_guest_takes_memory_elsewhere_where_shared_memory_is_a_containers(
    machine: Machine, tmp_path: Path
) -> None:
    machine.folder(tmp_path / "shm", 64 * MIB)
    disk = machine.folder(tmp_path / "tmp", 10 * GIB)
    assert gateway_guest_memory() == (disk, 768 * MIB)


def test_the_gateway_guest_prefers_all_that_it_wants_to_memory_that_is_just_enough(
    machine: Machine, tmp_path: Path
) -> None:
    shared = machine.folder(tmp_path / "shm", 256 * MIB)
    assert gateway_guest_memory() == (shared, 192 * MIB)
    disk = machine.folder(tmp_path / "tmp", 10 * GIB)
    assert gateway_guest_memory() == (disk, 768 * MIB)


def test_the_gateway_guest_is_refused_where_no_folder_has_the_least(machine: Machine, tmp_path: Path) -> None:
    machine.folder(tmp_path / "shm", 64 * MIB)
    with pytest.raises(MissingError, match=r"^the gateway guest takes 256 MiB of memory: .* has 64 MiB to spare: "):
        gateway_guest_memory()
