from dataclasses import replace
from pathlib import Path

import pytest

from tests.support.sudo import hand_over, play_sudo
from wanbed.ground.errors import MissingError
from wanbed.testbed.virtual_time import kernel_cache
from wanbed.testbed.virtual_time.kernel_cache import (
    PROGRAM,
    RECORD,
    WANTED,
    WANTED_BEFORE_6_10,
    KernelRecord,
    built_kernels,
    cache_folder,
    configuration,
    configuration_hash,
    kernel_folder,
    virtual_kernel,
    write_record,
)

OURS = KernelRecord("6.1.192", "linux-source-6.1 6.1.192-2", configuration_hash(), 0x60000000)


def cached(root: Path, record: KernelRecord) -> Path:
    folder = kernel_folder(record.source + record.release, root)
    folder.mkdir(parents=True)
    (folder / PROGRAM).touch(mode=0o755)
    write_record(folder, record)
    return folder


def test_kernel_is_found_with_its_record(tmp_path: Path) -> None:
    folder = cached(tmp_path, OURS)
    kernel = virtual_kernel([tmp_path])
    assert (kernel.program, kernel.record) == (folder / PROGRAM, OURS)


def test_the_latest_release_is_taken_by_number(tmp_path: Path) -> None:
    for release in ("6.1.99", "6.12.3-1", "6.1.192"):
        cached(tmp_path, replace(OURS, release=release))
    assert [kernel.record.release for kernel in built_kernels([tmp_path])] == ["6.1.99", "6.1.192", "6.12.3-1"]


def test_a_kernel_of_other_options_or_without_its_program_is_none(tmp_path: Path) -> None:
    cached(tmp_path, replace(OURS, configuration_hash="0123"))
    (cached(tmp_path, replace(OURS, release="6.2")) / PROGRAM).unlink()
    (cached(tmp_path, replace(OURS, release="6.3")) / RECORD).write_text("{")
    assert built_kernels([tmp_path]) == []


def test_the_first_cache_that_has_a_kernel_is_used(tmp_path: Path) -> None:
    own = cached(tmp_path / "own", OURS)
    cached(tmp_path / "callers", replace(OURS, release="99.0.0"))
    assert virtual_kernel([tmp_path / "own", tmp_path / "callers"]).program == own / PROGRAM


def test_under_sudo_no_kernel_of_another_user_is_booted(
    tmp_path: Path,
    tmp_path_factory: pytest.TempPathFactory,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    play_sudo(monkeypatch, tmp_path_factory.mktemp("proc"), "somebody")
    program = hand_over(cached(tmp_path, OURS) / PROGRAM)
    with pytest.raises(MissingError, match=r": as root: make virtual$"):
        virtual_kernel([tmp_path])
    assert capsys.readouterr().err.startswith(f"wanbed: {program} is passed over")


def test_without_any_the_command_that_builds_it_is_named(tmp_path: Path) -> None:
    with pytest.raises(MissingError, match=r"^no virtual-time kernel of this version in .*: make virtual$"):
        virtual_kernel([tmp_path / "none"])


def test_sources_and_their_versions_have_folders_of_their_own(tmp_path: Path) -> None:
    assert kernel_folder("linux-source-6.1 1", tmp_path) != kernel_folder("linux-source-6.1 2", tmp_path)


def test_the_cache_is_the_users_and_a_relative_one_is_ignored(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", "/var/cache/mine")
    assert cache_folder() == Path("/var/cache/mine/wanbed/virtual-kernel")
    monkeypatch.setenv("XDG_CACHE_HOME", "mine")
    assert cache_folder() == Path.home() / ".cache/wanbed/virtual-kernel"


def test_no_option_is_listed_twice() -> None:
    assert len(set(WANTED)) == len(WANTED)


def test_every_option_is_built_in() -> None:
    assert configuration().splitlines() == [f"CONFIG_{option}=y" for option in WANTED + WANTED_BEFORE_6_10]


def test_what_takes_time_to_build_and_no_guest_needs_is_not_asked_for() -> None:
    assert not {"MODULES", "BLOCK", "BPF_SYSCALL", "CGROUPS", "CRYPTO", "IO_URING", "KALLSYMS", "SWAP"} & set(WANTED)


@pytest.mark.parametrize("options", ["WANTED", "WANTED_BEFORE_6_10", "COMPILER_OPTIONS"])
def test_configuration_hash_depends_on_every_option(monkeypatch: pytest.MonkeyPatch, options: str) -> None:
    ours = configuration_hash()
    monkeypatch.setattr(kernel_cache, options, getattr(kernel_cache, options)[1:])
    assert configuration_hash() != ours


def test_configuration_hash_does_not_depend_on_the_order_of_options(monkeypatch: pytest.MonkeyPatch) -> None:
    ours = configuration_hash()
    monkeypatch.setattr(kernel_cache, "WANTED", WANTED[::-1])
    assert configuration_hash() == ours
