"""Where things are cached, and where they are looked for under sudo."""

import os
import pwd
from pathlib import Path

import pytest

from ground.files.user_cache import searched_caches, user_cache


def test_the_cache_is_where_the_specification_says(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", "/var/cache/mine")
    assert user_cache("core") == Path("/var/cache/mine/wanbed/core")


@pytest.mark.parametrize("ignored", ["", "mine", "./mine"])
def test_without_an_absolute_path_it_is_below_the_home(monkeypatch: pytest.MonkeyPatch, ignored: str) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", ignored)
    assert user_cache("core") == Path.home() / ".cache/wanbed/core"


def test_under_sudo_the_callers_cache_is_searched_too(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", "/var/cache/mine")
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    somebody = pwd.getpwall()[1]
    monkeypatch.setenv("SUDO_USER", somebody.pw_name)
    own = Path("/var/cache/mine/wanbed/core")
    assert searched_caches("core") == [own, Path(somebody.pw_dir) / ".cache/wanbed/core"]
    monkeypatch.setenv("SUDO_USER", "nobody-has-this-name")
    assert searched_caches("core") == [own]
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    monkeypatch.setenv("SUDO_USER", somebody.pw_name)
    assert searched_caches("core") == [own]
