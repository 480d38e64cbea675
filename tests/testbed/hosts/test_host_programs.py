"""Programs of the system are found also where the PATH leaves their folders out, as after ``su``."""

import os
import stat
from pathlib import Path

import pytest

from wanbed.testbed.hosts import host_programs
from wanbed.testbed.hosts.host_programs import HOST_PROGRAMS, missing_programs, system_path


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
    monkeypatch.setattr(host_programs, "SYSTEM_PROGRAMS", str(machine / "nowhere"))
    assert missing_programs() == {"ifconfig": "net-tools"}
    monkeypatch.setattr(host_programs, "SYSTEM_PROGRAMS", str(machine / "sbin"))
    assert missing_programs() == {}


def test_without_a_path_the_default_one_is_searched(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("PATH")
    assert system_path().startswith(os.defpath)


def test_a_path_that_has_them_stays_as_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "/sbin:/opt:/usr/sbin")
    assert system_path() == "/sbin:/opt:/usr/sbin"
