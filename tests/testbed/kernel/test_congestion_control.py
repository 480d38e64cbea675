import errno
from pathlib import Path

import pytest

from wanbed.testbed.kernel import congestion_control
from wanbed.testbed.kernel.congestion_control import allow_congestion_control, available_congestion_controls
from wanbed.testbed.kernel.missing import MissingError


@pytest.fixture(autouse=True)
def allowed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The machine-wide list, of a kernel that has three and lets namespaces use one."""
    (tmp_path / "available").write_text("reno cubic bbr\n")
    allowed = tmp_path / "allowed"
    allowed.write_text("reno\n")
    monkeypatch.setattr(congestion_control, "_AVAILABLE", tmp_path / "available")
    monkeypatch.setattr(congestion_control, "_ALLOWED", allowed)
    return allowed


def test_what_the_kernel_has_is_listed() -> None:
    assert available_congestion_controls() == ("reno", "cubic", "bbr")


def test_allowing_one_keeps_those_that_were_allowed(allowed: Path) -> None:
    allow_congestion_control("bbr")
    assert allowed.read_text().split() == ["reno", "bbr"]


def test_one_that_is_allowed_already_is_not_written_again(allowed: Path) -> None:
    allowed.chmod(0o444)
    before = allowed.stat().st_mtime_ns
    allow_congestion_control("reno")
    assert allowed.stat().st_mtime_ns == before


def test_one_that_this_user_may_not_allow_is_refused_with_the_command_for_root(
    allowed: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Listed(type(allowed)):  # type: ignore[misc]
        def write_text(self, *_: object) -> None:
            raise PermissionError(errno.EACCES, "Permission denied")

    monkeypatch.setattr(congestion_control, "_ALLOWED", Listed(allowed))
    with pytest.raises(MissingError, match=r"as root: sysctl net\.ipv4\.tcp_allowed_congestion_control='reno bbr'$"):
        allow_congestion_control("bbr")


def test_missing_congestion_control_is_refused_with_a_remedy(allowed: Path) -> None:
    text = r"^congestion control 'vegas' is not in this kernel, which has reno, cubic, bbr: modprobe tcp_vegas"
    with pytest.raises(MissingError, match=text):
        allow_congestion_control("vegas")
    assert allowed.read_text() == "reno\n"
