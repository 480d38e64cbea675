"""Fork Python programs on hosts: ``python -m testbed.virtual_time.processes.fork_server SOCKET``.

Where every system call is slow, starting Python and loading a program costs a second; a fork of a process that has
loaded it costs hundredths of one. Whoever starts the server holds the other end of a socket, and asks with one message
for each process: a JSON object ``{"module", "arguments"}`` together with the descriptors that ``REQUEST_DESCRIPTORS``
names. Only the standard library is used here, and what the programs load.

The server answers with the process's number and a pidfd of it. On ``status`` it writes, once the process has ended, its
exit status, negative for a signal. When the socket's other end is closed, the server ends, and with it all it forked.
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

from testbed.kernel.inside import in_virtual_time
from testbed.virtual_time.repeatability import run_in_order_of_waking

NAMESPACE_FLAGS = {"net": 0x40000000, "mnt": 0x00020000, "uts": 0x04000000}
"""The kinds of namespace that a host is, as /proc names them, and their flags for ``setns``."""

REQUEST_DESCRIPTORS = ("words", "status", *NAMESPACE_FLAGS)
"""``words`` takes what the program says, on standard output and error; ``status`` its exit status."""

MAX_REQUEST_BYTES = 64 * 1024
_PR_SET_PDEATHSIG = 1


class _Server:
    def __init__(self, requests: socket.socket) -> None:
        self._requests = requests
        self._selector = selectors.DefaultSelector()
        self._selector.register(requests, selectors.EVENT_READ)
        self._running: dict[int, tuple[int, int]] = {}

    def serve(self) -> None:
        """Fork what is asked for until nobody can ask any more."""
        while True:
            for key, _ in self._selector.select():
                if key.fileobj is not self._requests:
                    self._ended(key.fd)
                elif not self._asked():
                    return

    def end(self) -> None:
        """Kill whatever is left."""
        for pid, _ in self._running.values():
            os.kill(pid, signal.SIGKILL)

    def _asked(self) -> bool:
        message, descriptors, _, _ = socket.recv_fds(self._requests, MAX_REQUEST_BYTES, len(REQUEST_DESCRIPTORS))
        if not message:
            return False
        request = json.loads(message)
        held = dict(zip(REQUEST_DESCRIPTORS, descriptors, strict=True))
        # Loaded here, so that this process and every fork of it has it; what cannot be is told by the fork.
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

    def _ended(self, pidfd: int) -> None:
        pid, status = self._running.pop(pidfd)
        # Told before it is waited for: whoever sees that there is no such process any more finds the status there.
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
    """Become the program, on its host."""
    status = 1
    try:
        for stream in (1, 2):
            os.dup2(held["words"], stream)
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
    """Serve on the socket whose descriptor's number is the one argument."""
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
