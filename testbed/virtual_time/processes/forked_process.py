"""Start Python programs on hosts by forking a server process that has loaded them."""

import json
import os
import select
import signal
import socket
import subprocess
from collections.abc import Mapping

from wanbed.ground.wanbed_error import WanbedError
from wanbed.module_process import module_command
from wanbed.testbed.claims.processes import MARKER
from wanbed.testbed.virtual_time.processes.fork_server import MAX_REQUEST_BYTES, REQUEST_DESCRIPTORS
from wanbed.testbed.virtual_time.repeatability import unseeded

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
            argv = module_command("wanbed.testbed.virtual_time.processes.fork_server", str(theirs.fileno()))
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
