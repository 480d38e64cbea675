"""Files of /etc that hosts have of their own, and programs that are found outside the PATH, as after ``su``."""

import os
import stat
from pathlib import Path

import pytest

from wanbed.testbed.hosts import host_environment
from wanbed.testbed.hosts.host_environment import (
    HOST_PROGRAMS,
    covered,
    missing_programs,
    system_path,
    write_host_files,
)


@pytest.fixture
def etc(tmp_path: Path) -> Path:
    return write_host_files(tmp_path / "own", "10.1.0.2 east-0\n")


@pytest.fixture
def machine_etc(tmp_path: Path) -> Path:
    folder = tmp_path / "machine"
    folder.mkdir()
    (folder / "hosts").touch()
    return folder


def test_a_host_knows_the_names_and_asks_itself_for_others(etc: Path) -> None:
    assert (etc / "hosts").read_text() == "10.1.0.2 east-0\n"
    assert "nameserver 127.0.0.1\n" in (etc / "resolv.conf").read_text()


def test_each_file_covers_the_machines_of_the_same_name(etc: Path, machine_etc: Path) -> None:
    (machine_etc / "resolv.conf").touch()
    assert covered(etc, machine_etc) == [(etc / name, machine_etc / name) for name in ("hosts", "resolv.conf")]


def test_a_link_to_a_resolver_is_covered_too(etc: Path, machine_etc: Path, tmp_path: Path) -> None:
    (tmp_path / "stub-resolv.conf").touch()
    (machine_etc / "resolv.conf").symlink_to(tmp_path / "stub-resolv.conf")
    assert (etc / "resolv.conf", machine_etc / "resolv.conf") in covered(etc, machine_etc)


@pytest.mark.parametrize("dangling", [False, True])
def test_a_machine_without_a_resolver_needs_none_covered(etc: Path, machine_etc: Path, dangling: bool) -> None:
    if dangling:
        (machine_etc / "resolv.conf").symlink_to("nowhere")
    assert covered(etc, machine_etc) == [(etc / "hosts", machine_etc / "hosts")]


def test_a_missing_hosts_file_is_not_passed_over(etc: Path, tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    assert covered(etc, tmp_path / "empty") == [(etc / "hosts", tmp_path / "empty" / "hosts")]


@pytest.fixture
def machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A machine whose PATH has all programs but ifconfig, which is in a folder for root."""
    for program in HOST_PROGRAMS:
        folder = tmp_path / ("sbin" if program == "ifconfig" else "bin")
        folder.mkdir(exist_ok=True)
        (folder / program).touch(mode=stat.S_IRWXU)
    monkeypatch.setenv("PATH", str(tmp_path / "bin"))
    return tmp_path


def test_a_program_for_root_is_not_missing_where_the_path_leaves_it_out(
    machine: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(host_environment, "SYSTEM_PROGRAMS", str(machine / "nowhere"))
    assert missing_programs() == {"ifconfig": "net-tools"}
    monkeypatch.setattr(host_environment, "SYSTEM_PROGRAMS", str(machine / "sbin"))
    assert missing_programs() == {}


def test_without_a_path_the_default_one_is_searched(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("PATH")
    assert system_path().startswith(os.defpath)


def test_a_path_that_has_them_stays_as_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "/sbin:/opt:/usr/sbin")
    assert system_path() == "/sbin:/opt:/usr/sbin"
