"""The files that hosts have of their own, and what of the machine's they cover."""

from pathlib import Path

import pytest

from wanbed.testbed.hosts.host_files import covered, write_host_files


@pytest.fixture
def etc(tmp_path: Path) -> Path:
    return write_host_files(tmp_path / "own", "10.1.0.2 east-0\n")


@pytest.fixture
def machine(tmp_path: Path) -> Path:
    folder = tmp_path / "machine"
    folder.mkdir()
    (folder / "hosts").touch()
    return folder


def test_a_host_knows_the_names_and_asks_itself_for_others(etc: Path) -> None:
    assert (etc / "hosts").read_text() == "10.1.0.2 east-0\n"
    assert "nameserver 127.0.0.1\n" in (etc / "resolv.conf").read_text()


def test_each_file_covers_the_machines_of_the_same_name(etc: Path, machine: Path) -> None:
    (machine / "resolv.conf").touch()
    assert covered(etc, machine) == [(etc / name, machine / name) for name in ("hosts", "resolv.conf")]


def test_a_link_to_a_resolver_is_covered_too(etc: Path, machine: Path, tmp_path: Path) -> None:
    (tmp_path / "stub-resolv.conf").touch()
    (machine / "resolv.conf").symlink_to(tmp_path / "stub-resolv.conf")
    assert (etc / "resolv.conf", machine / "resolv.conf") in covered(etc, machine)


@pytest.mark.parametrize("dangling", [False, True])
def test_a_machine_without_a_resolver_needs_none_covered(etc: Path, machine: Path, dangling: bool) -> None:
    if dangling:
        (machine / "resolv.conf").symlink_to("nowhere")
    assert covered(etc, machine) == [(etc / "hosts", machine / "hosts")]


def test_a_missing_hosts_file_is_not_passed_over(etc: Path, tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    assert covered(etc, tmp_path / "empty") == [(etc / "hosts", tmp_path / "empty" / "hosts")]
