"""Where things are cached, and where they are looked for under sudo."""

import os
import pwd
from pathlib import Path

import pytest

from tests.support.sudo import hand_over, play_sudo
from wanbed.ground.files.user_cache import searched_caches, user_cache


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
