"""Create network namespaces, and run code, netlink sockets and sysctls inside them by path."""

import ctypes
import os
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

from wanbed.ground.errors import WanbedError


class NamespaceEndedError(WanbedError, FileNotFoundError):
    """The process at whose path a network namespace was has ended. Exit status 4."""


_CLONE_NEWNET = 0x40000000

_DESCRIPTORS = 4
"""Those of a netlink socket and its event loop."""

_libc = ctypes.CDLL(None, use_errno=True)


def _check(status: int, what: str) -> None:
    if status != 0:
        number = ctypes.get_errno()
        raise OSError(number, f"{what}: {os.strerror(number)}")


def _enter(descriptor: int) -> None:
    _check(_libc.setns(descriptor, _CLONE_NEWNET), "entering a network namespace")


@contextmanager
def opened(namespace: str) -> Iterator[int]:
    """Yield a descriptor of the network namespace at a path such as ``/proc/PID/ns/net``.

    Raise NamespaceEndedError if nothing is at that path.
    """
    try:
        descriptor = os.open(namespace, os.O_RDONLY | os.O_CLOEXEC)
    except FileNotFoundError:
        raise NamespaceEndedError(f"{namespace}: the process that held this network has ended") from None
    try:
        yield descriptor
    finally:
        os.close(descriptor)


@contextmanager
def inside(namespace: str) -> Iterator[None]:
    """Run the block, in this thread alone, inside the network namespace at a path. Raise what ``opened`` raises."""
    with opened(namespace) as other, opened("/proc/thread-self/ns/net") as own:
        _enter(other)
        try:
            yield
        finally:
            _enter(own)


def open_netlink(namespace: str) -> Any:
    """Open a netlink socket inside a namespace. Close it: an open socket keeps the namespace alive."""
    from pyroute2 import IPRoute  # noqa: PLC0415 - a simulation reads sysctls from here, and needs no netlink

    with inside(namespace):
        # An event loop that is half made when descriptors run out writes a traceback as soon as it is collected.
        with ExitStack() as spare:
            for _ in range(_DESCRIPTORS):
                spare.callback(os.close, os.open(os.devnull, os.O_RDONLY | os.O_CLOEXEC))
        return IPRoute()


def write_sysctls(namespace: str, settings: dict[str, str]) -> None:
    """Set ``net.*`` sysctls of one namespace. Raise RuntimeError if one does not read back as set."""
    with inside(namespace):
        for name, value in settings.items():
            path = Path("/proc/sys", *name.split("."))
            path.write_text(value)
            kept = path.read_text()
            if kept.split() != value.split():
                raise RuntimeError(f"sysctl {name}: configured {value!r}, the kernel holds {kept.strip()!r}")


def read_sysctls(namespace: str, names: Iterable[str]) -> dict[str, str | None]:
    """Read sysctls of one namespace, with single spaces between words; None for one that it does not have."""
    with inside(namespace):
        return {name: read_sysctl(name) for name in names}


def read_sysctl(name: str) -> str | None:
    """Read a sysctl of this thread's namespace, in the form of ``read_sysctls``."""
    try:
        return " ".join(Path("/proc/sys", *name.split(".")).read_text().split())
    except OSError:
        return None


def anonymous_namespace() -> int:
    """Create a network namespace and return its only file descriptor: it ends with this process.

    Raise OSError if this process may not create one.
    """

    def unshare() -> int:
        _check(_libc.unshare(_CLONE_NEWNET), "making a network namespace")
        return os.open("/proc/thread-self/ns/net", os.O_RDONLY | os.O_CLOEXEC)

    with ThreadPoolExecutor(max_workers=1) as other_thread:
        return other_thread.submit(unshare).result()
