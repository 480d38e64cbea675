"""Provide hosts for virtual time that consist of namespaces only, without a process.

In virtual time starting a process takes as much wall time as a second of network: a Mininet node is a shell, which
takes half a second to start. Here a short-lived thread creates the host's network, mount and UTS namespaces. Three file
descriptors of this process keep them alive, so that they end with it.
"""

import ctypes
import os
import subprocess
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, TypeVar, Unpack

from wanbed.testbed.claims.processes import MARKER
from wanbed.testbed.hosts.host import SpawnOptions
from wanbed.testbed.hosts.host_files import covered
from wanbed.testbed.hosts.host_process import HostProcess
from wanbed.testbed.virtual_time.processes.fork_server import NAMESPACE_FLAGS
from wanbed.testbed.virtual_time.processes.forked_process import ForkServer
from wanbed.testbed.virtual_time.repeatability import use_the_same_addresses

_CLONE_FS = 0x200
_MS_BIND, _MS_REC, _MS_PRIVATE = 0x1000, 0x4000, 0x40000
_libc = ctypes.CDLL(None, use_errno=True)

Result = TypeVar("Result")


class LightHost:
    """One host. Its processes have the testbed's identifier, ``marker``, in their environment."""

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
        """None: a host on which nothing runs has no process in its namespaces."""

    def configure(self, etc: Path, address: str, environment: Mapping[str, str]) -> None:
        """Mount the files of ``etc`` on this host's /etc. The rest is ignored: it is for a shell, and there is none."""

        def bind() -> None:
            _check(_libc.unshare(_CLONE_FS), "leaving this process's folder")
            _check(_libc.setns(self._namespaces["mnt"], NAMESPACE_FLAGS["mnt"]), f"entering {self.name}'s mounts")
            for file, place in covered(etc):
                mounted = _libc.mount(os.fsencode(file), os.fsencode(place), None, _MS_BIND, None)
                _check(mounted, f"{self.name}: mounting {place}")

        _in_a_thread(bind)

    def spawn(self, argv: list[str], **popen: Unpack[SpawnOptions]) -> subprocess.Popen[Any]:
        """Start any program on this host, in its network, mount and UTS namespaces."""
        enter = [
            "nsenter",
            *(f"--{kind}={self._path(kind)}" for kind in ("net", "uts")),
            f"--mount={self._path('mnt')}",
            f"--wdns={popen.pop('cwd', '/')}",
        ]
        popen["env"] = {**(popen.get("env") or os.environ), MARKER: self._marker}
        return subprocess.Popen([*enter, "--", *argv], **popen)

    def start_module(
        self, module: str, arguments: list[str], output: int, environment: Mapping[str, str]
    ) -> HostProcess:
        """Run ``main(arguments)`` of a Python module on this host, in a fork of a process that has loaded it.

        Raise ValueError for a non-empty ``environment``: a fork has the environment of the server.
        """
        if environment:
            raise ValueError(f"{module}: in virtual time a program has no environment of its own: {dict(environment)}")
        return self._server.start(module, arguments, output, self._namespaces)

    def stop(self) -> None:
        """Close the namespaces' descriptors. The namespaces end with their last process."""
        for descriptor in self._namespaces.values():
            os.close(descriptor)
        self._namespaces = {}


class LightNetwork:
    """All hosts and gateways of a testbed, and the server from which their Python programs are forked."""

    def __init__(self) -> None:
        self.hosts: list[LightHost] = []
        self._server: ForkServer | None = None

    def add(self, name: str, marker: str) -> LightHost:
        """Create a host, and with the first one the server."""
        if self._server is None:
            use_the_same_addresses()
            self._server = ForkServer(marker)
        host = LightHost(name, marker, self._server)
        self.hosts.append(host)
        return host

    @property
    def module_parent(self) -> int:
        """PID of the server from which the hosts' Python programs are forked."""
        assert self._server is not None
        return self._server.pid

    def stop(self) -> None:
        """End the server and all its forks, and release every host."""
        if self._server is not None:
            self._server.stop()
        for host in self.hosts:
            host.stop()
        self.hosts.clear()


def _in_a_thread(task: Callable[[], Result]) -> Result:
    """Run ``task`` in a new thread, so that only that thread enters other namespaces."""
    with ThreadPoolExecutor(max_workers=1) as other_thread:
        return other_thread.submit(task).result()


def _check(status: int, what: str) -> None:
    if status != 0:
        number = ctypes.get_errno()
        raise OSError(number, f"{what}: {os.strerror(number)}")
