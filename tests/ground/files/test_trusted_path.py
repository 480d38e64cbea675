"""What root, called by sudo, runs of what it finds in a cache."""

import os
from pathlib import Path

import pytest

from tests.support.sudo import hand_over, play_sudo
from wanbed.ground.files import trusted_path as module
from wanbed.ground.files.trusted_path import distrust_of, sudo_caller, trusted

ROOTS = Path("/usr/bin/env")


@pytest.fixture
def by_sudo(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> str:
    play_sudo(monkeypatch, tmp_path_factory.mktemp("proc"), "somebody")
    return "somebody"


def open_to_all(folder: Path) -> Path:
    folder.mkdir()
    folder.chmod(0o777)
    return folder


@pytest.mark.usefixtures("by_sudo")
def test_root_runs_what_is_its_own(capsys: pytest.CaptureFixture[str]) -> None:
    assert trusted(ROOTS)
    assert capsys.readouterr().err == ""


@pytest.mark.usefixtures("by_sudo")
def test_another_users_file_is_passed_over_with_one_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    program = hand_over(tmp_path / "linux")
    assert not trusted(program)
    assert not trusted(program)
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith(f"wanbed: {program} is passed over, since root runs only what is its own: ")
    assert " belongs to u" in line


def test_without_sudo_a_user_runs_what_the_cache_has(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("SUDO_USER", raising=False)
    assert trusted(hand_over(tmp_path / "linux"))


def test_a_folder_that_everybody_may_write_is_named(tmp_path: Path) -> None:
    folder = open_to_all(tmp_path / "open")
    assert distrust_of(folder / "core" / "file") == f"{folder} can be written by everybody"


def test_the_folders_behind_a_symbolic_link_count(tmp_path: Path) -> None:
    folder = open_to_all(tmp_path / "open")
    (folder / "real").touch()
    (tmp_path / "link").symlink_to("open/real")
    assert distrust_of(tmp_path / "link") == f"{folder} can be written by everybody"


def test_links_that_go_in_circles_end(tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to("link")
    assert distrust_of(tmp_path / "link") == f"{tmp_path / 'link'} is a symbolic link that leads nowhere"


def test_where_only_owners_replace_entries_the_entries_count(tmp_path: Path) -> None:
    folder = open_to_all(tmp_path / "open")
    folder.chmod(0o1777)
    (folder / "file").touch()
    assert distrust_of(folder / "file") is None


def test_the_root_of_a_user_namespace_is_no_root(tmp_path: Path, by_sudo: str, monkeypatch: pytest.MonkeyPatch) -> None:
    assert sudo_caller() == by_sudo
    (tmp_path / "uid_map").write_text("         0       1000          1\n")
    monkeypatch.setattr(module, "_ID_MAP", tmp_path / "uid_map")
    assert sudo_caller() is None


def test_an_ordinary_user_called_by_sudo_is_no_root(by_sudo: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    assert sudo_caller() is None
