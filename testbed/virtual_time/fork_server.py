"""Fork Python programs on hosts: ``python -m wanbed.testbed.virtual_time.fork_server SOCKET``.

In virtual time every system call is slow in wall time. Starting Python and loading a program takes a second; forking a
process that has loaded it takes hundredths of a second. The process that starts the server holds the other end of the
socket. It requests each process with one message: a JSON object ``{"module", "arguments"}`` and the descriptors that
``REQUEST_DESCRIPTORS`` names. Only the standard library is used here, and what the programs load.

The server answers with the process's PID and pidfd. When the process has ended, the server writes its exit status,
negative for a signal, to ``status``. When the socket's other end is closed, the server ends and kills all its forks.
"""

import ctypes
import gc
import importlib
import json
import os
import selectors
import signal
import socket
import sys
import traceback
from contextlib import suppress
from typing import NoReturn

from wanbed.testbed.kernel.inside import in_virtual_time
from wanbed.testbed.virtual_time.repeatability import run_in_order_of_waking

NAMESPACE_FLAGS = {"net": 0x40000000, "mnt": 0x00020000, "uts": 0x04000000}
"""The kinds of namespace that make up a host, as /proc names them, and their flags for ``setns``."""

REQUEST_DESCRIPTORS = ("output", "status", *NAMESPACE_FLAGS)
"""``output`` receives the program's standard output and error, ``status`` its exit status."""

MAX_REQUEST_BYTES = 64 * 1024


class _Server:
    def __init__(self, requests: socket.socket) -> None:
        self._requests = requests
        self._selector = selectors.DefaultSelector()
        self._selector.register(requests, selectors.EVENT_READ)
        self._running: dict[int, tuple[int, int]] = {}

    def serve(self) -> None:
        """Handle requests until the other end of the socket is closed."""
        while True:
            for key, _ in self._selector.select():
                if key.fileobj is not self._requests:
                    self._handle_exit(key.fd)
                elif not self._handle_request():
                    return

    def end(self) -> None:
        """Kill all processes that still run."""
        for pid, _ in self._running.values():
            os.kill(pid, signal.SIGKILL)

    def _handle_request(self) -> bool:
        try:
            message, descriptors, _, _ = socket.recv_fds(self._requests, MAX_REQUEST_BYTES, len(REQUEST_DESCRIPTORS))
        except ConnectionResetError:
            # The other end was killed before it had read an answer.
            return False
        if not message:
            return False
        request = json.loads(message)
        held = dict(zip(REQUEST_DESCRIPTORS, descriptors, strict=True))
        # Loaded here, so that every later fork has it too. The fork reports a module that cannot be loaded.
        with suppress(Exception):
            importlib.import_module(request["module"])
        gc.freeze()
        pid = os.fork()
        if pid == 0:
            self._selector.close()
            self._requests.close()
            _become(request["module"], request["arguments"], held)
        pidfd = os.pidfd_open(pid)
        for name, descriptor in held.items():
            if name != "status":
                os.close(descriptor)
        self._running[pidfd] = pid, held["status"]
        self._selector.register(pidfd, selectors.EVENT_READ)
        socket.send_fds(self._requests, [str(pid).encode()], [pidfd])
        return True

    def _handle_exit(self, pidfd: int) -> None:
        pid, status = self._running.pop(pidfd)
        # Written before the process is reaped, so that the status is there once the process is gone.
        ended = os.waitid(os.P_PIDFD, pidfd, os.WEXITED | os.WNOWAIT)
        assert ended is not None
        code = ended.si_status if ended.si_code == os.CLD_EXITED else -ended.si_status
        with suppress(BrokenPipeError):
            os.write(status, str(code).encode())
        os.close(status)
        os.waitpid(pid, 0)
        self._selector.unregister(pidfd)
        os.close(pidfd)


def _become(module: str, arguments: list[str], held: dict[str, int]) -> NoReturn:
    """Run the program in this process, in its host's namespaces, and exit with its status."""
    status = 1
    try:
        for stream in (1, 2):
            os.dup2(held["output"], stream)
        libc = ctypes.CDLL(None, use_errno=True)
        for name, flag in NAMESPACE_FLAGS.items():
            if libc.setns(held[name], flag) != 0:
                raise OSError(ctypes.get_errno(), f"entering a host's {name} namespace")
        for descriptor in held.values():
            os.close(descriptor)
        sys.argv = [module, *arguments]
        status = int(importlib.import_module(module).main(arguments))
    except SystemExit as end:
        status = end.code if isinstance(end.code, int) else 1
    except BaseException:
        traceback.print_exc()
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(status)


def main(arguments: list[str]) -> int:
    """Serve on the socket whose descriptor is the only argument."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    if in_virtual_time():
        run_in_order_of_waking()
    requests = socket.socket(fileno=int(arguments[0]))
    server = _Server(requests)
    try:
        server.serve()
    finally:
        server.end()
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
