"""Receive a background flow and count it: ``python -m wanbed.workloads.background_flows.receiver_process CONFIG.json``.

The process listens, reports to the gate that it does, and receives until SIGTERM. It then writes what had come by when,
and exits with status 0. On a failure it exits with status 1 and one line on standard error.
"""

import json
import os
import selectors
import signal
import socket
import sys
import time
from functools import partial
from pathlib import Path

from wanbed.ground.dataclass_json import read_config
from wanbed.ground.socket_owner import accept_own
from wanbed.workloads.background_flows.flow import ReceiverConfig
from wanbed.workloads.host_process import die_with_parent, run_configured
from wanbed.workloads.start_gate import report_at_gate
from wanbed.workloads.transport.peer import TransportError
from wanbed.workloads.transport.socket_options import hold_window, make_socket

_MOST_SAMPLES = 4000
"""At that many every second one is dropped, and the interval doubles: a long trial is covered evenly."""

_ROOM_BYTES = 1024 * 1024
_DATAGRAM_BUFFER_BYTES = 4 * 1024 * 1024
_SO_RCVBUFFORCE = 33


class FlowReceiver:
    """The receiving end of a flow, which listens once it is made. Call ``run``."""

    def __init__(self, config: ReceiverConfig) -> None:
        self._config = config
        self._selector = selectors.DefaultSelector()
        self._news = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)
        self._selector.register(self._news, selectors.EVENT_READ)
        self._interval_ns = config.interval_ns
        self._due_ns = config.epoch_ns
        self._ending = False
        self._room = memoryview(bytearray(_ROOM_BYTES))
        self._received: list[int] = []
        self._number: dict[socket.socket, int] = {}
        self._samples: list[tuple[int, list[int]]] = []
        self._listener = self._listen()
        self._selector.register(self._listener, selectors.EVENT_READ)

    def _listen(self) -> socket.socket:
        config, end = self._config, self._config.end
        if end.is_tcp:
            made = make_socket(end.address, config.port, end.window_bytes, peer_timeout_s=end.peer_timeout_s)
            made.listen(end.connections)
            return made
        made = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        made.setblocking(False)
        try:
            made.setsockopt(socket.SOL_SOCKET, _SO_RCVBUFFORCE, _DATAGRAM_BUFFER_BYTES)
        except PermissionError:
            made.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, _DATAGRAM_BUFFER_BYTES)
        made.bind((end.address, config.port))
        self._add(made)
        return made

    def _add(self, connection: socket.socket) -> None:
        self._number[connection] = len(self._received)
        self._received.append(0)

    def end(self) -> None:
        """Make ``run`` return. Safe to call from a signal handler."""
        self._ending = True
        os.eventfd_write(self._news, 1)

    def run(self) -> None:
        """Receive until ``end`` is called, then write the samples. Raise OSError if a connection is lost."""
        while not self._ending:
            if (now_ns := time.monotonic_ns()) >= self._due_ns:
                self._sample(now_ns)
                self._due_ns = now_ns + self._interval_ns
            for key, _ in self._selector.select((self._due_ns - time.monotonic_ns()) / 1e9):
                if key.fileobj is self._listener and self._config.end.is_tcp:
                    self._accept()
                elif isinstance(key.fileobj, socket.socket):
                    self._receive(key.fileobj)
        self._sample(time.monotonic_ns())
        Path(self._config.samples).write_text(json.dumps(self._samples), encoding="utf-8")
        # A SIGTERM may still arrive while the process exits.
        signal.signal(signal.SIGTERM, signal.SIG_IGN)

    def _accept(self) -> None:
        try:
            connection = accept_own(self._listener)
        except (BlockingIOError, ConnectionAbortedError):
            return
        connection.setblocking(False)
        self._add(connection)
        self._selector.register(connection, selectors.EVENT_READ)

    def _receive(self, connection: socket.socket) -> None:
        number, is_tcp = self._number[connection], self._config.end.is_tcp
        while True:
            try:
                count = connection.recv_into(self._room)
            except BlockingIOError:
                return
            except ConnectionResetError:
                # The sender resets its connections when it ends; an ended sender is the runner's to notice.
                count = 0
            if not count:
                self._selector.unregister(connection)
                return
            self._received[number] += count
            if is_tcp:
                hold_window(connection, self._config.end.window_bytes)
                return

    def _sample(self, now_ns: int) -> None:
        self._samples.append((now_ns - self._config.epoch_ns, list(self._received)))
        if len(self._samples) >= _MOST_SAMPLES:
            self._samples = self._samples[::2]
            self._interval_ns *= 2


def _run_receiver(config: ReceiverConfig) -> None:
    """Run the receiving process until it is told to end."""
    if config.end.parent_pid is not None:
        die_with_parent(config.end.parent_pid)
    receiver = FlowReceiver(config)
    signal.signal(signal.SIGTERM, lambda number, frame: receiver.end())
    report_at_gate(Path(config.end.gate))
    receiver.run()


def main(arguments: list[str]) -> int:
    """Run the receiver whose configuration file is named on the command line. Return the exit status."""
    return run_configured(
        arguments,
        module="wanbed.workloads.background_flows.receiver_process",
        name="wanbed background",
        read=partial(read_config, ReceiverConfig),
        run=_run_receiver,
        faults=(TransportError,),
        named=lambda config: f"background {config.end.name!r}, receiver",
    )


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
