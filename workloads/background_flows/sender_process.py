"""Send a flow in the background: ``python -m wanbed.workloads.background_flows.sender_process CONFIG.json``.

The process connects, waits at the gate until training begins, and sends until SIGTERM; then it exits with status 0. On
a failure it exits with status 1 and one line on standard error.
"""

import os
import selectors
import signal
import socket
import sys
import time
from functools import partial
from pathlib import Path

from wanbed.ground.dataclass_json import read_config
from wanbed.workloads.background_flows.flow import UNSENT_BYTES, SenderConfig
from wanbed.workloads.host_process import die_with_parent, run_configured
from wanbed.workloads.start_gate import wait_at_gate
from wanbed.workloads.transport.peer import TransportError
from wanbed.workloads.transport.socket_options import hold_unsent, make_socket, reset_on_close

_RETRY_S = 0.05
_CONNECT_TIMEOUT_S = 30.0
_PIECE_BYTES = 256 * 1024


class FlowSender:
    """The sending end of a flow. Construct it, then call ``connect`` and ``run``."""

    def __init__(self, config: SenderConfig) -> None:
        self._config = config
        self._selector = selectors.DefaultSelector()
        self._news = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)
        self._selector.register(self._news, selectors.EVENT_READ)
        self._sockets: list[socket.socket] = []
        self._ending = False
        self._zeros = memoryview(bytes(_PIECE_BYTES))
        self._most_bytes = _PIECE_BYTES if config.end.is_tcp else config.payload_bytes
        self._handed_wire_bytes = self._handed_bytes = 0

    def end(self) -> None:
        """Make ``run`` return. Safe to call from a signal handler."""
        self._ending = True
        os.eventfd_write(self._news, 1)

    def connect(self) -> None:
        """Open all connections, retrying while nobody listens yet. Raise TransportError if nobody comes to."""
        deadline_s = time.monotonic() + _CONNECT_TIMEOUT_S
        while len(self._sockets) < self._config.end.connections and not self._ending:
            made = self._socket()
            try:
                made.settimeout(max(deadline_s - time.monotonic(), 0.1))
                made.connect((self._config.peer_address, self._config.peer_port))
            except OSError as fault:
                made.close()
                if time.monotonic() >= deadline_s:
                    raise TransportError(f"no connection to {self._config.peer_address}: {fault}") from None
                time.sleep(_RETRY_S)
                continue
            made.setblocking(False)
            self._sockets.append(made)

    def _socket(self) -> socket.socket:
        end = self._config.end
        if end.is_tcp:
            made = make_socket(end.address, 0, congestion=self._config.congestion, peer_timeout_s=end.peer_timeout_s)
            hold_unsent(made, UNSENT_BYTES)
            reset_on_close(made)
            return made
        made = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        made.bind((end.address, 0))
        return made

    def run(self) -> None:
        """Send what the flow offers, from now on, until ``end`` is called. Raise OSError if a connection is lost."""
        begin_ns = time.monotonic_ns()
        for at_ns, until_ns, wire_bytes in self._config.offered.handouts():
            self._wait_until(begin_ns + at_ns)
            if self._ending:
                return
            deadline_ns = None if until_ns is None else begin_ns + until_ns
            self._hand_over(None if wire_bytes is None else self._shares(wire_bytes), deadline_ns)
        self._wait_until(None)

    def _shares(self, wire_bytes: int) -> list[int]:
        """Return the payload of that much on the wire for each connection. What rounding leaves comes next time."""
        config, count = self._config, len(self._sockets)
        self._handed_wire_bytes += wire_bytes
        due = self._handed_wire_bytes * config.payload_bytes // config.wire_bytes
        each = (due - self._handed_bytes) // count
        if not config.end.is_tcp:
            each -= each % config.payload_bytes
        self._handed_bytes += each * count
        return [each] * count

    def _wait_until(self, time_ns: int | None) -> None:
        while not self._ending:
            left_s = None if time_ns is None else (time_ns - time.monotonic_ns()) / 1e9
            if left_s is not None and left_s <= 0:
                return
            self._selector.select(left_s)

    def _hand_over(self, shares: list[int] | None, deadline_ns: int | None) -> None:
        """Send each socket's share, or as much as it takes, until the deadline at the latest."""
        left = dict(zip(self._sockets, shares or [-1] * len(self._sockets), strict=True))
        left = {each: share for each, share in left.items() if share}
        for each in list(left):
            self._push(each, left)
        for each in left:
            self._selector.register(each, selectors.EVENT_WRITE)
        waiting = list(left)
        while left and not self._ending:
            left_s = None if deadline_ns is None else (deadline_ns - time.monotonic_ns()) / 1e9
            if left_s is not None and left_s <= 0:
                break
            for key, _ in self._selector.select(left_s):
                if isinstance(key.fileobj, socket.socket) and key.fileobj in left:
                    self._push(key.fileobj, left)
        for each in waiting:
            self._selector.unregister(each)

    def _push(self, to: socket.socket, left: dict[socket.socket, int]) -> None:
        """Send what a socket takes of its share now; forget the socket if that is all. A share of -1 never ends."""
        while to in left and not self._ending:
            share = left[to]
            size = self._most_bytes if share < 0 else min(share, self._most_bytes)
            try:
                sent = to.send(self._zeros[:size])
            except BlockingIOError:
                return
            if share >= 0:
                left[to] = share - sent
                if not left[to]:
                    del left[to]


def _run_sender(config: SenderConfig) -> None:
    """Run the sending process until it is told to end."""
    if config.end.parent_pid is not None:
        die_with_parent(config.end.parent_pid)
    sender = FlowSender(config)
    signal.signal(signal.SIGTERM, lambda number, frame: sender.end())
    sender.connect()
    wait_at_gate(Path(config.end.gate))
    sender.run()
    # A SIGTERM may still arrive while the process exits.
    signal.signal(signal.SIGTERM, signal.SIG_IGN)


def main(arguments: list[str]) -> int:
    """Run the sender whose configuration file is named on the command line. Return the exit status."""
    return run_configured(
        arguments,
        module="wanbed.workloads.background_flows.sender_process",
        name="wanbed background",
        read=partial(read_config, SenderConfig),
        run=_run_sender,
        faults=(TransportError,),
        named=lambda config: f"background {config.end.name!r}, sender",
    )


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
