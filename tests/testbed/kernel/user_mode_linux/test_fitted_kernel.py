"""User-Mode Linux on processors with more registers than it was compiled for."""

import shutil
import struct
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from wanbed.testbed.kernel.missing import MissingError
from wanbed.testbed.kernel.user_mode_linux import fitted_kernel as module
from wanbed.testbed.kernel.user_mode_linux.fitted_kernel import COMPILED_FOR_BYTES, fitted_kernel, with_written_size
from wanbed.testbed.substrate.guest_kernel import GUEST_PROGRAM
from wanbed.testbed.virtual_time.kernel.kernel_cache import built_kernels

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
