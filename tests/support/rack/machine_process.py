"""A machine of a rack in a process of its own, without Ray: ``python -m tests.support.rack.machine_process ...``.

Its arguments are its card's address, where it listens, the folder of its claims, for how many seconds its driver may be
silent, and optionally ``trunks``: it then does without netem. A connection carries one call after the other.
"""

import socket
import sys
import threading
import traceback
from multiprocessing.connection import Client, Connection, Listener
from pathlib import Path
from queue import Empty, SimpleQueue
from typing import Any

from wanbed.testbed.kernel.namespace import inside
from wanbed.testbed.rack.machine_handle import MachineLostError

PORT = 701
_KEY = b"tests of the rack"


def main(card: str, root: str, lease_s: str, *options: str) -> None:
    from tests.support.rack.without_netem import TrunkMachine
    from wanbed.testbed.rack.machine.machine import Machine

    machine = (TrunkMachine if options else Machine)(card, lease_s=float(lease_s), root=Path(root))
    with Listener((card, PORT), backlog=32, authkey=_KEY) as listener:
        print("listening", flush=True)
        while True:
            threading.Thread(target=_serve, args=(machine, listener.accept()), daemon=True).start()


def _serve(machine: Any, connection: Connection) -> None:
    with connection:
        while True:
            try:
                method, arguments = connection.recv()
            except EOFError:
                return
            try:
                answer = True, getattr(machine, method)(*arguments)
            except Exception as fault:
                fault.add_note(traceback.format_exc())
                answer = False, fault
            connection.send(answer)


class _PendingCall:
    """A call in a thread of its own."""

    def __init__(self, handle: "ProcessHandle", method: str, arguments: tuple[Any, ...]) -> None:
        self._answer: tuple[bool, Any]
        self._ended = threading.Event()
        threading.Thread(target=self._run, args=(handle, method, arguments), daemon=True).start()

    def _run(self, handle: "ProcessHandle", method: str, arguments: tuple[Any, ...]) -> None:
        try:
            self._answer = True, handle.call(method, *arguments)
        except Exception as fault:
            self._answer = False, fault
        self._ended.set()

    def result(self, timeout_s: float | None = None) -> Any:
        if not self._ended.wait(timeout_s):
            raise TimeoutError
        succeeded, answer = self._answer
        if not succeeded:
            raise answer
        return answer


class ProcessHandle:
    """A handle of the machine whose card has ``address``, on the wire whose namespace is at ``wire``.

    Each call under way has a connection of its own.
    """

    def __init__(self, name: str, address: str, wire: str) -> None:
        self.name = name
        self._address = address
        self._wire = wire
        self._idle: SimpleQueue[Connection] = SimpleQueue()

    def call(self, method: str, *arguments: Any) -> Any:
        try:
            connection = self._connection()
            connection.send((method, arguments))
            succeeded, answer = connection.recv()
        except (EOFError, OSError):
            raise MachineLostError(f"machine {self.name} has gone: its process does not answer") from None
        self._idle.put(connection)
        if not succeeded:
            raise answer
        return answer

    def datagram_socket(self) -> socket.socket:
        with inside(self._wire):
            return socket.socket(socket.AF_INET, socket.SOCK_DGRAM)

    def is_reachable(self, timeout_s: float) -> bool:
        """Return False: nothing but its process plays the machine."""
        return False

    def start_call(self, method: str, *arguments: Any) -> _PendingCall:
        return _PendingCall(self, method, arguments)

    def _connection(self) -> Connection:
        try:
            return self._idle.get_nowait()
        except Empty:
            with inside(self._wire):
                return Client((self._address, PORT), authkey=_KEY)


if __name__ == "__main__":
    main(*sys.argv[1:])
