"""Play that root runs the tests by sudo, and that files belong to another user."""

import os
from pathlib import Path

import pytest

from wanbed.ground import user_cache


def play_sudo(monkeypatch: pytest.MonkeyPatch, folder: Path, caller: str) -> None:
    """Let this process be root, called by ``caller``. ``folder`` receives the map of a machine's own root."""
    (folder / "uid_map").write_text("         0          0 4294967295\n")
    monkeypatch.setattr(user_cache, "_ID_MAP", folder / "uid_map")
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    monkeypatch.setenv("SUDO_USER", caller)
    monkeypatch.setenv("WANBED_PASSED_OVER", "")


def hand_over(path: Path) -> Path:
    """Return a file or folder that belongs to another user than root, made if it is not there."""
    if not path.exists():
        path.touch()
    if os.getuid() == 0:
        os.chown(path, 65534, 65534)
    return path
