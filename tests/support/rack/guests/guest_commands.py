"""Run programs on a guest machine from outside: its first process listens on its card, and runs one each connection.

As a program: be that first process. A connection begins with a line of JSON that says what to run. The answers are
lines of JSON with output as it appears, and at last the exit status. What else is sent is the program's input. Closing
the connection kills the program.
"""

import json
import os
import select
import signal
import socket
import subprocess
import threading
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import Self

from wanbed.testbed.kernel.namespace import inside

PORT = 700
_CHUNK_BYTES = 65536
_LOOK_S = 0.05


def connect(namespace: str, address: str, machine: subprocess.Popen[bytes], patience_s: float) -> socket.socket:
    """Connect to a machine's first process from inside a namespace. Raise OSError if the machine does not boot."""
    deadline = time.monotonic() + patience_s
    while True:
        try:
            with inside(namespace):
                return socket.create_connection((address, PORT), timeout=2.0)
        except OSError:
            if machine.poll() is not None or time.monotonic() > deadline:
                raise
            time.sleep(_LOOK_S)


class GuestCommand:
    """A program that runs on a guest machine. It is killed with the ``with`` block, and with the owner of this."""

    def __init__(
        self,
        connection: socket.socket,
        argv: Sequence[str],
        environment: Mapping[str, str],
        folder: Path,
        *,
        has_input: bool,
    ) -> None:
        self._connection = connection
        self._parts: list[str] = []
        self._status: int | None = None
        self._ended = threading.Event()
        connection.settimeout(None)
        order = {"argv": list(argv), "environment": dict(environment), "folder": str(folder), "input": has_input}
        connection.sendall(json.dumps(order).encode() + b"\n")
        threading.Thread(target=self._read, daemon=True).start()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, fault: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.kill()

    def _read(self) -> None:
        try:
            with self._connection.makefile("rb") as lines:
                for line in lines:
                    answer = json.loads(line)
                    self._parts.append(answer.get("output", ""))
                    self._status = answer.get("status")
        except (OSError, ValueError):
            pass
        finally:
            self._ended.set()

    def send(self, line: str) -> None:
        """Send a line to a program that has input."""
        self._connection.sendall(line.encode() + b"\n")

    def output(self) -> str:
        """Return what the program has printed so far."""
        return "".join(self._parts)

    @property
    def ended(self) -> bool:
        """Whether the program has ended, or its machine."""
        return self._ended.is_set()

    def wait(self, timeout_s: float) -> int:
        """Wait for the program's end and return its exit status, negative if a signal ended it.

        Raise TimeoutError if it goes on, ConnectionError if the machine has gone.
        """
        if not self._ended.wait(timeout_s):
            raise TimeoutError(f"it still runs after {timeout_s:.0f} s: {self.output()[-2000:]}")
        if self._status is None:
            raise ConnectionError(f"the machine has gone: {self.output()[-2000:]}")
        return self._status

    def kill(self) -> None:
        """Kill the program and what it has started, if it still runs."""
        with suppress(OSError):
            self._connection.shutdown(socket.SHUT_RDWR)
        self._ended.wait(5.0)
        self._connection.close()


def main() -> None:
    with socket.create_server(("", PORT), backlog=64) as server:
        while True:
            connection, _ = server.accept()
            threading.Thread(target=_serve, args=(connection,), daemon=True).start()


def _serve(connection: socket.socket) -> None:
    # Unbuffered: what follows the line is the program's input.
    with connection, connection.makefile("rb", buffering=0) as lines, suppress(OSError):
        order = json.loads(lines.readline())
        try:
            process = subprocess.Popen(
                order["argv"],
                stdin=subprocess.PIPE if order["input"] else subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                env={**os.environ, **order["environment"]},
                cwd=order["folder"],
                start_new_session=True,
            )
        except OSError as fault:
            _answer(connection, {"output": f"{fault}\n", "status": 127})
            return
        _relay(connection, process)


def _relay(connection: socket.socket, process: subprocess.Popen[bytes]) -> None:
    assert process.stdout is not None
    output = process.stdout.fileno()
    os.set_blocking(output, False)
    try:
        sources: list[int] = [connection.fileno(), output]
        while process.poll() is None:
            ready, _, _ = select.select(sources, [], [], _LOOK_S)
            if output in ready and not _pass_on(connection, output):
                sources.remove(output)
            if connection.fileno() in ready:
                if not (given := connection.recv(_CHUNK_BYTES)):
                    return
                if process.stdin is not None:
                    os.write(process.stdin.fileno(), given)
        # Not until its end: what the program has left running may hold the pipe.
        while _pass_on(connection, output):
            pass
        _answer(connection, {"status": process.returncode})
    finally:
        if process.poll() is None:
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()
        process.stdout.close()
        if process.stdin is not None:
            process.stdin.close()


def _pass_on(connection: socket.socket, output: int) -> bool:
    """Send what can be read now; return whether there was something."""
    try:
        data = os.read(output, _CHUNK_BYTES)
    except BlockingIOError:
        return False
    if data:
        _answer(connection, {"output": data.decode(errors="replace")})
    return bool(data)


def _answer(connection: socket.socket, answer: Mapping[str, object]) -> None:
    connection.sendall(json.dumps(answer).encode() + b"\n")


if __name__ == "__main__":
    main()
