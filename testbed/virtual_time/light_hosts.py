"""Provide hosts for virtual time that consist of namespaces alone, and fork Python programs on them from a server.

In virtual time starting a process takes as much wall time as a second of network: a Mininet node is a shell, which
takes half a second to start. Here a short-lived thread creates the host's network, mount and UTS namespaces. Three file
descriptors of this process keep them alive, so that they end with it. The forked server has loaded the programs.
"""

import ctypes
import json
import os
import select
import signal
import socket
import subprocess
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, TypeVar, Unpack

from wanbed.ground.errors import WanbedError
from wanbed.module_process import module_command
from wanbed.testbed.claims.processes import MARKER
from wanbed.testbed.hosts.host import HostProcess, SpawnOptions
from wanbed.testbed.hosts.host_environment import covered
from wanbed.testbed.virtual_time.fork_server import MAX_REQUEST_BYTES, NAMESPACE_FLAGS, REQUEST_DESCRIPTORS
from wanbed.testbed.virtual_time.repeatability import unseeded, use_the_same_addresses

_PID_BYTES = 32


class ServerEndedError(WanbedError):
    """The process that others are forked from has ended, as by the kernel that was out of memory, or by a signal."""


class ForkedProcess:
    """A process that the server has forked, with the interface of ``HostProcess``."""

    def __init__(self, pid: int, pidfd: int, status: int) -> None:
        self.pid = pid
        self.returncode: int | None = None
        self._pidfd = pidfd
        self._status = status

    def fileno(self) -> int:
        """Return a descriptor that is readable once the process has ended; call only before ``returncode`` is known."""
        return self._status

    def poll(self) -> int | None:
        """Return the exit status, None while it runs."""
        return self._wait(0)

    def wait(self, timeout: float | None = None) -> int:
        """Wait for the end and return the exit status. Raise subprocess.TimeoutExpired after ``timeout`` seconds."""
        status = self._wait(timeout)
        if status is None:
            raise subprocess.TimeoutExpired(f"process {self.pid}", timeout or 0.0)
        return status

    def kill(self) -> None:
        """Send SIGKILL, if it still runs."""
        self._signal(signal.SIGKILL)

    def terminate(self) -> None:
        """Send SIGTERM, if it still runs."""
        self._signal(signal.SIGTERM)

    def _signal(self, number: int) -> None:
        if self.poll() is None:
            try:
                signal.pidfd_send_signal(self._pidfd, number)
            except ProcessLookupError:
                return

    def _wait(self, timeout_s: float | None) -> int | None:
        if self.returncode is None and select.select([self._status], [], [], timeout_s)[0]:
            # Nothing was written if the server itself was killed: report its processes as killed too.
            self.returncode = int(os.read(self._status, _PID_BYTES) or -signal.SIGKILL)
            os.close(self._status)
            os.close(self._pidfd)
        return self.returncode


class ForkServer:
    """The server's process and the socket for requests; the process has the testbed's identifier, ``marker``."""

    def __init__(self, marker: str) -> None:
        self._socket, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with theirs:
            argv = module_command("wanbed.testbed.virtual_time.fork_server", str(theirs.fileno()))
            environment = unseeded({**os.environ, MARKER: marker})
            self._process = subprocess.Popen(
                argv, env=environment, pass_fds=[theirs.fileno()], stdin=subprocess.DEVNULL
            )

    @property
    def pid(self) -> int:
        """PID of the server, the parent of every forked process."""
        return self._process.pid

    def start(self, module: str, arguments: list[str], output: int, namespaces: Mapping[str, int]) -> ForkedProcess:
        """Fork a process that runs ``main(arguments)`` of ``module`` in those namespaces, given by descriptors.

        Its standard output and error go to the descriptor ``output``. Raise ValueError for too many arguments, and
        ServerEndedError if the server has ended; the server has then reported the reason on its standard error.
        """
        request = json.dumps({"module": module, "arguments": arguments}).encode()
        if len(request) > MAX_REQUEST_BYTES:
            raise ValueError(f"{module}: arguments of {len(request)} bytes are too many")
        status, theirs = os.pipe()
        try:
            held = {"output": output, "status": theirs, **namespaces}
            socket.send_fds(self._socket, [request], [held[name] for name in REQUEST_DESCRIPTORS])
            pid, descriptors, _, _ = socket.recv_fds(self._socket, _PID_BYTES, 1)
        except OSError:
            pid, descriptors = b"", []
        finally:
            os.close(theirs)
        if not pid:
            os.close(status)
            raise ServerEndedError(f"{module}: the process that it is forked from has ended")
        return ForkedProcess(int(pid), descriptors[0], status)

    def stop(self) -> None:
        """End the server and all processes that it forked."""
        self._socket.close()
        self._process.wait()


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
