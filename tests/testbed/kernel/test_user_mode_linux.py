"""Memory of guests, and User-Mode Linux on processors with more registers than it was compiled for."""

import os
import shutil
import struct
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from wanbed.ground.errors import MissingError
from wanbed.testbed.kernel import user_mode_linux
from wanbed.testbed.kernel import user_mode_linux as module
from wanbed.testbed.kernel.user_mode_linux import (
    COMPILED_FOR_BYTES,
    fitted_kernel,
    memory_for_guest,
    register_state_bytes,
    with_written_size,
)
from wanbed.testbed.substrate.guest_kernel import GUEST_PROGRAM, gateway_guest_memory
from wanbed.testbed.virtual_time.kernel_cache import built_kernels

AMX_BYTES = 11_008
READS = struct.pack("<I", COMPILED_FOR_BYTES) + b"\xbf" + struct.pack("<I", 0x4204)
WRITES = struct.pack("<I", COMPILED_FOR_BYTES) + b"\xbf" + struct.pack("<I", 0x4205)
IMAGE = b"\x7fELF" + READS + bytes(30) + WRITES + b" more"


@pytest.fixture
def kernel(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setattr(module, "register_state_bytes", lambda: AMX_BYTES)
    path = tmp_path / "linux.uml"
    path.write_bytes(IMAGE)
    return path


OTHER_CODE = st.lists(st.sampled_from(bytes(set(range(256)) - {0x88, 0x42})), max_size=60).map(bytes)
"""Bytes that hold neither the size nor the request."""


@given(OTHER_CODE, st.integers(1, 3), st.integers(24, 60), OTHER_CODE, st.integers(COMPILED_FOR_BYTES + 1, 2**16))
def test_only_the_sizes_that_are_written_change(
    before: bytes, writes: int, apart: int, after: bytes, size: int
) -> None:
    pieces = [before + READS, *[WRITES] * writes, after]
    changed = [piece.replace(WRITES, struct.pack("<I", size) + WRITES[4:]) for piece in pieces]
    assert with_written_size(bytes(apart).join(pieces), size) == bytes(apart).join(changed)


@pytest.mark.parametrize("image", [b"", READS, WRITES[:4] + bytes(30) + WRITES[-4:]])
def test_a_program_without_a_place_for_the_size_is_left_alone(image: bytes) -> None:
    assert with_written_size(image, AMX_BYTES) is None


@pytest.mark.parametrize("size", [None, 832, COMPILED_FOR_BYTES])
def test_registers_that_it_was_compiled_for_need_no_copy(
    kernel: Path, size: int | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "register_state_bytes", lambda: size)
    assert fitted_kernel(kernel) == kernel


def test_more_registers_need_a_copy_which_is_made_once(kernel: Path, tmp_path: Path) -> None:
    copy = fitted_kernel(kernel)
    assert copy.is_relative_to(tmp_path / "cache/wanbed/user-mode-linux")
    assert copy.name == kernel.name
    assert copy.read_bytes() == IMAGE.replace(WRITES, struct.pack("<I", AMX_BYTES) + WRITES[4:])
    assert copy.stat().st_mode & 0o777 == 0o755
    made = copy.stat().st_mtime_ns
    assert fitted_kernel(kernel) == copy
    assert copy.stat().st_mtime_ns == made
    assert kernel.read_bytes() == IMAGE


def test_a_kernel_that_asks_the_machine_is_run_as_it_is(kernel: Path) -> None:
    kernel.write_bytes(b"\x7fELF")
    assert fitted_kernel(kernel) == kernel


def test_a_cache_that_cannot_be_written_is_named(kernel: Path, tmp_path: Path) -> None:
    (tmp_path / "cache").touch()
    with pytest.raises(MissingError, match=r"linux\.uml: Not a directory: name a folder .* in XDG_CACHE_HOME$"):
        fitted_kernel(kernel)


def test_the_kernels_of_this_machine_have_places_for_the_size() -> None:
    installed = shutil.which(GUEST_PROGRAM)
    assert installed is not None
    for program in (Path(installed), *(kernel.program for kernel in built_kernels())):
        image = program.read_bytes()
        changed = with_written_size(image, AMX_BYTES)
        assert changed is not None
        assert len(changed) == len(image)
        assert changed != image
        assert with_written_size(changed, AMX_BYTES) is None


MIB, GIB = 2**20, 2**30


class Machine:
    """A machine whose folders have as much room as they are given."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self._room_bytes: dict[Path, int] = {}
        monkeypatch.setattr(user_mode_linux, "_memory_folders", lambda: list(self._room_bytes))
        monkeypatch.setattr(user_mode_linux, "_available_memory_bytes", lambda: 100 * GIB)
        monkeypatch.setattr(user_mode_linux.os, "statvfs", self._state)

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
    monkeypatch.setattr(user_mode_linux, "_available_memory_bytes", lambda: 2 * GIB)
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


def test_the_state_has_the_legacy_area_its_header_and_what_the_processor_adds() -> None:
    flags = Path("/proc/cpuinfo").read_text(encoding="ascii")
    size = register_state_bytes()
    assert size is not None
    assert 512 + 64 <= size < 2**16
    assert (size > 2696 + 8192 - 64) == ("amx_tile" in flags)
