import errno
import signal
import socket
import subprocess
from pathlib import Path
from typing import Any

import pytest

from wanbed.testbed import rights as module
from wanbed.testbed.kernel.killed import KilledError
from wanbed.testbed.rights import ENTER, UNMAPPED, HostsAllowed, hosts_allowed, large_buffers_allowed, owner_of

REFUSED = "unshare: Operation not permitted"


def machine(monkeypatch: pytest.MonkeyPatch, *, directly: bool, inside: bool) -> list[list[str]]:
    """A machine on which hosts can be made or not; return what was tried."""
    tried: list[list[str]] = []

    def run(argv: list[str], **options: Any) -> "subprocess.CompletedProcess[str]":
        assert options["timeout"] <= 30
        tried.append(argv)
        able = inside if argv[: len(ENTER)] == list(ENTER) else directly
        return subprocess.CompletedProcess(argv, 0 if able else 1, "", "" if able else f"warning\n{REFUSED}\n")

    monkeypatch.setattr(subprocess, "run", run)
    return tried


def test_a_user_namespace_is_not_tried_where_hosts_can_be_made_directly(monkeypatch: pytest.MonkeyPatch) -> None:
    tried = machine(monkeypatch, directly=True, inside=False)
    allowed = hosts_allowed()
    assert (allowed.directly, allowed.by_entering) == (None, False)
    assert len(tried) == 1


def test_hosts_that_can_be_made_only_in_a_user_namespace(monkeypatch: pytest.MonkeyPatch) -> None:
    machine(monkeypatch, directly=False, inside=True)
    allowed = hosts_allowed()
    assert allowed.by_entering
    assert allowed.reason == REFUSED
    assert allowed.remedy.startswith("start this program with `unshare --user --map-root-user --net`")


def test_where_neither_works_both_reasons_are_given(monkeypatch: pytest.MonkeyPatch) -> None:
    machine(monkeypatch, directly=False, inside=False)
    allowed = hosts_allowed()
    assert not allowed.by_entering
    assert allowed.reason == f"{REFUSED}, and in a user namespace: {REFUSED}"


def test_root_without_capabilities_and_users_have_different_remedies() -> None:
    root, user = (HostsAllowed(REFUSED, REFUSED, user_id) for user_id in (0, 1000))
    assert "capabilities SYS_ADMIN and NET_ADMIN" in root.remedy
    assert user.remedy.startswith("run as root, or with sudo; or allow user namespaces: ")


def test_of_a_trial_that_was_killed_nothing_is_concluded(monkeypatch: pytest.MonkeyPatch) -> None:
    def kill(argv: list[str], **_: Any) -> "subprocess.CompletedProcess[str]":
        return subprocess.CompletedProcess(argv, -signal.SIGKILL, "", "")

    monkeypatch.setattr(subprocess, "run", kill)
    with pytest.raises(
        KilledError, match=r"^\w+: ended by SIGKILL while it tried what this machine can do: call again$"
    ):
        hosts_allowed()


def test_a_trial_that_does_not_end_is_a_refusal(monkeypatch: pytest.MonkeyPatch) -> None:
    def hang(argv: list[str], *, timeout: float, **_: Any) -> None:
        raise subprocess.TimeoutExpired(argv, timeout)

    monkeypatch.setattr(subprocess, "run", hang)
    assert "did not end within 20 s" in hosts_allowed().reason


def test_only_the_sysctls_that_forbid_user_namespaces_are_named(tmp_path: Path) -> None:
    for name, value in (("kernel/apparmor_restrict_unprivileged_userns", "1"), ("user/max_user_namespaces", "96365")):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(f"{value}\n")
    assert module._allowing(tmp_path) == "as root, sysctl kernel.apparmor_restrict_unprivileged_userns=0"
    (tmp_path / "kernel/apparmor_restrict_unprivileged_userns").write_text("0\n")
    assert "seccomp" in module._allowing(tmp_path)


@pytest.mark.parametrize("refused", [False, True])
def test_large_buffers_are_allowed_where_the_kernel_lets_them_be_forced(
    monkeypatch: pytest.MonkeyPatch, refused: bool
) -> None:
    class Socket(socket.socket):
        def setsockopt(self, *_: object) -> None:
            if refused:
                raise PermissionError(errno.EPERM, "Operation not permitted")

    monkeypatch.setattr(socket, "socket", Socket)
    assert large_buffers_allowed() is not refused


WHOLE_MACHINE = "         0          0 4294967295\n"
OWN = "         0       1000          1\n"
CONTAINER = "         0     100000      65536\n     70000       1000          1\n"


@pytest.mark.parametrize(
    ("id_map", "user_id", "owner"),
    [
        (WHOLE_MACHINE, 0, 0),
        (WHOLE_MACHINE, 1000, 1000),
        (OWN, 0, 1000),
        (CONTAINER, 5, 100_005),
        (CONTAINER, 70_000, 1000),
        (OWN, 1, UNMAPPED),
        ("", 0, UNMAPPED),
    ],
)
def test_an_id_is_translated_as_the_namespaces_map_says(id_map: str, user_id: int, owner: int) -> None:
    assert owner_of(user_id, id_map) == owner
