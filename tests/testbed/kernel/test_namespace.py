import ctypes
import errno
import os
import subprocess
import sys
from pathlib import Path

import pytest

from wanbed.runner.runs.faults import NO_DATA, status_of
from wanbed.testbed.kernel import namespace
from wanbed.testbed.kernel.namespace import NamespaceEndedError, anonymous_namespace, inside


class Refusing:
    """The C library of a process that may not make or enter namespaces."""

    def unshare(self, _: int) -> int:
        ctypes.set_errno(errno.EPERM)
        return -1

    def setns(self, *_: int) -> int:
        ctypes.set_errno(errno.EPERM)
        return -1


@pytest.fixture(autouse=True)
def _unprivileged(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(namespace, "_libc", Refusing())


def test_making_a_namespace_that_is_not_permitted_is_an_os_error() -> None:
    with pytest.raises(PermissionError, match="making a network namespace"):
        anonymous_namespace()


def test_entering_a_forbidden_namespace_raises_and_leaks_no_descriptor() -> None:
    def opened() -> set[str]:
        return set(os.listdir("/proc/self/fd"))

    before = opened()
    with pytest.raises(PermissionError, match="entering a network namespace"), inside("/proc/self/ns/net"):
        pytest.fail("the block ran")
    assert opened() == before


def test_a_namespace_whose_process_has_ended_is_not_there(tmp_path: Path) -> None:
    said = r"/none: the process that held this network has ended$"
    with pytest.raises(NamespaceEndedError, match=said) as raised, inside(str(tmp_path / "none")):
        pytest.fail("the block ran")
    assert isinstance(raised.value, FileNotFoundError)
    assert status_of(raised.value) == NO_DATA


FEW_DESCRIPTORS = """
import gc, os, resource
from wanbed.testbed.kernel.namespace import open_netlink

open_netlink("/proc/self/ns/net").close()
in_use, (soft, hard) = len(os.listdir("/proc/self/fd")) - 1, resource.getrlimit(resource.RLIMIT_NOFILE)
for spare in range(10):
    resource.setrlimit(resource.RLIMIT_NOFILE, (in_use + spare, hard))
    try:
        open_netlink("/proc/self/ns/net").close()
        print("opened")
    except OSError as fault:
        print(fault.errno)
    gc.collect()
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
assert len(os.listdir("/proc/self/fd")) - 1 == in_use
"""


def test_without_descriptors_for_a_netlink_socket_an_os_error_is_all_that_is_said() -> None:
    done = subprocess.run([sys.executable, "-c", FEW_DESCRIPTORS], capture_output=True, text=True, check=True)
    assert done.stderr == ""
    assert list(dict.fromkeys(done.stdout.splitlines())) == [str(errno.EMFILE), "opened"]
