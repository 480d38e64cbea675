"""Where things are cached and looked for under sudo, and whose files root would run."""

import os
import pwd
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

from tests.support.sudo import hand_over, play_sudo
from wanbed.ground import user_cache as module
from wanbed.ground.user_cache import distrust_of, searched_caches, sudo_caller, trusted, user_cache


def test_the_cache_is_where_the_specification_says(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", "/var/cache/mine")
    assert user_cache("core") == Path("/var/cache/mine/wanbed/core")


@pytest.mark.parametrize("ignored", ["", "mine", "./mine"])
def test_without_an_absolute_path_it_is_below_the_home(monkeypatch: pytest.MonkeyPatch, ignored: str) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", ignored)
    assert user_cache("core") == Path.home() / ".cache/wanbed/core"


def test_under_sudo_the_callers_cache_is_searched_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", "/var/cache/mine")
    somebody = pwd.getpwall()[1]
    play_sudo(monkeypatch, tmp_path, somebody.pw_name)
    own = Path("/var/cache/mine/wanbed/core")
    assert searched_caches("core") == [own, Path(somebody.pw_dir) / ".cache/wanbed/core"]
    monkeypatch.setenv("SUDO_USER", "nobody-has-this-name")
    assert searched_caches("core") == [own]
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    monkeypatch.setenv("SUDO_USER", somebody.pw_name)
    assert searched_caches("core") == [own]


def test_under_sudo_with_the_callers_environment_root_keeps_its_own_cache(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    play_sudo(monkeypatch, tmp_path, "nobody-has-this-name")
    home = tmp_path / "home"
    home.mkdir()
    monkeypatch.setenv("XDG_CACHE_HOME", str(hand_over(home) / ".cache"))
    assert user_cache("core") == Path(pwd.getpwuid(0).pw_dir) / ".cache/wanbed/core"


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


@pytest.fixture
def entered_by_all() -> Iterator[Path]:
    """A folder that everybody may enter; those of pytest are closed to others."""
    with TemporaryDirectory() as folder:
        Path(folder).chmod(0o755)
        yield Path(folder)


def test_a_folder_that_everybody_may_write_is_named(entered_by_all: Path) -> None:
    folder = open_to_all(entered_by_all / "open")
    assert distrust_of(folder / "core" / "file") == f"{folder} can be written by everybody"


def test_the_folders_behind_a_symbolic_link_count(entered_by_all: Path) -> None:
    folder = open_to_all(entered_by_all / "open")
    (folder / "real").touch()
    (entered_by_all / "link").symlink_to("open/real")
    assert distrust_of(entered_by_all / "link") == f"{folder} can be written by everybody"


def test_nobody_else_writes_below_a_folder_that_nobody_else_may_enter(entered_by_all: Path) -> None:
    closed = entered_by_all / "closed"
    closed.mkdir()
    (open_to_all(closed / "open") / "file").touch()
    assert distrust_of(closed / "open/file") == f"{closed / 'open'} can be written by everybody"
    closed.chmod(0o700)
    assert distrust_of(closed / "open/file") is None
    assert distrust_of(closed / "../closed/open/file") is None
    other = open_to_all(entered_by_all / "other")
    (other / "file").touch()
    (closed / "link").symlink_to(other / "file")
    assert distrust_of(closed / "link") == f"{other} can be written by everybody"
    hand_over(closed / "open/handed")
    assert " belongs to u" in str(distrust_of(closed / "open/handed"))


def test_links_that_go_in_circles_end(tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to("link")
    assert distrust_of(tmp_path / "link") == f"{tmp_path / 'link'} is a symbolic link that leads nowhere"


def test_where_only_owners_replace_entries_the_entries_count(entered_by_all: Path) -> None:
    folder = open_to_all(entered_by_all / "open")
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
