"""Make hosts that are namespaces and nothing else.

In virtual time starting a process costs as much as a second of network does. A Mininet node is a shell, which takes
half a second of wall time to start there. This one has its network, mount and UTS namespace made by a thread that ends
at once; three file descriptors of this process keep them. They go with it.
"""

import ctypes
import os
import subprocess
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, TypeVar, Unpack

from testbed.claims.registry import MARKER
from testbed.hosts.host import SpawnOptions
from testbed.hosts.host_process import HostProcess
from testbed.virtual_time.processes.fork_server import NAMESPACE_FLAGS
from testbed.virtual_time.processes.forked_process import ForkServer
from testbed.virtual_time.repeatability import use_the_same_addresses

_CLONE_FS = 0x200
_MS_BIND, _MS_REC, _MS_PRIVATE = 0x1000, 0x4000, 0x40000
_libc = ctypes.CDLL(None, use_errno=True)

Result = TypeVar("Result")


class LightHost:
    """One host. Its processes bear the testbed's identifier, ``marker``."""

    def __init__(self, name: str, marker: str, server: ForkServer) -> None:
        self.name = name
        self._owner_pid = os.getpid()
        self._marker = marker
        self._server = server
        self._namespaces: dict[str, int] = _in_a_thread(self._make)

    def _make(self) -> dict[str, int]:
        flags = _CLONE_FS
        for flag in NAMESPACE_FLAGS.values():
            flags |= flag
        _check(_libc.unshare(flags), "making a host's namespaces")
        _check(_libc.mount(b"none", b"/", None, _MS_REC | _MS_PRIVATE, None), "making a host's mounts its own")
        name = self.name.encode()
        _check(_libc.sethostname(name, len(name)), "naming a host")
        return {kind: os.open(f"/proc/thread-self/ns/{kind}", os.O_RDONLY | os.O_CLOEXEC) for kind in NAMESPACE_FLAGS}

    @property
    def namespace(self) -> str:
        """Path of the network namespace."""
        return self._path("net")

    def _path(self, kind: str) -> str:
        return f"/proc/{self._owner_pid}/fd/{self._namespaces[kind]}"

    @property
    def shell_pid(self) -> None:
        """None: no process is left in the namespaces of a host on which nothing runs."""

    def configure(self, hosts_file: Path, address: str, environment: Mapping[str, str]) -> None:
        """Make ``hosts_file`` this host's /etc/hosts. There is no shell, for which the rest would be."""

        def bind() -> None:
            _check(_libc.unshare(_CLONE_FS), "leaving this process's folder")
            _check(_libc.setns(self._namespaces["mnt"], NAMESPACE_FLAGS["mnt"]), f"entering {self.name}'s mounts")
            source = os.fsencode(hosts_file)
            _check(_libc.mount(source, b"/etc/hosts", None, _MS_BIND, None), f"{self.name}: mounting /etc/hosts")

        _in_a_thread(bind)

    def spawn(self, argv: list[str], **popen: Unpack[SpawnOptions]) -> subprocess.Popen[Any]:
        """Start any program on this host: in its network, mount and UTS namespaces."""
        enter = [
            "nsenter",
            *(f"--{kind}={self._path(kind)}" for kind in ("net", "uts")),
            f"--mount={self._path('mnt')}",
        ]
        popen["env"] = {**(popen.get("env") or os.environ), MARKER: self._marker}
        return subprocess.Popen([*enter, "--", *argv], **popen)

    def start_module(
        self, module: str, arguments: list[str], words: int, environment: Mapping[str, str]
    ) -> HostProcess:
        """Run ``main(arguments)`` of a Python module on this host, in a fork of a process that has loaded it.

        Raises ValueError for an ``environment`` of its own: what is forked has that of the process it is forked from.
        """
        if environment:
            raise ValueError(f"{module}: in virtual time a program has no environment of its own: {dict(environment)}")
        return self._server.start(module, arguments, words, self._namespaces)

    def stop(self) -> None:
        """Let go of the namespaces; once no process is in them they are gone."""
        for descriptor in self._namespaces.values():
            os.close(descriptor)
        self._namespaces = {}


class LightNetwork:
    """All hosts and gateways of a testbed, and the process that their Python programs are forked from."""

    def __init__(self) -> None:
        self.hosts: list[LightHost] = []
        self._server: ForkServer | None = None

    def add(self, name: str, marker: str) -> LightHost:
        """Make a host."""
        if self._server is None:
            use_the_same_addresses()
            self._server = ForkServer(marker)
        host = LightHost(name, marker, self._server)
        self.hosts.append(host)
        return host

    @property
    def module_parent(self) -> int:
        """Number of the process that the hosts' Python programs are forked from."""
        assert self._server is not None
        return self._server.pid

    def stop(self) -> None:
        """End what was forked, and let go of every host."""
        if self._server is not None:
            self._server.stop()
        for host in self.hosts:
            host.stop()
        self.hosts.clear()


def _in_a_thread(task: Callable[[], Result]) -> Result:
    """Run ``task`` in a thread of its own, so that only that thread enters other namespaces."""
    with ThreadPoolExecutor(max_workers=1) as other_thread:
        return other_thread.submit(task).result()


def _check(status: int, what: str) -> None:
    if status != 0:
        number = ctypes.get_errno()
        raise OSError(number, f"{what}: {os.strerror(number)}")
